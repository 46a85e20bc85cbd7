//! The store of unsent data: executes the jobs of the cache core.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use remora_cache::{SavedObject, StoreJob, StoreJobId, StoreWork};
use remora_wire::fuse::Errno;

use super::data_files::{DataFiles, StoreDisk};
use super::records::{FoundRecord, RecordChange, Records, io_error};
use super::store_dir::{StoreDir, StoreError, StoreKey};
use super::store_thread::JobStore;
use crate::mount::runtime_dir::MountNote;

/// Changes at each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A locked store.
#[derive(Debug)]
pub struct DirtyStore {
    dir: StoreDir,
    records: Records,
    data: DataFiles,
}

/// A store, and what an earlier mount left in it.
#[derive(Debug)]
pub struct Opened {
    pub store: DirtyStore,
    pub objects: Vec<SavedObject>,
    /// Files whose data is not whole: after a loss of power, or because the disk is damaged.
    pub set_aside: Vec<SetAside>,
}

/// Data of a file that cannot be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAside {
    /// Path from the mounted directory.
    pub path: Vec<u8>,
    /// The file that has the data.
    pub data: PathBuf,
}

impl DirtyStore {
    /// Opens the store of `key` in `parent` for the mount of `note`.
    pub fn open(parent: &Path, key: &StoreKey, note: &MountNote) -> Result<Opened, StoreError> {
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        DirtyStore::open_at_boot(parent, key, note, boot.trim())
    }

    fn open_at_boot(parent: &Path, key: &StoreKey, note: &MountNote, boot: &str) -> Result<Opened, StoreError> {
        let dir = StoreDir::lock(parent, key, note)?;
        let path = dir.path().to_owned();
        let failed = |source| StoreError::Io { dir: path.clone(), source };
        let damaged = |error: rusqlite::Error| match io_error(&error) {
            e if e.kind() == io::ErrorKind::StorageFull => failed(e),
            e => StoreError::Damaged { dir: path.clone(), why: e.to_string() },
        };
        let records = Records::open(&path).map_err(damaged)?;
        let data = DataFiles::open(&path).map_err(failed)?;
        let is_other_boot = records.is_other_boot(boot).map_err(damaged)?;
        let found = records.all().map_err(damaged)?;
        let mut store = DirtyStore { dir, records, data };
        let (mut objects, mut set_aside) = (Vec::new(), Vec::new());
        for record in found {
            match store.load(&record, is_other_boot) {
                Some(object) => objects.push(object),
                None => set_aside.push(store.set_aside(&record).map_err(failed)?),
            }
        }
        let known = objects.iter().map(|saved| saved.record.object).collect::<BTreeSet<_>>();
        store.data.retain(&known).map_err(failed)?;
        store.records.set_boot(boot).map_err(damaged)?;
        Ok(Opened { store, objects, set_aside })
    }

    /// The object of a record, if its data is whole. After a loss of power what is younger than the last barrier does not
    /// count: a record may have reached the disk before its data.
    fn load(&self, found: &FoundRecord, is_other_boot: bool) -> Option<SavedObject> {
        let record = if is_other_boot { found.synced.clone() } else { found.record.clone() }?;
        let data = self.data.read(record.object, &record.ranges).ok()?;
        Some(SavedObject { record, data })
    }

    fn set_aside(&mut self, found: &FoundRecord) -> io::Result<SetAside> {
        let dir = self.dir.path().join("set-aside");
        fs::create_dir_all(&dir)?;
        let data = dir.join(found.object.0.to_string());
        match fs::rename(self.data.path(found.object), &data) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.records.change(&[RecordChange::Remove(found.object)]).map_err(|e| io_error(&e))?;
        Ok(SetAside { path: found.path.clone(), data })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(in crate::mount) fn disk(&self) -> io::Result<StoreDisk> {
        self.data.disk()
    }

    /// Saves and removals in one transaction.
    fn change(&mut self, jobs: Vec<StoreJob>) -> Vec<(StoreJobId, Result<(), Errno>)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let written: Vec<io::Result<()>> = jobs.iter().map(|job| self.write(job)).collect();
        let changes =
            jobs.iter().zip(&written).filter(|(_, written)| written.is_ok()).filter_map(|(job, _)| record(job));
        let committed = self.records.change(&changes.collect::<Vec<_>>()).map_err(|e| errno(io_error(&e)));
        let results = jobs.iter().zip(written).map(|(job, written)| (job.id, written.map_err(errno).and(committed)));
        let results = results.collect();
        if committed.is_ok() {
            for job in &jobs {
                if let StoreWork::Remove(object) = job.work {
                    self.data.remove(object);
                }
            }
        }
        results
    }

    fn write(&mut self, job: &StoreJob) -> io::Result<()> {
        let StoreWork::Save { record, data } = &job.work else { return Ok(()) };
        self.data.write(record.object, data)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.data.sync()?;
        self.records.sync().map_err(|e| io_error(&e))?;
        self.data.remove_old();
        Ok(())
    }

    /// Removes the store with all that it has.
    pub(in crate::mount) fn remove(self) -> io::Result<()> {
        drop(self.records);
        self.dir.remove()
    }

    /// Closes the store, and removes it if it has nothing.
    pub(in crate::mount) fn close(self) -> io::Result<()> {
        let is_empty = self.records.len().is_ok_and(|len| len == 0) && !self.dir.path().join("set-aside").exists();
        drop(self.records);
        if is_empty { self.dir.remove() } else { Ok(()) }
    }
}

impl JobStore for DirtyStore {
    type Job = StoreJob;
    type Done = (StoreJobId, Result<(), Errno>);

    fn execute(&mut self, jobs: Vec<StoreJob>) -> Vec<(StoreJobId, Result<(), Errno>)> {
        let mut results = Vec::with_capacity(jobs.len());
        let mut batch = Vec::new();
        for job in jobs {
            if job.work == StoreWork::Barrier {
                results.extend(self.change(std::mem::take(&mut batch)));
                results.push((job.id, self.sync().map_err(errno)));
            } else {
                batch.push(job);
            }
        }
        results.extend(self.change(batch));
        results
    }
}

fn record(job: &StoreJob) -> Option<RecordChange<'_>> {
    match &job.work {
        StoreWork::Save { record, .. } => Some(RecordChange::Put(record)),
        StoreWork::Remove(object) => Some(RecordChange::Remove(*object)),
        StoreWork::Barrier | StoreWork::Log(_) => None,
    }
}

fn errno(error: io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::QuotaExceeded => Errno::EDQUOT,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use remora_cache::{DirtyPart, DirtyRecord, ObjectId};
    use remora_wire::nfs3::{Fh, NfsTime, SetAttr, SetTime, WccAttr};
    use remora_wire::rpc::AuthUnix;

    use super::*;
    use crate::client::Target;

    fn key() -> StoreKey {
        StoreKey::of(&Target::parse("nfs://nas/srv").unwrap())
    }

    fn note(pid: u32) -> MountNote {
        MountNote { url: "nfs://nas/srv".into(), dir: "/home/a/nas".into(), pid }
    }

    fn save(id: u64, object: u64, data: &'static [u8]) -> StoreJob {
        let time = NfsTime { secs: 5, nanos: 6 };
        let credential = AuthUnix { uid: 7, gids: vec![8, 9], ..AuthUnix::default() };
        let set = SetAttr { mode: Some(0o600), mtime: SetTime::To(time), ..SetAttr::NONE };
        let record = DirtyRecord {
            object: ObjectId(object),
            fh: Fh(b"handle".as_slice().into()),
            fileid: 3,
            path: b"/a\xff".to_vec(),
            size: 10 + data.len() as u64,
            cut: Some(5),
            ranges: std::iter::once(10..10 + data.len() as u64).collect(),
            before: Some(WccAttr { size: 4, mtime: time, ctime: time }),
            credential: credential.clone(),
            attr: Some(remora_cache::DirtyAttr { set, credential }),
            refusal: Some(remora_cache::Refusal::Refused(Errno::EACCES)),
        };
        let data = vec![DirtyPart { offset: 10, data: data.into() }];
        StoreJob { id: StoreJobId(id), work: StoreWork::Save { record: Box::new(record), data } }
    }

    fn job(id: u64, work: StoreWork) -> StoreJob {
        StoreJob { id: StoreJobId(id), work }
    }

    fn run(store: &mut DirtyStore, jobs: Vec<StoreJob>) {
        let count = jobs.len();
        let results = store.execute(jobs);
        assert_eq!(results.len(), count);
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    }

    fn saved(job: &StoreJob) -> SavedObject {
        let StoreWork::Save { record, data } = &job.work else { panic!("{job:?} saves nothing") };
        SavedObject { record: (**record).clone(), data: data.clone() }
    }

    #[test]
    fn saved_object_is_found_after_the_end_of_the_process() {
        let top = tempfile::tempdir().unwrap();
        let Opened { mut store, objects, .. } = DirtyStore::open(top.path(), &key(), &note(1)).unwrap();
        assert_eq!(objects, []);
        run(&mut store, vec![save(0, 1, b"one"), save(1, 2, b"two"), job(2, StoreWork::Remove(ObjectId(1)))]);
        // As after a kill: nothing is closed in good order.
        drop(store);
        let Opened { store, objects, set_aside } = DirtyStore::open(top.path(), &key(), &note(2)).unwrap();
        assert_eq!((objects, set_aside), (vec![saved(&save(1, 2, b"two"))], vec![]));
        let modes = fs::read_dir(store.path().join("data")).unwrap().map(|entry| {
            std::os::unix::fs::PermissionsExt::mode(&entry.unwrap().metadata().unwrap().permissions()) & 0o777
        });
        assert_eq!(modes.collect::<Vec<_>>(), [0o600], "one file is left, for its owner alone");
        store.close().unwrap();
        let kept = super::super::store_dir::kept_exports(top.path()).unwrap();
        assert_eq!(kept.iter().map(|kept| (&kept.note, kept.files)).collect::<Vec<_>>(), [(&note(2), Some(1))]);
    }

    #[test]
    fn store_in_use_names_the_mount_that_has_it() {
        let top = tempfile::tempdir().unwrap();
        let first = DirtyStore::open(top.path(), &key(), &note(11)).unwrap();
        let why = DirtyStore::open(top.path(), &key(), &note(12)).unwrap_err().to_string();
        assert!(why.contains("/home/a/nas") && why.contains("11"), "{why}");
        let path = first.store.path().to_owned();
        first.store.close().unwrap();
        assert!(!path.exists(), "nothing unsent leaves nothing");
        let inside = MountNote { dir: fs::canonicalize(top.path()).unwrap(), ..note(13) };
        let error = DirtyStore::open(top.path(), &key(), &inside).unwrap_err();
        assert!(matches!(error, StoreError::InsideMount(_)), "{error}");
    }

    #[test]
    fn loss_of_power_leaves_what_a_barrier_covered() {
        let top = tempfile::tempdir().unwrap();
        let open = |boot| DirtyStore::open_at_boot(top.path(), &key(), &note(1), boot).unwrap();
        let mut store = open("first").store;
        run(
            &mut store,
            vec![save(0, 1, b"one"), job(1, StoreWork::Barrier), save(2, 1, b"longer"), save(3, 2, b"two")],
        );
        drop(store);
        let Opened { objects, set_aside, .. } = open("second");
        let found = objects.iter().map(|saved| (saved.record.object.0, saved.record.ranges[0].clone()));
        assert_eq!(found.collect::<Vec<_>>(), [(1, 10..13)], "the record of the barrier");
        assert_eq!(
            set_aside.iter().map(|aside| fs::read(&aside.data).unwrap()[10..].to_vec()).collect::<Vec<_>>(),
            [b"two"]
        );
    }

    #[test]
    fn damaged_store_is_left_alone() {
        let top = tempfile::tempdir().unwrap();
        let mut store = DirtyStore::open(top.path(), &key(), &note(1)).unwrap().store;
        run(&mut store, vec![save(0, 1, b"one")]);
        let path = store.path().to_owned();
        drop(store);
        fs::write(path.join("records.sqlite"), [b'x'; 8192]).unwrap();
        let error = DirtyStore::open(top.path(), &key(), &note(1)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(path.join("data/1").exists());
    }
}
