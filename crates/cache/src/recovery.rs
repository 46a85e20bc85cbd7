//! Data that was written before a restart: it is sent once the server shows that nobody else has changed the file.
//!
//! The attributes that were seen before tell. If they differ, WRITEs may have been executed whose replies are lost: then
//! the bytes of the server must be ours, or none. Otherwise the data is kept, listed, and not sent.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::fuse::Errno;
use remora_wire::nfs3::{self, Attr, Fh, FileType, NfsTime, WccAttr};
use remora_wire::rpc::AuthUnix;

use crate::call::Priority;
use crate::change_log::{append, local};
use crate::data;
use crate::dirty_store;
use crate::kept::{Check, DeferredSetAttr};
use crate::learn;
use crate::node::{FileState, NodeId};
use crate::reintegration::conflict;
use crate::state::{Purpose, State};
use crate::store_job::{DirtyRecord, Refusal, SavedObject};
use crate::writeback::{self, Amount};

/// When a look at the server that failed is repeated.
const RETRY: Duration = Duration::from_secs(5);

/// A file that the server has just made.
const EMPTY: WccAttr = WccAttr { size: 0, mtime: NfsTime { secs: 0, nanos: 0 }, ctime: NfsTime { secs: 0, nanos: 0 } };

/// Takes an object of the store.
pub(crate) fn restore(state: &mut State, saved: SavedObject) {
    let SavedObject { record, data } = saved;
    let DirtyRecord { object, fh, fileid, path, size, cut, before, credential, attr, .. } = record;
    state.store.known_object(object);
    let Some((id, is_new)) = owner(state, &fh, fileid) else { return state.store.remove(object) };
    // The server's file was empty when it was made for us.
    let before = if is_new { Some(EMPTY) } else { before };
    let is_local = state.nodes.get(id).is_some_and(|node| node.is_local);
    let (now, saves) = (state.now, state.store.saves);
    let writer = state.credentials.of(credential.uid, credential.gid, &credential.gids).auth;
    let deferred = attr.map(|attr| DeferredSetAttr {
        auth: state.credentials.of(attr.credential.uid, attr.credential.gid, &attr.credential.gids).auth,
        set: attr.set,
        at: now,
    });
    // Only its attributes were changed: the time of its last write stays.
    let is_unwritten = data.is_empty() && cut.is_none() && before.is_some_and(|before| before.size == size);
    let mut replaced = None;
    data::update(state, id, |file| {
        for part in data {
            let range = part.offset..part.offset.saturating_add(part.data.len() as u64);
            file.extents.insert(part.offset, part.data);
            file.dirty.insert(range);
        }
        file.size = (!is_unwritten).then_some(size);
        file.writer = Some(writer);
        file.deferred = deferred;
        file.kept.path = path;
        file.kept.saved = saves;
        replaced = file.kept.object.replace(object);
        file.cut = cut;
        file.check = (!is_local).then(|| Box::new(Check::of(before, true)));
        file.send_at = Some(now);
    });
    if let Some(replaced) = replaced {
        state.store.remove(replaced);
    }
    state.timers.insert((now, id));
    start(state, id);
}

/// The file that a handle of the store stands for, and whether the server has made it for us since; `None` if it was
/// removed before the server had it.
fn owner(state: &mut State, fh: &Fh, fileid: u64) -> Option<(NodeId, bool)> {
    if let Some(binding) = state.log.bindings.get(fh) {
        let id = state.nodes.adopt(&binding.fh, FileType::Regular, binding.fileid);
        state.log.bound.insert(fh.clone(), id);
        if let Some(node) = state.nodes.get_mut(id) {
            node.shown_fileid.get_or_insert(fileid);
        }
        return Some((id, true));
    }
    if let Some(id) = state.nodes.by_handle(fh) {
        return Some((id, false));
    }
    (!local::is_provisional(fh)).then(|| (state.nodes.adopt(fh, FileType::Regular, fileid), false))
}

/// Asks for the attributes of a file that is to be checked.
pub(crate) fn start(state: &mut State, id: NodeId) {
    let Some(node) = state.nodes.get_mut(id) else { return };
    let fh = node.fh.clone();
    let Some(file) = node.file.as_deref_mut() else { return };
    // It waits until the server is back.
    let is_sent = !state.connection.is_disconnected();
    let (Some(check), Some(auth)) = (file.check.as_mut().filter(|_| is_sent), file.writer.clone()) else { return };
    check.reading = 0;
    check.is_different = false;
    check.is_unknown = false;
    file.send_at = None;
    state.submit(Priority::WriteBack, &auth, nfs3::Call::GetAttr(fh), Purpose::Check(id));
}

/// The server's attributes of the file, or the status with which it refused them.
pub(crate) fn seen(state: &mut State, id: NodeId, result: Result<Attr, Errno>, asked: Time) {
    // The reply to an earlier look may come after a later one has decided.
    let is_checked = state.nodes.get(id).and_then(|node| node.file.as_ref()).is_some_and(|file| file.check.is_some());
    if !is_checked {
        return;
    }
    let attr = match result {
        Ok(attr) => attr,
        Err(errno) => return refuse(state, id, Refusal::Refused(errno)),
    };
    let block = u64::from(state.link.read_block.max(512));
    let Some(node) = state.nodes.get_mut(id) else { return };
    if attr.kind != FileType::Regular || attr.fileid != node.fileid {
        return refuse(state, id, Refusal::Refused(Errno::ESTALE));
    }
    let fh = node.fh.clone();
    let Some(file) = node.file.as_deref_mut() else { return };
    let uncommitted = file.uncommitted();
    let (Some(check), Some(auth)) = (&mut file.check, file.writer.clone()) else { return };
    // Our changes of names move the ctime.
    let data = |wcc: &WccAttr| (wcc.size, wcc.mtime);
    let earlier = [&check.before, &file.kept.committed];
    let is_same = earlier.into_iter().flatten().any(|earlier| data(earlier) == data(&attr.wcc()));
    let size = attr.size;
    // Only another client makes it shorter, unless the server has lost in a crash what we wrote at its end.
    let kept = check.before.as_ref().map_or(0, |before| before.size).min(file.cut.unwrap_or(u64::MAX));
    check.is_different = size < kept && !uncommitted.overlaps(&(kept - 1..kept));
    check.attr = Some((attr, asked));
    if is_same {
        return pass(state, id);
    }
    let ranges = file.dirty.iter().filter(|range| range.start < size);
    let blocks: Vec<Range<u64>> = ranges
        .flat_map(|range| {
            let end = range.end.min(size);
            (range.start..end).step_by(block as usize).map(move |start| start..end.min(start + block))
        })
        .collect();
    // There are no bytes to compare. A server with coarse times may show our own change in the mtime alone, never in
    // the size.
    let is_other_size = check.before.is_some_and(|before| before.size != size);
    check.is_different |= blocks.is_empty() && is_other_size && !check.may_be_ours;
    check.reading = blocks.len() as u32;
    for range in blocks {
        ask_for_bytes(state, id, &fh, &auth, range);
    }
    decide(state, id);
}

fn ask_for_bytes(state: &mut State, id: NodeId, fh: &Fh, auth: &Arc<AuthUnix>, range: Range<u64>) {
    let (offset, count) = (range.start, (range.end - range.start) as u32);
    let call = nfs3::Call::Read(nfs3::ReadArgs { fh: fh.clone(), offset, count });
    state.submit(Priority::WriteBack, auth, call, Purpose::CheckRead { node: id, range });
}

/// A READ got no reply.
pub(crate) fn unread(state: &mut State, id: NodeId) {
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_deref_mut()) else { return };
    let Some(check) = &mut file.check else { return };
    check.reading = check.reading.saturating_sub(1);
    check.is_unknown = true;
    decide(state, id);
}

/// The server's bytes from the beginning of `range` on, without those of `rest`; `None` if it does not let them be read.
pub(crate) fn read(state: &mut State, id: NodeId, range: Range<u64>, rest: Option<Range<u64>>, data: Option<&Bytes>) {
    let Some(node) = state.nodes.get_mut(id) else { return };
    let fh = node.fh.clone();
    let Some(file) = node.file.as_deref_mut() else { return };
    let is_same = data.is_some_and(|theirs| is_ours(file, &range, theirs));
    let Some(check) = &mut file.check else { return };
    check.is_different |= !is_same;
    if let (Some(rest), Some(auth)) = (rest, file.writer.clone()) {
        return ask_for_bytes(state, id, &fh, &auth, rest);
    }
    check.reading = check.reading.saturating_sub(1);
    decide(state, id);
}

/// Whether `theirs` are our bytes, or a hole behind the end that the file had.
fn is_ours(file: &FileState, range: &Range<u64>, theirs: &Bytes) -> bool {
    let end = range.end.min(range.start + theirs.len() as u64);
    let ours = file.extents.read(range.start..end);
    let old_size = file.check.as_ref().and_then(|check| check.before.as_ref()).map_or(u64::MAX, |before| before.size);
    let old_size = old_size.min(file.cut.unwrap_or(u64::MAX));
    let pairs = (range.start..end).zip(ours.iter().zip(theirs.iter()));
    pairs.into_iter().all(|(offset, (ours, theirs))| ours == theirs || *theirs == 0 && offset >= old_size)
}

fn decide(state: &mut State, id: NodeId) {
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_deref_mut()) else { return };
    let Some(check) = &file.check else { return };
    if check.reading > 0 {
        return;
    }
    if check.is_unknown {
        return unanswered(state, id);
    }
    let is_longer = check.attr.as_ref().zip(file.size).is_some_and(|((attr, _), size)| attr.size > size);
    if check.is_different || is_longer { refuse(state, id, Refusal::Changed) } else { pass(state, id) }
}

/// The data is sent.
fn pass(state: &mut State, id: NodeId) {
    let check = data::update(state, id, |file| {
        file.refusal = None;
        file.check.take()
    });
    if let Some(Some(check)) = check
        && let Some((attr, asked)) = check.attr
    {
        learn::learn_attr(state, id, &attr, asked);
        // What the server shows is what was written here, if not all of it.
        append::expect(state, id, attr.wcc(), |seen| seen.is_some());
    }
    dirty_store::changed(state, id, None);
    writeback::send(state, id, Amount::All);
}

/// Another client has changed or removed the file: ours is kept beside it, or made again. Otherwise the data is kept and
/// not sent.
fn refuse(state: &mut State, id: NodeId, why: Refusal) {
    let is_lost = matches!(why, Refusal::Refused(Errno::ESTALE | Errno::ENOENT));
    if is_lost && is_removing(state, id) {
        return unanswered(state, id);
    }
    let is_settled = match why {
        Refusal::Changed => conflict::copy_file(state, id),
        Refusal::Refused(Errno::ESTALE | Errno::ENOENT) => conflict::make_file_again(state, id),
        Refusal::Refused(_) => false,
    };
    if is_settled {
        return;
    }
    data::update(state, id, |file| {
        file.check = None;
        file.deferred = None;
    });
    writeback::keep_refused(state, id, why);
}

/// Whether a change in flight may remove the file's name.
fn is_removing(state: &State, id: NodeId) -> bool {
    let location = state.nodes.get(id).and_then(|node| node.location.as_ref());
    location.is_some_and(|at| state.nodes.get(at.dir).is_some_and(|dir| dir.own.in_flight > 0))
}

/// No reply came: looks again later.
pub(crate) fn unanswered(state: &mut State, id: NodeId) {
    let at = state.now + RETRY;
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_deref_mut()) else { return };
    if file.check.is_some() {
        file.send_at = Some(at);
        state.timers.insert((at, id));
    }
}
