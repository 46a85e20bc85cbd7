//! The queue of jobs for the store of unsent data.

use std::collections::{BTreeMap, BTreeSet};

use remora_base::Time;

use crate::change_log::record::{LogBatch, RecordId};
use crate::node::NodeId;
use crate::store_job::{ObjectId, StoreJob, StoreJobId, StoreWork};

/// What the completion of a job means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum JobPurpose {
    Save {
        node: NodeId,
    },
    Remove(ObjectId),
    Log(Box<LogChanges>),
    /// Covers that many saves.
    Barrier {
        saves: u64,
    },
}

/// A step of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StepId {
    pub(crate) unique: u64,
    pub(crate) index: usize,
}

/// Changes of the stored log, and what waits until the store has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogChanges {
    pub(crate) batch: LogBatch,
    /// Steps of operations that are done then.
    pub(crate) steps: Vec<StepId>,
    /// Records that are done, and that others wait for.
    pub(crate) done: Vec<RecordId>,
}

impl LogChanges {
    fn is_empty(&self) -> bool {
        self.batch == LogBatch::default() && self.steps.is_empty() && self.done.is_empty()
    }

    /// These changes, followed by `later` ones.
    fn followed_by(mut self, later: LogChanges) -> LogChanges {
        let LogChanges { batch, steps, done } = later;
        self.batch.put.extend(batch.put);
        self.batch.removed.extend(batch.removed);
        self.batch.bound.extend(batch.bound);
        self.batch.unbound.extend(batch.unbound);
        self.batch.conflicts.extend(batch.conflicts);
        self.batch.dismissed.extend(batch.dismissed);
        self.steps.extend(steps);
        self.done.extend(done);
        self
    }
}

/// Jobs that wait for the store or run there.
#[derive(Debug, Default)]
pub(crate) struct StoreQueue {
    next_job: u64,
    next_object: u64,
    in_flight: BTreeMap<StoreJobId, JobPurpose>,
    /// Files to be saved.
    pub(crate) due: BTreeSet<NodeId>,
    removals: BTreeSet<ObjectId>,
    /// Removed records that a loss of power may bring back, by the number of the save that removed each.
    unsynced_removals: BTreeMap<ObjectId, u64>,
    /// Files with newer data than such records have.
    pub(crate) unsent_until_barrier: BTreeSet<NodeId>,
    /// Files for which a job is done that their data waited for.
    pub(crate) sendable: BTreeSet<NodeId>,
    /// Changes of the log for the next job.
    pub(crate) log: LogChanges,
    /// When the log's changes are tried again that failed.
    log_retry_at: Option<Time>,
    /// Saves that the store has done, and those that a barrier has made durable.
    pub(crate) saves: u64,
    pub(crate) synced: u64,
    /// When the next barrier is due.
    pub(crate) barrier_at: Option<Time>,
    /// Requests that wait for a barrier.
    pub(crate) barrier_waiters: BTreeSet<u64>,
    /// Until when writes fail because the store's disk was full.
    pub(crate) full_until: Option<Time>,
    /// Bytes for which the store's disk has room, where that is known.
    pub(crate) room: Option<u64>,
}

impl StoreQueue {
    pub(crate) fn new_object(&mut self) -> ObjectId {
        let object = ObjectId(self.next_object);
        self.next_object += 1;
        object
    }

    /// An object that is in the store already.
    pub(crate) fn known_object(&mut self, object: ObjectId) {
        self.next_object = self.next_object.max(object.0.saturating_add(1));
    }

    pub(crate) fn remove(&mut self, object: ObjectId) {
        self.removals.insert(object);
        self.unsynced_removals.insert(object, u64::MAX);
    }

    /// The store has removed the record.
    pub(crate) fn is_removed(&mut self, object: ObjectId) {
        self.saves += 1;
        self.unsynced_removals.insert(object, self.saves);
    }

    /// Whether a removed record cannot come back.
    pub(crate) fn is_forgotten(&self, object: ObjectId) -> bool {
        !self.unsynced_removals.contains_key(&object)
    }

    /// A barrier has made this number of saves durable.
    pub(crate) fn set_synced(&mut self, saves: u64) {
        self.synced = self.synced.max(saves);
        self.unsynced_removals.retain(|_, save| *save > saves);
    }

    /// The store's disk fails: newer data is sent to the server, though removed records may come back.
    pub(crate) fn give_up_removals(&mut self) {
        self.unsynced_removals.clear();
        self.sendable.append(&mut self.unsent_until_barrier);
    }

    pub(crate) fn start(&mut self, work: StoreWork, purpose: JobPurpose) -> StoreJob {
        let id = StoreJobId(self.next_job);
        self.next_job += 1;
        self.in_flight.insert(id, purpose);
        StoreJob { id, work }
    }

    /// The job that forgets the next object.
    pub(crate) fn next_removal(&mut self) -> Option<StoreJob> {
        let object = self.removals.pop_first()?;
        Some(self.start(StoreWork::Remove(object), JobPurpose::Remove(object)))
    }

    /// The job that changes the log.
    pub(crate) fn next_log(&mut self, now: Time) -> Option<StoreJob> {
        if self.log.is_empty() || self.log_retry_at.is_some_and(|at| at > now) {
            return None;
        }
        self.log_retry_at = None;
        let changes = std::mem::take(&mut self.log);
        let work = StoreWork::Log(Box::new(changes.batch.clone()));
        Some(self.start(work, JobPurpose::Log(Box::new(changes))))
    }

    /// The store could not change the log: the same changes are tried again at `at`.
    pub(crate) fn retry_log(&mut self, failed: LogChanges, at: Time) {
        let later = std::mem::take(&mut self.log);
        self.log = failed.followed_by(later);
        self.log_retry_at = Some(at);
    }

    /// When changes of the log that failed are tried again.
    pub(crate) fn log_retry_at(&self) -> Option<Time> {
        self.log_retry_at
    }

    /// A barrier, if one is due and none runs.
    pub(crate) fn next_barrier(&mut self, now: Time) -> Option<StoreJob> {
        if self.has_barrier() || self.barrier_at.is_none_or(|at| at > now) {
            return None;
        }
        self.barrier_at = None;
        let saves = self.saves;
        Some(self.start(StoreWork::Barrier, JobPurpose::Barrier { saves }))
    }

    pub(crate) fn has_barrier(&self) -> bool {
        self.in_flight.values().any(|purpose| matches!(purpose, JobPurpose::Barrier { .. }))
    }

    pub(crate) fn done(&mut self, id: StoreJobId) -> Option<JobPurpose> {
        self.in_flight.remove(&id)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether nothing waits or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.due.is_empty() && self.removals.is_empty() && self.log.is_empty()
    }
}
