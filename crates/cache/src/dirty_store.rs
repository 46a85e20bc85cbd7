//! Keeps unsent data in the store: when to save a file, and what waits for it.
//!
//! close(2) of `back` mode waits until the file is saved, fsync(2) also for a barrier. A file that the server has
//! committed is removed from the store.

use std::ops::Range;
use std::time::Duration;

use remora_wire::fuse::Errno;

use crate::node::{FileState, NodeId};
use crate::path;
use crate::state::{Op, State, Stop};
use crate::store_job::{DirtyAttr, DirtyPart, DirtyRecord, StoreJob, StoreJobId, StoreWork};
use crate::store_queue::{JobPurpose, LogChanges};

/// How long written data waits for more before it is saved.
const SAVE_DELAY: Duration = Duration::from_millis(100);
/// Unsaved bytes of a file that are saved at once.
const SAVE_MAX: u64 = 1 << 20;
/// When saved data is made to survive a loss of power. With [`SAVE_DELAY`] it is less than 1 s.
const BARRIER_DELAY: Duration = Duration::from_millis(500);
/// When a failed job is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Jobs in flight.
const JOBS_MAX: usize = 64;

fn file(state: &mut State, id: NodeId) -> Option<&mut FileState> {
    state.nodes.get_mut(id)?.file.as_deref_mut()
}

/// The file differs from what the store has: `written` was written, or something else has changed.
pub(crate) fn changed(state: &mut State, id: NodeId, written: Option<Range<u64>>) {
    let at = state.now + SAVE_DELAY;
    // The mount answers changes of logged objects itself until the server has executed their records.
    let is_logged = state.nodes.get(id).is_some_and(|node| node.is_local || node.log_references > 0);
    let is_kept = state.acknowledges_here() || is_logged;
    let Some(file) = file(state, id) else { return };
    if !is_kept && file.kept.object.is_none() {
        return;
    }
    if let Some(range) = written {
        file.kept.unsaved.insert(range);
    }
    file.kept.is_record_old = true;
    let at = *file.kept.save_at.get_or_insert(at);
    if file.kept.unsaved.bytes() >= SAVE_MAX {
        state.store.due.insert(id);
    }
    state.timers.insert((at, id));
}

/// The timer of the file is due: saves it.
pub(crate) fn save_now(state: &mut State, id: NodeId) {
    if let Some(file) = file(state, id)
        && !file.kept.is_saved()
    {
        state.store.due.insert(id);
    }
}

/// The store gets the file before the server does, if it has an older version.
pub(crate) fn save_before_sending(state: &mut State, id: NodeId) {
    if let Some(file) = file(state, id)
        && file.kept.is_behind()
    {
        state.store.due.insert(id);
    }
}

/// Waits until the store has the file.
pub(crate) fn saved(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    let Some(file) = file(state, id) else { return Ok(()) };
    if file.kept.is_saved() {
        file.kept.waiters.remove(&op.unique);
        return Ok(());
    }
    file.kept.waiters.insert(op.unique);
    state.store.due.insert(id);
    Err(Stop::Wait)
}

/// Waits until what the store has of the file survives a loss of power.
pub(crate) fn synced(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    let Some(file) = file(state, id) else { return Ok(()) };
    if file.kept.saved <= state.store.synced {
        state.store.barrier_waiters.remove(&op.unique);
        return Ok(());
    }
    state.store.barrier_waiters.insert(op.unique);
    state.store.barrier_at = Some(state.now);
    Err(Stop::Wait)
}

/// Waits until everything that the store had when the operation began survives a loss of power.
pub(crate) fn all_synced(state: &mut State, op: &Op) -> Result<(), Stop> {
    if op.saves <= state.store.synced {
        state.store.barrier_waiters.remove(&op.unique);
        return Ok(());
    }
    state.store.barrier_waiters.insert(op.unique);
    state.store.barrier_at = Some(state.now);
    Err(Stop::Wait)
}

/// Waits until the record that the file had before its last changes has been removed for good.
pub(crate) fn forgotten(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    if is_forgotten(state, id) {
        return Ok(());
    }
    state.store.barrier_waiters.insert(op.unique);
    state.store.barrier_at = Some(state.now);
    Err(Stop::Wait)
}

fn is_forgotten(state: &State, id: NodeId) -> bool {
    let removed = state.nodes.get(id).and_then(|node| node.file.as_ref()?.kept.removed);
    removed.is_none_or(|object| state.store.is_forgotten(object))
}

/// Whether the server may get newer data of the file, as far as its former record matters: after a loss of power, that would
/// be sent again.
pub(crate) fn may_send(state: &mut State, id: NodeId) -> bool {
    let is_forgotten = is_forgotten(state, id);
    if !is_forgotten {
        state.store.unsent_until_barrier.insert(id);
        state.store.barrier_at = Some(state.now);
    }
    is_forgotten
}

/// Saves every file with unsent data, for an unmount that keeps it.
pub(crate) fn save_all(state: &mut State) {
    for id in state.dirty_files.clone() {
        let Some(file) = file(state, id) else { continue };
        if file.kept.object.is_none() {
            file.kept.unsaved = file.uncommitted();
            file.kept.is_record_old = true;
        }
        state.store.due.insert(id);
    }
    state.store.barrier_at = Some(state.now);
}

/// Whether the store has all unsent data, safe from a loss of power.
pub(crate) fn is_all_kept(state: &State) -> bool {
    let is_kept = |id: &NodeId| {
        let file = state.nodes.get(*id).and_then(|node| node.file.as_ref());
        file.is_none_or(|file| file.kept.object.is_some() && file.kept.is_saved())
    };
    state.store.is_idle() && state.store.saves == state.store.synced && state.dirty_files.iter().all(is_kept)
}

/// The next job for the store.
pub(crate) fn poll_job(state: &mut State) -> Option<StoreJob> {
    if state.store.in_flight() >= JOBS_MAX {
        return None;
    }
    // A record of the log comes before the data of its object. A file that is written again has a new object, which
    // comes after the old one has gone.
    if let Some(log) = state.store.next_log(state.now) {
        return Some(log);
    }
    if let Some(removal) = state.store.next_removal() {
        return Some(removal);
    }
    while let Some(id) = state.store.due.pop_first() {
        if let Some(job) = save(state, id) {
            return Some(job);
        }
    }
    state.store.next_barrier(state.now)
}

/// The job that saves a file. At most one a file runs.
fn save(state: &mut State, id: NodeId) -> Option<StoreJob> {
    let path = path::path(state, id, None);
    let node = state.nodes.get_mut(id)?;
    let (fh, fileid, size) = (node.fh.clone(), node.fileid, node.size());
    let before = node.attr.as_ref().filter(|_| !node.is_local).map(|cached| cached.attr.wcc());
    let file = node.file.as_deref_mut()?;
    if file.kept.saving.is_some() || file.kept.is_saved() {
        return None;
    }
    let mut uncommitted = file.uncommitted();
    // A WRITE in flight may concern bytes that were cut off since.
    let cut_off: Vec<Range<u64>> = uncommitted.iter().flat_map(|range| file.extents.missing(range)).collect();
    cut_off.into_iter().for_each(|range| uncommitted.remove(range));
    let mut unsaved = std::mem::take(&mut file.kept.unsaved);
    // What the server has committed meanwhile may not be in memory any more.
    for range in unsaved.clone().iter() {
        uncommitted.gaps(range).into_iter().for_each(|gap| unsaved.remove(gap));
    }
    let object = *file.kept.object.get_or_insert_with(|| state.store.new_object());
    let before = match &file.check {
        Some(check) => check.before,
        None => before,
    };
    let record = DirtyRecord {
        object,
        fh,
        fileid,
        path,
        size,
        ranges: uncommitted.iter().collect(),
        before,
        credential: file.writer.as_deref().cloned().unwrap_or_default(),
        cut: file.cut.into_iter().chain(file.cut_sent).min(),
        attr: file.deferred_attr().map(|(set, auth)| DirtyAttr { set, credential: (**auth).clone() }),
        refusal: file.refusal,
    };
    let part = |(offset, data)| DirtyPart { offset, data };
    let data = unsaved.iter().flat_map(|range| file.extents.parts(range)).map(part).collect();
    file.kept.is_record_old = false;
    file.kept.save_at = None;
    file.kept.saving_ranges = unsaved;
    let purpose = JobPurpose::Save { node: id };
    let job = state.store.start(StoreWork::Save { record: Box::new(record), data }, purpose);
    file.kept.saving = Some(job.id);
    Some(job)
}

/// The store has done a job, or failed.
pub(crate) fn done(state: &mut State, job: StoreJobId, result: Result<(), Errno>) {
    match (state.store.done(job), result) {
        (Some(JobPurpose::Save { node }), Ok(())) => save_done(state, node, job),
        (Some(JobPurpose::Save { node }), Err(errno)) => save_failed(state, node, job, errno),
        (Some(JobPurpose::Barrier { saves }), Ok(())) => {
            state.store.set_synced(saves);
            if state.store.saves > state.store.synced {
                state.store.barrier_at.get_or_insert(state.now + BARRIER_DELAY);
            }
            let waiters = std::mem::take(&mut state.store.barrier_waiters);
            state.ready.extend(waiters);
            let held = std::mem::take(&mut state.store.unsent_until_barrier);
            state.store.sendable.extend(held);
        }
        (Some(JobPurpose::Barrier { .. }), Err(errno)) => barrier_failed(state, errno),
        (Some(JobPurpose::Log(changes)), Ok(())) => log_done(state, *changes),
        (Some(JobPurpose::Log(changes)), Err(errno)) => log_failed(state, *changes, errno),
        (Some(JobPurpose::Remove(object)), _) => {
            state.store.is_removed(object);
            state.store.barrier_at.get_or_insert(state.now + BARRIER_DELAY);
        }
        (None, _) => {}
    }
}

/// The store has changes of the log.
fn log_done(state: &mut State, changes: LogChanges) {
    state.store.saves += 1;
    state.store.barrier_at.get_or_insert(state.now + BARRIER_DELAY);
    for step in changes.steps {
        state.finish_step(step, Ok(()));
    }
    let save = state.store.saves;
    changes.batch.put.iter().for_each(|record| state.log.is_saved(record.id, save));
    if !changes.done.is_empty() {
        state.log.done_and_saved.entry(save).or_default().extend(changes.done);
    }
}

/// The store's disk is full or fails: the changes are tried again, and their operations wait.
fn log_failed(state: &mut State, changes: LogChanges, errno: Errno) {
    let at = state.now + RETRY;
    if errno == Errno::ENOSPC || errno == Errno::EDQUOT {
        state.store.full_until = Some(at);
    }
    state.store.retry_log(changes, at);
}

fn save_done(state: &mut State, id: NodeId, job: StoreJobId) {
    state.store.saves += 1;
    state.store.barrier_at.get_or_insert(state.now + BARRIER_DELAY);
    state.store.full_until = None;
    let saves = state.store.saves;
    let Some(file) = file(state, id) else { return };
    if file.kept.saving != Some(job) {
        // The server has committed the file, and the job that removes it follows.
        return;
    }
    file.kept.saving = None;
    file.kept.saving_ranges.clear();
    file.kept.has_failed = false;
    file.kept.saved = saves;
    if file.kept.is_saved() {
        let waiters = std::mem::take(&mut file.kept.waiters);
        state.ready.extend(waiters);
    } else if !file.kept.waiters.is_empty() || file.kept.unsaved.bytes() >= SAVE_MAX {
        state.store.due.insert(id);
    }
    state.store.sendable.insert(id);
}

/// The file stays unsaved, and those who wait for it fail. It is saved again later.
fn save_failed(state: &mut State, id: NodeId, job: StoreJobId, errno: Errno) {
    let at = state.now + RETRY;
    if errno == Errno::ENOSPC || errno == Errno::EDQUOT {
        state.store.full_until = Some(at);
    }
    let Some(file) = file(state, id) else { return };
    if file.kept.saving != Some(job) {
        return;
    }
    file.kept.saving = None;
    file.kept.has_failed = true;
    std::mem::take(&mut file.kept.saving_ranges).iter().for_each(|range| file.kept.unsaved.insert(range));
    file.kept.is_record_old = true;
    file.kept.save_at = Some(at);
    let waiters = std::mem::take(&mut file.kept.waiters);
    state.timers.insert((at, id));
    fail(state, waiters, errno);
}

/// A barrier failed. The kernel reports an fsync error once and then calls the pages clean, so every file that was saved
/// since the last barrier is saved again.
fn barrier_failed(state: &mut State, errno: Errno) {
    state.store.give_up_removals();
    let synced = state.store.synced;
    let at = state.now + RETRY;
    for id in state.dirty_files.clone() {
        let Some(file) = file(state, id) else { continue };
        if file.kept.saved > synced {
            file.kept.unsaved = file.uncommitted();
            file.kept.is_record_old = true;
            file.kept.save_at = Some(at);
            state.timers.insert((at, id));
        }
    }
    let waiters = std::mem::take(&mut state.store.barrier_waiters);
    fail(state, waiters, errno);
}

fn fail(state: &mut State, waiters: impl IntoIterator<Item = u64>, errno: Errno) {
    for unique in waiters {
        if let Some(op) = state.held.get_mut(&unique) {
            op.failure = Some(errno);
        }
        state.ready.push_back(unique);
    }
}

/// Whether a write of `bytes` fails, because the store's disk has no room: what is unsaved must fit, too, so the room is
/// for all that the server does not have.
pub(crate) fn is_full(state: &State, bytes: u64) -> bool {
    let needed = state.dirty_bytes.saturating_add(bytes);
    let is_beyond = state.acknowledges_here() && state.store.room.is_some_and(|room| needed > room);
    is_beyond || state.store.full_until.is_some_and(|until| state.now < until)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_base::Time;
    use remora_wire::nfs3::Fh;

    use super::*;
    use crate::config::{Config, Writes};
    use crate::data;

    #[test]
    fn writes_fit_the_room_with_all_that_is_unsent() {
        for (writes, room, fits) in [
            (Writes::Back, Some(100), 40),
            (Writes::Back, Some(50), 0),
            (Writes::Back, None, u64::MAX),
            (Writes::Through, Some(100), u64::MAX),
        ] {
            let config = Config { writes, ..Config::default() };
            let mut state = State::new(config, Fh(Bytes::new()), Time::ZERO);
            state.store.room = room;
            data::update(&mut state, NodeId::ROOT, |file| file.dirty.insert(0..60));
            assert_eq!(
                [1, 40, 41, u64::MAX].map(|bytes| !is_full(&state, bytes)),
                [1, 40, 41, u64::MAX].map(|b| b <= fits)
            );
        }
    }
}
