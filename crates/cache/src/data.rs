//! File data in memory: reads, read-ahead, writes, and eviction.

use std::ops::Range;

use bytes::Bytes;
use remora_wire::fuse::Errno;
use remora_wire::nfs3;

use crate::call::{CallId, Priority};
use crate::credentials::Caller;
use crate::disk::{fetch as disk_fetch, save};
use crate::extents::Extents;
use crate::node::{FileState, NodeId};
use crate::path;
use crate::ranges::RangeSet;
use crate::state::{Op, Purpose, State, Stop};

/// Read-ahead in bytes: at first, and at most.
const AHEAD_MIN: u64 = 128 << 10;
const AHEAD_MAX: u64 = 4 << 20;
/// Data kept behind a sequential reader, in bytes.
const BEHIND: u64 = 16 << 20;

/// The contents of `range`, within the size of the file.
pub(crate) fn read(state: &mut State, op: &Op, id: NodeId, range: Range<u64>) -> Result<Bytes, Stop> {
    let node = state.node(id)?;
    let size = node.size();
    let range = range.start.min(size)..range.end.min(size);
    if range.is_empty() {
        return Ok(Bytes::new());
    }
    fill_holes(state, id, range.clone());
    let file = state.node(id)?.file();
    if file.extents.missing(range.clone()).is_empty() {
        let data = file.extents.read(range.clone());
        touch(state, id);
        read_ahead(state, op, id, range, size);
        return Ok(data);
    }
    awaited(state, op, id, range)?;
    Ok(Bytes::new())
}

/// Bytes that only this machine could have written, and did not, are zero.
fn fill_holes(state: &mut State, id: NodeId, range: Range<u64>) {
    let is_disconnected = state.is_disconnected();
    let Some(node) = state.nodes.get(id) else { return };
    let seen = node.attr.as_ref().filter(|_| is_disconnected).map(|cached| cached.attr.size);
    let Some(known) = node.server_size().into_iter().chain(seen).min() else { return };
    let beyond = range.start.max(known)..range.end;
    if beyond.is_empty() {
        return;
    }
    update(state, id, |file| {
        for hole in file.extents.missing(beyond) {
            file.extents.insert(hole.start, Bytes::from(vec![0; (hole.end - hole.start) as usize]));
        }
    });
}

/// Fetches `range`, and waits for it.
pub(crate) fn awaited(state: &mut State, op: &Op, id: NodeId, range: Range<u64>) -> Result<(), Stop> {
    disk_fetch::start_load(state, id);
    for gap in state.node(id)?.file().extents.missing(range.clone()) {
        fetch(state, &op.caller, id, gap, Priority::Foreground)?;
    }
    disk_fetch::wait_for(state, id, &range, op.unique);
    let file = state.node(id)?.file();
    let overlaps = |r: &Range<u64>| r.start < range.end && r.end > range.start;
    let awaited: Vec<_> = file.reading.iter().filter(|(_, r)| overlaps(r)).map(|(id, _)| *id).collect();
    for call in awaited {
        state.wait_for(call, op.unique);
    }
    Err(Stop::Wait)
}

/// Fetches `range`: reads from the disk cache the bytes that it has, and sends READs for those that none in flight
/// covers.
pub(crate) fn fetch(
    state: &mut State,
    caller: &Caller,
    id: NodeId,
    range: Range<u64>,
    priority: Priority,
) -> Result<(), Errno> {
    fill_holes(state, id, range.clone());
    let block = u64::from(state.link.read_block.max(512));
    let node = state.node(id)?;
    let fh = node.fh.clone();
    let mut wanted = RangeSet::default();
    wanted.insert(range);
    node.server_size().into_iter().for_each(|known| wanted.remove(known..u64::MAX));
    for in_flight in node.file().reading.values() {
        wanted.remove(in_flight.clone());
    }
    disk_fetch::fetch(state, id, &mut wanted);
    if state.is_disconnected() && !wanted.is_empty() {
        let path = path::path(state, id, None);
        state.log.miss(path);
        if state.fails_misses() {
            return Err(Errno::EHOSTUNREACH);
        }
    }
    for part in wanted.iter() {
        let mut offset = part.start;
        while offset < part.end {
            let end = part.end.min(offset + block);
            let count = (end - offset) as u32;
            let call = nfs3::Call::Read(nfs3::ReadArgs { fh: fh.clone(), offset, count });
            let purpose = Purpose::Read { node: id, range: offset..end, reader: caller.clone() };
            let call = state.submit(priority, &caller.auth, call, purpose);
            state.node(id)?.file().reading.insert(call, offset..end);
            offset = end;
        }
    }
    Ok(())
}

/// Fetches what a sequential reader will read next.
fn read_ahead(state: &mut State, op: &Op, id: NodeId, range: Range<u64>, size: u64) {
    let ahead_max = state.link.ahead_max;
    let Ok(node) = state.node(id) else { return };
    let file = node.file();
    if range.start != file.next_read {
        file.next_read = range.end;
        file.ahead = 0;
        return;
    }
    file.next_read = range.end;
    file.ahead = (file.ahead * 2).clamp(AHEAD_MIN.min(ahead_max), AHEAD_MAX.min(ahead_max));
    let ahead = range.end..size.min(range.end.saturating_add(file.ahead));
    if ahead.is_empty() || state.is_disconnected() {
        return;
    }
    let Ok(node) = state.node(id) else { return };
    if node.is_local {
        return;
    }
    let file = node.file();
    for gap in file.extents.missing(ahead) {
        // The object was there a moment ago.
        let _ = fetch(state, &op.caller, id, gap, Priority::ReadAhead);
    }
    drop_behind(state, id, range.end, size);
}

/// Drops what a sequential reader has passed of a file that does not fit into memory: the kernel has it.
fn drop_behind(state: &mut State, id: NodeId, at: u64, size: u64) {
    let fits = size <= state.config.memory_max;
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()) else { return };
    if !fits && file.is_clean() && file.extents.bytes() > 2 * BEHIND {
        update(state, id, |file| file.extents.remove(0..at.saturating_sub(BEHIND)));
    }
}

/// READ `call` has ended. Returns whether its data is still wanted.
pub(crate) fn ended(state: &mut State, id: NodeId, call: CallId) -> bool {
    update(state, id, |file| file.reading.remove(&call)).flatten().is_some()
}

/// A READ is answered: keeps its data unless the file has changed since.
pub(crate) fn arrived(state: &mut State, id: NodeId, range: Range<u64>, reply: &nfs3::ReadOk) -> Result<(), Errno> {
    let node = state.node(id)?;
    let is_current = match (&reply.attr, &node.attr) {
        (Some(then), Some(now)) => node.own.in_flight > 0 || then.wcc() == now.attr.wcc(),
        _ => true,
    };
    if !is_current {
        return Ok(());
    }
    let len = (reply.data.len() as u64).min(range.end - range.start);
    if len == 0 && !reply.eof {
        return Err(Errno::EIO);
    }
    let size = node.size();
    update(state, id, |file| {
        // Local writes are newer than the reply, even those that the server has committed since.
        for gap in file.extents.missing(range.start..range.start + len) {
            let part = reply.data.slice((gap.start - range.start) as usize..(gap.end - range.start) as usize);
            file.extents.insert(gap.start, part);
        }
        // Behind the server's end of the file and before ours there are zeros.
        let end = range.end.min(size);
        if reply.eof && range.start + len < end {
            for gap in file.extents.missing(range.start + len..end) {
                file.extents.insert(gap.start, Bytes::from(vec![0; (gap.end - gap.start) as usize]));
            }
        }
    });
    save::arrived(state, id, len);
    Ok(())
}

/// The server answered a READ of `range` in part: fetches the rest before a program comes to it.
pub(crate) fn fetch_rest(state: &mut State, caller: &Caller, id: NodeId, range: Range<u64>, priority: Priority) {
    let missing = match state.node(id) {
        Ok(node) => node.file().extents.missing(range),
        Err(_) => return,
    };
    for gap in missing {
        // The object was there a moment ago.
        let _ = fetch(state, caller, id, gap, priority);
    }
}

/// Changes the data of a file, and counts what is in memory and what is uncommitted.
pub(crate) fn update<T>(state: &mut State, id: NodeId, change: impl FnOnce(&mut FileState) -> T) -> Option<T> {
    let node = state.nodes.get_mut(id)?;
    let file = node.file();
    let before = file.extents.bytes();
    let result = change(file);
    let after = file.extents.bytes();
    let uncommitted = if file.is_clean() { 0 } else { file.uncommitted().bytes() };
    let counted = std::mem::replace(&mut file.counted, uncommitted);
    if file.is_clean() {
        file.size = None;
        file.refusal = None;
        // With nothing to send, it does not matter what others have changed.
        file.check = None;
        state.dirty_files.remove(&id);
        let kept = std::mem::take(&mut file.kept);
        state.store.due.remove(&id);
        file.kept.removed = kept.object.or(kept.removed);
        kept.object.into_iter().for_each(|object| state.store.remove(object));
        state.ready.extend(kept.waiters);
        if counted > 0 {
            save::arrived(state, id, counted);
        }
    } else {
        state.dirty_files.insert(id);
    }
    state.dirty_bytes = state.dirty_bytes - counted + uncommitted;
    state.data_bytes = state.data_bytes - before + after;
    touch(state, id);
    state.nodes.settle(id);
    Some(result)
}

/// Moves a file to the end of the order of eviction.
fn touch(state: &mut State, id: NodeId) {
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()) else { return };
    if let Some(place) = file.place.take() {
        state.data_files.remove(&place);
    }
    if file.extents.bytes() > 0 {
        file.place = Some(state.next_place);
        state.data_files.insert(state.next_place, id);
        state.next_place += 1;
    }
}

/// Drops what the server has of a file, so that it is read again.
pub(crate) fn drop_clean(state: &mut State, id: NodeId) {
    update(state, id, |file| {
        file.reading.clear();
        let uncommitted = file.uncommitted();
        file.extents.retain(&uncommitted);
    });
    let unused =
        state.nodes.get_mut(id).and_then(|node| node.file.as_mut()).map(|file| std::mem::take(&mut file.unused));
    state.ahead_bytes = state.ahead_bytes.saturating_sub(unused.unwrap_or(0));
}

/// Cuts the data at `size`.
pub(crate) fn truncate(state: &mut State, id: NodeId, size: u64) {
    update(state, id, |file| {
        file.reading.clear();
        let beyond = size..u64::MAX;
        file.extents.remove(beyond.clone());
        file.unsent_sets().into_iter().for_each(|set| set.remove(beyond.clone()));
        if file.size.is_some() {
            file.size = Some(size);
        }
    });
    save::overwritten(state, id, size..u64::MAX);
}

/// Drops all data of a file that has been removed.
pub(crate) fn discard(state: &mut State, id: NodeId) {
    if let Some(node) = state.nodes.get_mut(id)
        && node.file.as_ref().is_some_and(|file| !file.is_safe())
    {
        // A crash of the server may still bring earlier attributes back.
        node.own.is_unseen = true;
        node.own.unsettled = None;
    }
    update(state, id, |file| {
        file.extents = Extents::default();
        file.unsent_sets().into_iter().for_each(RangeSet::clear);
        file.deferred = None;
        file.cut = None;
        file.check = None;
    });
    save::overwritten(state, id, 0..u64::MAX);
}

/// Evicts clean data until it fits, the files that were used least recently first, and objects' data with them.
pub(crate) fn evict(state: &mut State) {
    for node in state.nodes.take_evicted() {
        let Some(file) = node.file else { continue };
        state.data_bytes -= file.extents.bytes();
        state.ahead_bytes = state.ahead_bytes.saturating_sub(file.unused);
        if let Some(place) = file.place {
            state.data_files.remove(&place);
        }
    }
    let limit = state.config.memory_max.saturating_add(state.dirty_bytes);
    let oldest: Vec<NodeId> =
        if state.data_bytes > limit { state.data_files.values().copied().collect() } else { Vec::new() };
    for id in oldest {
        if state.data_bytes <= limit {
            return;
        }
        let file = state.nodes.get(id).and_then(|node| node.file.as_ref());
        if file.is_some_and(|file| file.reading.is_empty()) {
            save::before_eviction(state, id);
            drop_clean(state, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use remora_base::Time;

    use super::*;
    use crate::config::Config;

    #[test]
    fn reader_drops_what_it_passed_of_a_file_beyond_memory() {
        let config = Config { memory_max: 8 * BEHIND, ..Config::default() };
        for (size, kept) in [(8 * BEHIND, 3 * BEHIND), (8 * BEHIND + 1, BEHIND)] {
            let mut state = State::new(config.clone(), nfs3::Fh(Bytes::new()), Time::ZERO);
            let data = Bytes::from(vec![0; 3 * BEHIND as usize]);
            update(&mut state, NodeId::ROOT, |file| file.extents.insert(0, data));
            drop_behind(&mut state, NodeId::ROOT, 3 * BEHIND, size);
            assert_eq!(state.data_bytes, kept, "of {size}");
        }
    }
    /// A READ of this range in flight, and its reply.
    fn read(state: &mut State, range: Range<u64>, data: &'static [u8]) -> (CallId, nfs3::ReadOk) {
        let args = nfs3::ReadArgs { fh: nfs3::Fh(Bytes::new()), offset: range.start, count: 8 };
        let reader = state.credentials.of(0, 0, &[]);
        let purpose = Purpose::Read { node: NodeId::ROOT, range: range.clone(), reader };
        let auth = std::sync::Arc::default();
        let call = state.submit(Priority::ReadAhead, &auth, nfs3::Call::Read(args), purpose);
        update(state, NodeId::ROOT, |file| file.reading.insert(call, range));
        (call, nfs3::ReadOk { attr: None, count: data.len() as u32, eof: true, data: Bytes::from_static(data) })
    }

    #[test]
    fn late_reply_does_not_replace_newer_data() {
        let mut state = State::new(Config::default(), nfs3::Fh(Bytes::new()), Time::ZERO);
        let (call, reply) = read(&mut state, 0..8, b"old");
        // Written, and committed already.
        update(&mut state, NodeId::ROOT, |file| {
            file.extents.insert(2, Bytes::from_static(b"new"));
            file.dirty.insert(5..8);
            file.size = Some(8);
        });
        assert!(ended(&mut state, NodeId::ROOT, call));
        arrived(&mut state, NodeId::ROOT, 0..8, &reply).unwrap();
        let data = |state: &mut State| state.node(NodeId::ROOT).unwrap().file().extents.read(0..8);
        assert_eq!(data(&mut state)[..], *b"olnew\0\0\0");
        let (call, _) = read(&mut state, 0..8, b"older");
        truncate(&mut state, NodeId::ROOT, 0);
        assert!(!ended(&mut state, NodeId::ROOT, call), "what it shows was cut off since");
        let (call, _) = read(&mut state, 0..8, b"older");
        drop_clean(&mut state, NodeId::ROOT);
        assert!(!ended(&mut state, NodeId::ROOT, call));
    }
}
