//! The queue of jobs for the disk cache.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use remora_base::Time;
use remora_wire::nfs3::Fh;

use crate::disk::job::{DiskJob, DiskJobId, DiskWork};
use crate::node::NodeId;

/// Jobs in flight, with those that were given up.
const JOBS_MAX: u64 = 256;
/// Saves in flight. Data that is evicted from memory meanwhile is not saved.
const SAVES_MAX: usize = 8;
/// After this time the server is asked instead of the disk.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Jobs that wait for the disk cache or run there.
#[derive(Debug, Default)]
pub(crate) struct DiskQueue {
    pub(crate) is_on: bool,
    /// Jobs that began, and those of them that have ended.
    began: u64,
    pub(crate) ended: u64,
    pub(crate) jobs: VecDeque<DiskJob>,
    pub(crate) reads: BTreeMap<DiskJobId, DiskRead>,
    pub(crate) saves: BTreeMap<DiskJobId, NodeId>,
    /// When objects are saved.
    pub(crate) due: BTreeSet<(Time, NodeId)>,
    /// Objects whose attributes came after their records.
    pub(crate) confirmed: Vec<NodeId>,
}

/// A load, or a read of a range, in flight.
#[derive(Debug)]
pub(crate) struct DiskRead {
    pub(crate) node: NodeId,
    pub(crate) range: Option<Range<u64>>,
    started: Time,
    pub(crate) waiters: BTreeSet<u64>,
}

impl DiskQueue {
    pub(crate) fn new(is_on: bool) -> DiskQueue {
        DiskQueue { is_on, ..DiskQueue::default() }
    }

    pub(crate) fn job(&mut self, fh: Fh, work: DiskWork) -> DiskJob {
        self.began += 1;
        DiskJob { id: DiskJobId(self.began), fh, work }
    }

    /// Queues a load, or a read of a range.
    pub(crate) fn read(&mut self, node: NodeId, fh: Fh, range: Option<Range<u64>>, now: Time) {
        let work = range.clone().map_or(DiskWork::Load, DiskWork::Read);
        let job = self.job(fh, work);
        self.reads.insert(job.id, DiskRead { node, range, started: now, waiters: BTreeSet::new() });
        self.jobs.push_back(job);
    }

    /// Whether the disk cache takes more loads, reads and removals.
    pub(crate) fn has_room(&self) -> bool {
        self.is_on && self.began - self.ended < JOBS_MAX
    }

    pub(crate) fn has_room_for_save(&self) -> bool {
        self.has_room() && self.saves.len() < SAVES_MAX
    }

    pub(crate) fn reads_of(&mut self, id: NodeId) -> impl Iterator<Item = &mut DiskRead> {
        self.reads.values_mut().filter(move |read| read.node == id)
    }

    /// A load or read that has waited for too long.
    pub(crate) fn pop_late(&mut self, now: Time) -> Option<DiskRead> {
        let first = self.reads.first_entry()?;
        if first.get().started + WAIT_MAX <= now { Some(first.remove()) } else { None }
    }

    /// When a save is due, or a read has waited for too long.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let due = self.due.first().map(|(at, _)| *at).filter(|_| self.has_room_for_save());
        let read = self.reads.first_key_value().map(|(_, read)| read.started + WAIT_MAX);
        due.into_iter().chain(read).min()
    }
}
