//! The disk of a machine with a mount: executes the store jobs of the cache, and loses unsynced writes at a loss of
//! power.

use std::collections::{BTreeMap, VecDeque};

use remora_base::Rng;
use remora_cache::{
    Binding, Conflict, ConflictId, DirtyPart, DirtyRecord, LogBatch, LogRecord, ObjectId, RecordId, SavedLog,
    SavedObject, StoreJob, StoreJobId, StoreWork,
};
use remora_wire::fuse::Errno;
use remora_wire::nfs3::Fh;

/// Contents of the files and records.
#[derive(Clone, Debug, Default)]
struct Contents {
    records: BTreeMap<ObjectId, DirtyRecord>,
    files: BTreeMap<ObjectId, Vec<u8>>,
    log: Log,
}

/// The stored change log.
#[derive(Clone, Debug, Default)]
struct Log {
    records: BTreeMap<RecordId, LogRecord>,
    bindings: BTreeMap<Fh, Binding>,
    conflicts: BTreeMap<ConflictId, Conflict>,
}

impl Log {
    fn apply(&mut self, batch: LogBatch) {
        let LogBatch { put, removed, bound, unbound, conflicts, dismissed } = batch;
        self.records.extend(put.into_iter().map(|record| (record.id, record)));
        self.records.retain(|id, _| !removed.contains(id));
        self.bindings.extend(bound.into_iter().map(|binding| (binding.provisional.clone(), binding)));
        self.bindings.retain(|provisional, _| !unbound.contains(provisional));
        self.conflicts.extend(conflicts.into_iter().map(|conflict| (conflict.id, conflict)));
        self.conflicts.retain(|id, _| !dismissed.contains(id));
    }

    fn saved(&self) -> SavedLog {
        SavedLog {
            records: self.records.values().cloned().collect(),
            bindings: self.bindings.values().cloned().collect(),
            conflicts: self.conflicts.values().cloned().collect(),
        }
    }
}

/// A disk with jobs that wait.
#[derive(Debug, Default)]
pub(super) struct Disk {
    now: Contents,
    /// As of the last barrier.
    synced: Contents,
    /// Writes since then.
    unsynced: Vec<(ObjectId, DirtyPart)>,
    queue: VecDeque<StoreJob>,
}

impl Contents {
    fn write(&mut self, object: ObjectId, part: &DirtyPart) {
        let file = self.files.entry(object).or_default();
        let (start, end) = (part.offset as usize, part.offset as usize + part.data.len());
        file.resize(file.len().max(end), 0);
        file[start..end].copy_from_slice(&part.data);
    }

    /// The objects whose bytes are there.
    fn objects(&self) -> Vec<SavedObject> {
        let saved = |(object, record): (&ObjectId, &DirtyRecord)| {
            let file = self.files.get(object).map_or(&[][..], Vec::as_slice);
            let part = |range: &std::ops::Range<u64>| {
                let data = file.get(range.start as usize..range.end as usize)?.to_vec().into();
                Some(DirtyPart { offset: range.start, data })
            };
            let data = record.ranges.iter().map(part).collect::<Option<_>>()?;
            Some(SavedObject { record: record.clone(), data })
        };
        self.records.iter().filter_map(saved).collect()
    }
}

impl Disk {
    /// Objects that a restart would find.
    pub(super) fn objects(&self) -> Vec<SavedObject> {
        self.now.objects()
    }

    pub(super) fn push(&mut self, job: StoreJob) {
        self.queue.push_back(job);
    }

    /// Executes the next job.
    pub(super) fn execute(&mut self) -> Option<(StoreJobId, Result<(), Errno>)> {
        let job = self.queue.pop_front()?;
        match job.work {
            StoreWork::Save { record, data } => {
                for part in data {
                    self.now.write(record.object, &part);
                    self.unsynced.push((record.object, part));
                }
                self.now.records.insert(record.object, *record);
            }
            StoreWork::Remove(object) => drop(self.now.records.remove(&object)),
            StoreWork::Log(batch) => self.now.log.apply(*batch),
            StoreWork::Barrier => {
                let records = &self.now.records;
                self.now.files.retain(|object, _| records.contains_key(object));
                self.synced = self.now.clone();
                self.unsynced.clear();
            }
        }
        Some((job.id, Ok(())))
    }

    /// The process ends, or the machine loses power. Returns what is found afterwards.
    ///
    /// A kill may come within a job: after some of its writes, before its record; a batch of the log is all or nothing. With
    /// the power each write since the last barrier may be lost, and the records of that barrier count.
    pub(super) fn crash(&mut self, rng: &mut Rng, loses_power: bool) -> (SavedLog, Vec<SavedObject>) {
        if loses_power {
            let unsynced = std::mem::take(&mut self.unsynced);
            let kept = unsynced.into_iter().filter(|_| rng.chance(0.5));
            kept.for_each(|(object, part)| self.synced.write(object, &part));
            self.now = self.synced.clone();
        } else {
            match self.queue.pop_front().map(|job| job.work) {
                Some(StoreWork::Save { record, data }) => {
                    let kept = data.iter().filter(|_| rng.chance(0.5));
                    kept.for_each(|part| self.now.write(record.object, part));
                }
                Some(StoreWork::Log(batch)) if rng.chance(0.5) => self.now.log.apply(*batch),
                _ => {}
            }
        }
        self.queue.clear();
        let records = &self.now.records;
        self.now.files.retain(|object, _| records.contains_key(object));
        (self.now.log.saved(), self.now.objects())
    }
}
