//! The disk cache of a machine with a mount: executes the cache's jobs, forgets objects, and loses unsynced changes at a
//! loss of power.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use remora_base::Rng;
use remora_cache::{DiskDone, DiskJob, DiskJobId, DiskObject, DiskPart, DiskPin, DiskRecord, DiskWork};
use remora_wire::nfs3::Fh;

/// Faults of a disk cache, by their probabilities.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskFaults {
    /// A job is followed by a sync.
    pub(super) syncs: f64,
    /// A job is followed by the eviction of an object.
    pub(super) evictions: f64,
    /// An extent is lost with the power: its checksum does not match then.
    pub(super) lost_extents: f64,
    /// A job takes seconds.
    pub(super) stuck: f64,
    /// A job fails, and the disk cache with it.
    pub(super) broken: f64,
}

impl DiskFaults {
    pub(super) const USUAL: DiskFaults =
        DiskFaults { syncs: 0.05, evictions: 0.02, lost_extents: 0.3, stuck: 0.002, broken: 0.0005 };
    /// Nothing is lost.
    pub(super) const NONE: DiskFaults =
        DiskFaults { syncs: 1.0, evictions: 0.0, lost_extents: 0.0, stuck: 0.0, broken: 0.0 };
}

#[derive(Clone, Debug, Default)]
struct Object {
    record: Option<DiskRecord>,
    extents: BTreeMap<u64, Bytes>,
}

type Objects = BTreeMap<Fh, Object>;

/// A disk cache with jobs that wait.
#[derive(Debug, Default)]
pub(super) struct DiskCache {
    now: Objects,
    synced: Objects,
    /// Jobs since the last sync.
    unsynced: Vec<DiskJob>,
    queue: VecDeque<DiskJob>,
}

fn end(start: u64, bytes: &Bytes) -> u64 {
    start + bytes.len() as u64
}

/// What lies within `kept` of an extent.
fn part(start: u64, bytes: &Bytes, kept: &Range<u64>) -> Option<(u64, Bytes)> {
    let (from, to) = (kept.start.max(start), kept.end.min(end(start, bytes)));
    (from < to).then(|| (from, bytes.slice((from - start) as usize..(to - start) as usize)))
}

fn perform(objects: &mut Objects, fh: &Fh, work: DiskWork) -> DiskDone {
    match work {
        DiskWork::Save { record, kept, data } => {
            let object = objects.entry(fh.clone()).or_default();
            object.record = record.map(|record| *record);
            let parts = object
                .extents
                .iter()
                .flat_map(|(start, bytes)| kept.iter().filter_map(move |kept| part(*start, bytes, kept)));
            object.extents = parts.collect();
            object.extents.extend(data.into_iter().map(|part| (part.offset, part.data)));
            DiskDone::Changed
        }
        DiskWork::Load => {
            let found = objects.get(fh).and_then(|object| Some((object.record.clone()?, &object.extents)));
            DiskDone::Loaded(found.map(|(record, extents)| {
                let ranges = extents.iter().map(|(start, bytes)| *start..end(*start, bytes)).collect();
                Box::new(DiskObject { record, ranges })
            }))
        }
        DiskWork::Read(range) => {
            let extents = objects.get(fh).into_iter().flat_map(|object| &object.extents);
            let found = extents.filter(|(start, bytes)| **start < range.end && end(**start, bytes) > range.start);
            DiskDone::Read(found.map(|(offset, data)| DiskPart { offset: *offset, data: data.clone() }).collect())
        }
        DiskWork::Remove => {
            objects.remove(fh);
            DiskDone::Changed
        }
        DiskWork::Pin(_) => {
            let found = objects.get(fh).filter(|object| object.record.is_some());
            DiskDone::Pinned(found.map(|Object { extents, .. }| {
                let ranges: Vec<_> = extents.iter().map(|(start, bytes)| *start..end(*start, bytes)).collect();
                let bytes = ranges.iter().map(|range| range.end - range.start).sum();
                DiskPin { ranges, bytes }
            }))
        }
        // This disk evicts at random.
        DiskWork::Unpin { .. } => DiskDone::Changed,
    }
}

impl DiskCache {
    pub(super) fn push(&mut self, job: DiskJob) {
        self.queue.push_back(job);
    }

    /// Executes the next job.
    pub(super) fn execute(&mut self, rng: &mut Rng, faults: DiskFaults) -> Option<(DiskJobId, DiskDone)> {
        let job = self.queue.pop_front()?;
        let done = perform(&mut self.now, &job.fh, job.work.clone());
        let id = job.id;
        self.unsynced.push(job);
        if rng.chance(faults.syncs) {
            self.synced = self.now.clone();
            self.unsynced.clear();
        }
        if rng.chance(faults.evictions) {
            let victim = self.now.keys().nth(rng.below(self.now.len().max(1) as u64) as usize).cloned();
            victim.into_iter().for_each(|fh| _ = self.now.remove(&fh));
        }
        let done = if rng.chance(faults.broken) { DiskDone::Failed } else { done };
        Some((id, done))
    }

    /// The process ends, or the machine loses power: then the latest changes are lost, and some of the data.
    pub(super) fn crash(&mut self, rng: &mut Rng, loses_power: bool, faults: DiskFaults) {
        self.queue.clear();
        let unsynced = std::mem::take(&mut self.unsynced);
        if loses_power {
            let kept = rng.below(unsynced.len() as u64 + 1) as usize;
            for job in unsynced.into_iter().take(kept) {
                perform(&mut self.synced, &job.fh, job.work);
            }
            let objects = self.synced.values_mut();
            objects.for_each(|object| object.extents.retain(|_, _| !rng.chance(faults.lost_extents)));
            self.now = self.synced.clone();
        }
        self.now.retain(|_, object| object.record.is_some());
        self.synced = self.now.clone();
    }
}
