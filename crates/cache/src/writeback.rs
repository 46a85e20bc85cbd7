//! Write-back: sends dirty data and commits it (RFC 1813, section 4.8).

use std::ops::Range;
use std::time::Duration;

use remora_wire::fuse::Errno;
use remora_wire::nfs3::{self, Stable};

use crate::call::{CallFailure, CallId, Priority};
use crate::change_log::append;
use crate::data;
use crate::deferred_setattr;
use crate::dirty_store;
use crate::disk::save;
use crate::errno::errno;
use crate::node::{FileState, Node, NodeId};
use crate::state::{Change, Op, Purpose, State, Stop};
use crate::store_job::Refusal;

/// How long written data waits for more before it is sent.
const DELAY: Duration = Duration::from_secs(1);
/// When a WRITE that got no reply is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// How long data that the server has may stay uncommitted in a file that is open.
const COMMIT_DELAY: Duration = Duration::from_secs(10);
/// WRITEs of a file in flight.
const WRITES_MAX: usize = 128;

/// A program wrote `bytes` at `offset` of the file.
pub(crate) fn write(state: &mut State, id: NodeId, offset: u64, bytes: bytes::Bytes, writer: &Op) -> Result<(), Errno> {
    let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
    let size = state.node(id)?.size();
    let now = state.now;
    let is_here = state.is_disconnected() || state.node(id)?.is_local;
    let at = is_here.then(|| state.server_nfs_time());
    data::update(state, id, |file| {
        file.extents.insert(offset, bytes);
        file.dirty.insert(offset..end);
        file.refused.remove(offset..end);
        file.size = Some(size.max(end));
        file.writer = Some(writer.caller.auth.clone());
        file.send_at.get_or_insert(now + DELAY);
        deferred_setattr::written(&mut file.deferred, at, end);
    });
    if let Some(at) = at {
        let set = nfs3::SetAttr { mtime: nfs3::SetTime::To(at), ..nfs3::SetAttr::NONE };
        deferred_setattr::add(state, id, &writer.caller.auth, &set);
    }
    state.node(id)?.shown_ctime = at;
    arm(state, id);
    save::overwritten(state, id, offset..end);
    dirty_store::changed(state, id, Some(offset..end));
    // So little may be all of the file, to be written synchronously when it is closed.
    if state.nodes.get(id).and_then(|node| node.file.as_ref()).is_some_and(|f| f.dirty.bytes() > state.link.sync_max) {
        send(state, id, Amount::FullBlocks);
    }
    Ok(())
}

/// Which dirty data to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// Only what fills blocks; the rest may grow.
    FullBlocks,
    All,
}

/// Sends dirty data of a file.
pub(crate) fn send(state: &mut State, id: NodeId, amount: Amount) {
    let block = u64::from(state.link.write_block.max(512));
    let crowded = state.dirty_bytes > state.config.dirty_max / 2;
    let Some(node) = state.nodes.get_mut(id) else { return };
    let Some(file) = &node.file else { return };
    if file.is_changed_there() {
        if !file.dirty.is_empty() {
            keep_refused(state, id, Refusal::Changed);
        }
        data::update(state, id, |file| file.deferred = None);
        return;
    }
    // WRITEs do not overtake an earlier change of the times.
    if file.check.is_some() || file.deferred_sent.is_some() || file.cut_sent.is_some() {
        return;
    }
    if node.is_local || node.is_binding || state.connection.is_disconnected() {
        return;
    }
    if node.is_stale {
        return lose(state, id);
    }
    let cut = file.cut;
    if !dirty_store::may_send(state, id) {
        return;
    }
    dirty_store::save_before_sending(state, id);
    let Some(node) = state.nodes.get_mut(id) else { return };
    if let Some(size) = cut {
        return send_cut(state, id, size);
    }
    let (fh, is_closed) = (node.fh.clone(), node.opens == 0);
    note_committed(node);
    let is_synchronous = is_short_flush(node.file(), is_closed, state.link.sync_max);
    loop {
        let Some(node) = state.nodes.get_mut(id) else { return };
        let file = node.file();
        if file.writing.len() >= WRITES_MAX {
            return;
        }
        let all = amount == Amount::All || file.is_urgent || crowded;
        let Some(range) = next_block(file, block, all) else { break };
        let is_alone = is_short_flush(file, is_closed, range.end - range.start);
        let stable = if is_synchronous || is_alone { Stable::FileSync } else { Stable::Unstable };
        let Some(auth) = file.writer.clone() else { return };
        let priority = if file.is_urgent { Priority::Durable } else { Priority::WriteBack };
        let data = file.extents.read(range.clone());
        let count = data.len() as u32;
        file.dirty.remove(range.clone());
        node.begin_change();
        let args = nfs3::WriteArgs { fh: fh.clone(), offset: range.start, count, stable, data };
        let purpose = Purpose::Write { node: id, range: range.clone() };
        let call = state.submit(priority, &auth, nfs3::Call::Write(args), purpose);
        if let Some(node) = state.nodes.get_mut(id) {
            node.file().writing.insert(call, range);
        }
    }
    let at = state.now + DELAY;
    if let Some(node) = state.nodes.get_mut(id) {
        let file = node.file();
        let is_sent = file.dirty.is_empty() && file.deferred.is_none();
        file.send_at = if is_sent { None } else { Some(file.send_at.unwrap_or(at)) };
    }
    arm(state, id);
    commit(state, id, false);
    deferred_setattr::send(state, id);
}

/// Notes what the server shows of a file that has nothing it may still lose.
fn note_committed(node: &mut Node) {
    let known = node.attr.as_ref().filter(|_| node.own.in_flight == 0).map(|cached| cached.attr.wcc());
    let file = node.file();
    if file.is_safe() {
        file.kept.committed = known;
    }
}

/// Sends what waited for the store of unsent data.
pub(crate) fn send_stored(state: &mut State) {
    let now = state.now;
    for id in std::mem::take(&mut state.store.sendable) {
        let Some(file) = state.nodes.get(id).and_then(|node| node.file.as_ref()) else { continue };
        let is_due = file.send_at.is_some_and(|at| at <= now);
        send(state, id, if is_due { Amount::All } else { Amount::FullBlocks });
    }
}

/// Cuts the server's file before data is sent that was written after a truncation.
fn send_cut(state: &mut State, id: NodeId, size: u64) {
    let Some(node) = state.nodes.get_mut(id) else { return };
    let fh = node.fh.clone();
    let file = node.file();
    if !file.writing.is_empty() || file.kept.is_behind() {
        return;
    }
    let Some(auth) = file.writer.clone() else { return };
    file.cut = None;
    file.cut_sent = Some(size);
    let priority = if file.is_urgent { Priority::Durable } else { Priority::WriteBack };
    let attr = nfs3::SetAttr { size: Some(size), ..nfs3::SetAttr::NONE };
    let call = nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh, attr, guard: None });
    let change = Change::Cut(id);
    state.begin_change(&change);
    state.submit(priority, &auth, call, Purpose::Change { op: None, change });
}

/// The SETATTR that cuts a file is answered, or got no reply.
pub(crate) fn cut(state: &mut State, id: NodeId, result: Result<Option<Errno>, CallFailure>) {
    let at = state.now + RETRY;
    data::update(state, id, |file| {
        let size = file.cut_sent.take();
        if result != Ok(None) {
            file.cut = size.into_iter().chain(file.cut).min();
            file.send_at = Some(at);
        }
    });
    match result {
        Ok(None) => record_progress(state, id),
        Ok(Some(errno)) => return keep_refused(state, id, Refusal::Refused(errno)),
        Err(_) => return arm(state, id),
    }
    proceed(state, id);
}

/// Whether at most `max` bytes are to be sent, a program waits for them or the file is closed, and nothing of the file is
/// in flight or uncommitted.
fn is_short_flush(file: &FileState, is_closed: bool, max: u64) -> bool {
    let is_rest = file.unstable.is_empty() && file.writing.is_empty() && file.commit.is_none();
    (file.is_urgent || is_closed) && is_rest && file.dirty.bytes() <= max
}

/// Sets the timer of a file.
fn arm(state: &mut State, id: NodeId) {
    if let Some(file) = state.nodes.get(id).and_then(|node| node.file.as_ref()) {
        let due = [file.send_at, file.commit_at].into_iter().flatten();
        due.for_each(|at| _ = state.timers.insert((at, id)));
    }
}

/// The server has lost the file. The next fsync or close reports that; with `back` the data is kept.
fn lose(state: &mut State, id: NodeId) {
    let is_kept = |file: &FileState| file.kept.object.is_some() || file.deferred.is_some();
    let is_back = state.acknowledges_here();
    if state.nodes.get(id).and_then(|node| node.file.as_ref()).is_some_and(|file| is_back || is_kept(file)) {
        data::update(state, id, |file| file.deferred = None);
        return keep_refused(state, id, Refusal::Refused(Errno::ESTALE));
    }
    let waiters = data::update(state, id, |file| {
        let lost = [std::mem::take(&mut file.dirty), std::mem::take(&mut file.unstable)];
        if lost.iter().any(|range| !range.is_empty()) {
            file.error = Some(Errno::ESTALE);
        }
        file.send_at = None;
        file.commit_at = None;
        if file.is_flushed() { std::mem::take(&mut file.flush_waiters) } else { Default::default() }
    });
    state.ready.extend(waiters.unwrap_or_default());
}

/// The server does not take the file's data. It is kept and listed, and the next fsync or close reports that.
pub(crate) fn keep_refused(state: &mut State, id: NodeId, why: Refusal) {
    let error = match why {
        Refusal::Changed => Errno::EIO,
        Refusal::Refused(errno) => errno,
    };
    let waiters = data::update(state, id, |file| {
        let kept = [std::mem::take(&mut file.dirty), std::mem::take(&mut file.unstable)];
        kept.iter().flat_map(|ranges| ranges.iter()).for_each(|range| file.refused.insert(range));
        if file.refused.is_empty() {
            // There is no data for which the other changes would matter.
            (file.cut, file.deferred) = (None, None);
        } else {
            file.error = Some(error);
            file.refusal = Some(why);
        }
        file.send_at = None;
        file.commit_at = None;
        if file.is_flushed() { std::mem::take(&mut file.flush_waiters) } else { Default::default() }
    });
    state.ready.extend(waiters.unwrap_or_default());
    dirty_store::changed(state, id, None);
}

/// The last program has closed the file, and was told what the server refused.
pub(crate) fn drop_refused(state: &mut State, id: NodeId) {
    data::update(state, id, |file| {
        for range in std::mem::take(&mut file.refused).iter() {
            file.extents.remove(range);
        }
    });
}

/// The next dirty range of at most a block that the store has and no WRITE in flight overlaps: two WRITEs of the same
/// bytes could be executed in either order.
fn next_block(file: &FileState, block: u64, all: bool) -> Option<Range<u64>> {
    let overlaps = |range: &Range<u64>| file.writing.values().any(|w| w.start < range.end && w.end > range.start);
    let blocks = file.dirty.iter().flat_map(|range| {
        let starts = (range.start..range.end).step_by(block as usize);
        starts.map(move |start| start..range.end.min(start + block))
    });
    let is_ready = |range: &Range<u64>| !overlaps(range) && !file.kept.lacks(range);
    blocks.filter(|range| all || range.end - range.start == block).find(is_ready)
}

/// Sends a COMMIT if a program waits for it, much data waits for one, or data has waited for long (`is_old`).
pub(crate) fn commit(state: &mut State, id: NodeId, is_old: bool) {
    let many = state.config.dirty_max / 4;
    let at = state.now + COMMIT_DELAY;
    let Some(node) = state.nodes.get_mut(id) else { return };
    let (fh, opens) = (node.fh.clone(), node.opens);
    let file = node.file();
    let is_sent = file.dirty.is_empty() && file.writing.is_empty();
    if file.unstable.is_empty() || file.commit.is_some() {
        return;
    }
    let is_due = is_sent && (file.is_urgent || opens == 0) || file.unstable.bytes() >= many;
    if !is_due && !is_old {
        let at = *file.commit_at.get_or_insert(at);
        state.timers.insert((at, id));
        return;
    }
    file.commit_at = None;
    let Some(auth) = file.writer.clone() else { return };
    let priority = if file.is_urgent { Priority::Durable } else { Priority::WriteBack };
    let call = nfs3::Call::Commit(nfs3::CommitArgs { fh, offset: 0, count: 0 });
    let call = state.submit(priority, &auth, call, Purpose::Commit(id));
    data::update(state, id, |file| {
        file.committing = std::mem::take(&mut file.unstable);
        file.commit = Some(call);
    });
}

/// Whether nothing is left to be written: fsync and close wait for it. What the server refused is sent once again.
pub(crate) fn flushed(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    let node = state.node(id)?;
    let Some(file) = node.file.as_mut() else { return Ok(()) };
    if op.is_first && !file.refused.is_empty() && file.refusal != Some(Refusal::Changed) {
        file.error = None;
        data::update(state, id, |file| {
            let refused = std::mem::take(&mut file.refused);
            refused.iter().for_each(|range| file.dirty.insert(range));
        });
    }
    let file = state.node(id)?.file();
    if file.is_flushed() {
        file.flush_waiters.remove(&op.unique);
        return match file.error.take() {
            Some(errno) => Err(errno.into()),
            None => Ok(()),
        };
    }
    file.flush_waiters.insert(op.unique);
    hurry(state, id);
    Err(Stop::Wait)
}

/// The error of a file that no program has seen yet.
pub(crate) fn reported(state: &mut State, id: NodeId) -> Result<(), Stop> {
    let error = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()?.error.take());
    error.map_or(Ok(()), |errno| Err(errno.into()))
}

/// Whether all WRITEs of the file are answered and committed: a change of its attributes waits for it. Errors are left
/// for the next fsync or close.
pub(crate) fn settled(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    dirty_store::forgotten(state, op, id)?;
    let Some(file) = state.node(id)?.file.as_mut() else { return Ok(()) };
    if file.is_flushed() {
        return Ok(());
    }
    file.flush_waiters.insert(op.unique);
    hurry(state, id);
    Err(Stop::Wait)
}

/// A program waits for the file: sends all of it, before other write-back.
pub(crate) fn hurry(state: &mut State, id: NodeId) {
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()) else { return };
    if !file.is_urgent {
        file.is_urgent = true;
        let calls: Vec<_> = file.writing.keys().copied().chain(file.commit).collect();
        for call in calls {
            state.queue.raise(call, Priority::Durable);
        }
    }
    send(state, id, Amount::All);
}

/// A WRITE is answered.
pub(crate) fn written(state: &mut State, id: NodeId, call: CallId, range: Range<u64>, ok: &nfs3::WriteOk) {
    let done = range.start..range.end.min(range.start + u64::from(ok.count));
    data::update(state, id, |file| {
        file.writing.remove(&call);
        if ok.committed == Stable::Unstable {
            if file.verf.is_some_and(|verf| verf != ok.verf) {
                lose_unstable(file);
            }
            file.verf = Some(ok.verf);
            file.dirty.gaps(done.clone()).into_iter().for_each(|part| file.unstable.insert(part));
            file.extents.missing(done.clone()).into_iter().for_each(|cut_off| file.unstable.remove(cut_off));
        }
        if done.end < range.end {
            write_again(file, done.end..range.end);
        }
    });
    if done.is_empty() {
        refused(state, id, call, range, Errno::EIO);
        return;
    }
    record_progress(state, id);
    proceed(state, id);
}

/// The server has taken some of the file: the record gets fewer ranges and the new attributes.
fn record_progress(state: &mut State, id: NodeId) {
    append::update_seen(state, id);
    if state.nodes.get(id).is_some_and(|node| node.is_dirty()) {
        dirty_store::changed(state, id, None);
    }
}

/// The server has restarted, and may have lost what it had not committed.
fn lose_unstable(file: &mut FileState) {
    for lost in [std::mem::take(&mut file.unstable), std::mem::take(&mut file.committing)] {
        lost.iter().for_each(|range| file.dirty.insert(range));
    }
}

/// The server refused a WRITE. The data is kept, and sent again at the next fsync or close.
pub(crate) fn refused(state: &mut State, id: NodeId, call: CallId, range: Range<u64>, errno: Errno) {
    data::update(state, id, |file| {
        file.writing.remove(&call);
        file.dirty.remove(range.clone());
        file.refused.insert(range);
        file.error = Some(errno);
        file.refusal = Some(Refusal::Refused(errno));
    });
    dirty_store::changed(state, id, None);
    proceed(state, id);
}

/// The bytes of a WRITE are dirty again, but for those that were cut off since.
fn write_again(file: &mut FileState, range: Range<u64>) {
    let range = file.before_cut(&range);
    let cut_off = file.extents.missing(range.clone());
    file.dirty.insert(range);
    cut_off.into_iter().for_each(|range| file.dirty.remove(range));
}

/// A WRITE or COMMIT got no reply: its data is dirty again, and is sent again later.
pub(crate) fn unanswered(state: &mut State, id: NodeId, write: Option<(CallId, Range<u64>)>, failure: CallFailure) {
    let at = state.now + RETRY;
    let errno = if failure == CallFailure::TimedOut { Errno::ETIMEDOUT } else { Errno::EIO };
    let waiters = data::update(state, id, |file| {
        match write {
            Some((call, range)) => {
                file.writing.remove(&call);
                write_again(file, range);
            }
            None => lose_unstable(file),
        }
        file.send_at = Some(at);
        file.is_urgent = false;
        std::mem::take(&mut file.flush_waiters)
    })
    .unwrap_or_default();
    arm(state, id);
    for unique in waiters {
        if let Some(op) = state.held.get_mut(&unique) {
            op.failure = Some(errno);
        }
        state.ready.push_back(unique);
    }
}

/// A COMMIT is answered.
pub(crate) fn committed(state: &mut State, id: NodeId, result: Result<&nfs3::CommitOk, nfs3::Status>) {
    data::update(state, id, |file| match result {
        Ok(ok) if file.verf == Some(ok.verf) => file.committing.clear(),
        Ok(_) => {
            lose_unstable(file);
            file.verf = None;
        }
        Err(status) => {
            let lost = std::mem::take(&mut file.committing);
            lost.iter().for_each(|range| file.refused.insert(range));
            file.error = Some(errno(status));
            file.refusal = Some(Refusal::Refused(errno(status)));
        }
    });
    record_progress(state, id);
    proceed(state, id);
}

/// The SETATTR that completes an exclusive creation is answered.
pub(crate) fn completed(state: &mut State, id: NodeId, error: Option<Errno>) {
    data::update(state, id, |file| {
        file.completing = file.completing.saturating_sub(1);
        file.error = file.error.or(error);
    });
    proceed(state, id);
}

/// The SETATTR that follows the data is answered, or got no reply.
pub(crate) fn attr_changed(state: &mut State, id: NodeId, result: Result<Option<Errno>, CallFailure>) {
    match result {
        Ok(error) => deferred_setattr::answered(state, id, error),
        Err(_) => deferred_setattr::unanswered(state, id),
    }
    proceed(state, id);
}

/// Sends what is left, and wakes those who wait.
fn proceed(state: &mut State, id: NodeId) {
    send(state, id, Amount::FullBlocks);
    if state.dirty_bytes <= state.config.dirty_max && state.dirty_files.len() < state.config.dirty_files_max {
        let waiters = std::mem::take(&mut state.space_waiters);
        state.ready.extend(waiters);
    }
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()) else { return };
    if file.is_flushed() {
        file.is_urgent = false;
        file.verf = None;
        let waiters = std::mem::take(&mut file.flush_waiters);
        state.ready.extend(waiters);
        state.nodes.settle(id);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_base::Time;

    use super::*;
    use crate::config::Config;

    #[test]
    fn file_that_another_client_changed_is_not_cut() {
        let id = NodeId::ROOT;
        let mut state = State::new(Config::default(), nfs3::Fh(Bytes::new()), Time::ZERO);
        data::update(&mut state, id, |file| {
            file.extents.insert(0, Bytes::from_static(b"ours"));
            file.dirty.insert(0..4);
            file.cut = Some(0);
            file.writer = Some(Default::default());
        });
        keep_refused(&mut state, id, Refusal::Changed);
        data::update(&mut state, id, |file| file.dirty.insert(2..4));
        send(&mut state, id, Amount::All);
        let file = state.node(id).unwrap().file();
        assert!(file.is_flushed(), "nobody waits for it");
        assert_eq!((file.cut_sent, file.refused.bytes()), (None, 4));
    }

    #[test]
    fn bytes_that_were_cut_off_are_not_sent_again() {
        let (id, failure) = (NodeId::ROOT, CallFailure::TimedOut);
        let mut state = State::new(Config::default(), nfs3::Fh(Bytes::new()), Time::ZERO);
        let null = nfs3::Call::GetAttr(nfs3::Fh(Bytes::new()));
        let write = state.submit(Priority::WriteBack, &Default::default(), null, Purpose::StatFs);
        data::update(&mut state, id, |file| {
            file.extents.insert(0, Bytes::from_static(b"01234567"));
            file.committing.insert(0..4);
            file.writing.insert(write, 4..8);
            file.size = Some(8);
        });
        data::truncate(&mut state, id, 2);
        unanswered(&mut state, id, Some((write, 4..8)), failure);
        unanswered(&mut state, id, None, failure);
        let dirty: Vec<_> = state.node(id).unwrap().file().dirty.iter().collect();
        assert_eq!(dirty, vec![0..2]);
    }
}
