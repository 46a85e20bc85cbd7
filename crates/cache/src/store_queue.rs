//! The queue of jobs for the store of unsent data.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use remora_base::Time;

use crate::node::NodeId;
use crate::store_job::{ObjectId, StoreJob, StoreJobId, StoreWork};

/// What the completion of a job means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum JobPurpose {
    Save {
        node: NodeId,
        object: ObjectId,
        ranges: Vec<Range<u64>>,
    },
    Remove,
    /// Covers that many saves.
    Barrier {
        saves: u64,
    },
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
        Some(self.start(StoreWork::Remove(object), JobPurpose::Remove))
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
        self.in_flight.is_empty() && self.due.is_empty() && self.removals.is_empty()
    }
}
