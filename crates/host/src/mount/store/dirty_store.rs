//! The store of unsent data: executes the jobs of the cache core.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use remora_cache::{SavedLog, SavedObject, StoreJob, StoreJobId, StoreWork};
use remora_wire::fuse::Errno;

use super::data_files::{DataFiles, StoreDisk};
use super::records::{DamagedRow, Form, FoundObject, FoundState, KeptCounts, RecordChange, Records, RecordsError};
use super::records::{VERSION, io_error};
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
    pub log: SavedLog,
    /// Files whose data is not whole: after a loss of power, or because the disk is damaged.
    pub set_aside: Vec<SetAside>,
    /// Rows of the log that cannot be read, with their bytes.
    pub damaged: Vec<SetAside>,
}

/// What cannot be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAside {
    /// Path from the mounted directory, or what the data is.
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
        let records = Records::open(&path).map_err(|error| match error {
            RecordsError::Newer(version) => StoreError::Newer { dir: path.clone(), version, known: VERSION },
            RecordsError::Sql(error) => damaged(error),
        })?;
        let data = DataFiles::open(&path).map_err(failed)?;
        let form = if records.is_other_boot(boot).map_err(damaged)? { Form::Synced } else { Form::Present };
        let found = records.objects(form).map_err(damaged)?;
        let found_log = records.log(form).map_err(damaged)?;
        let mut store = DirtyStore { dir, records, data };
        let mut known = BTreeSet::new();
        let (mut objects, mut set_aside) = (Vec::new(), Vec::new());
        for object in found {
            known.insert(object.object);
            if let FoundState::Removed = object.state {
                store.data.remove(object.object);
                continue;
            }
            match store.load(&object) {
                Some(object) => objects.push(object),
                None => set_aside.push(store.set_aside_object(&object).map_err(failed)?),
            }
        }
        store.data.retain(&known).map_err(failed)?;
        let damaged_rows = found_log.damaged.iter().map(|row| store.set_aside_row(row));
        let damaged_rows = damaged_rows.collect::<io::Result<_>>().map_err(failed)?;
        store.records.begin_boot(boot).map_err(damaged)?;
        Ok(Opened { store, objects, log: found_log.log, set_aside, damaged: damaged_rows })
    }

    /// The object of a record, if its data is whole.
    fn load(&mut self, found: &FoundObject) -> Option<SavedObject> {
        let record = match &found.state {
            FoundState::Unsynced(record) => {
                self.data.set_unsynced(found.object);
                record
            }
            FoundState::Synced(record) => record,
            FoundState::Lost | FoundState::Removed => return None,
        };
        let data = self.data.read(record.object, &record.ranges).ok()?;
        Some(SavedObject { record: (**record).clone(), data })
    }

    fn set_aside_object(&mut self, found: &FoundObject) -> io::Result<SetAside> {
        let data = self.set_aside_dir()?.join(found.object.0.to_string());
        match fs::rename(self.data.path(found.object), &data) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.records.drop_object(found.object).map_err(|e| io_error(&e))?;
        Ok(SetAside { path: found.path.clone(), data })
    }

    fn set_aside_row(&mut self, row: &DamagedRow) -> io::Result<SetAside> {
        let data = self.set_aside_dir()?.join(&row.file);
        fs::write(&data, &row.bytes)?;
        self.records.drop_row(row).map_err(|e| io_error(&e))?;
        Ok(SetAside { path: row.what.clone().into_bytes(), data })
    }

    /// Where what cannot be sent is kept.
    fn set_aside_dir(&self) -> io::Result<PathBuf> {
        let dir = self.dir.path().join("set-aside");
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(in crate::mount) fn disk(&self) -> io::Result<StoreDisk> {
        self.data.disk()
    }

    /// What it keeps.
    pub fn counts(&self) -> io::Result<KeptCounts> {
        self.records.counts().map_err(|e| io_error(&e))
    }

    /// Saves, removals and changes of the log in one transaction.
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
        let is_empty =
            self.records.counts().is_ok_and(KeptCounts::is_empty) && !self.dir.path().join("set-aside").exists();
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
        StoreWork::Log(batch) => Some(RecordChange::Log(batch)),
        StoreWork::Barrier => None,
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
    use remora_cache::{DirtyPart, DirtyRecord, LogBatch, LogRecord, ObjectId, RecordId};
    use remora_wire::nfs3::{Fh, NfsTime, SetAttr, SetTime, WccAttr};
    use remora_wire::rpc::AuthUnix;

    use super::super::log_codec::samples;
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
        let Opened { store, objects, set_aside, .. } = DirtyStore::open(top.path(), &key(), &note(2)).unwrap();
        assert_eq!((objects, set_aside), (vec![saved(&save(1, 2, b"two"))], vec![]));
        let modes = fs::read_dir(store.path().join("data")).unwrap().map(|entry| {
            std::os::unix::fs::PermissionsExt::mode(&entry.unwrap().metadata().unwrap().permissions()) & 0o777
        });
        assert_eq!(modes.collect::<Vec<_>>(), [0o600], "one file is left, for its owner alone");
        store.close().unwrap();
        let kept = super::super::store_dir::kept_exports(top.path()).unwrap();
        let counts = KeptCounts { files: 1, ..KeptCounts::default() };
        assert_eq!(kept.iter().map(|kept| (&kept.note, kept.counts)).collect::<Vec<_>>(), [(&note(2), Some(counts))]);
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

    fn log(id: u64, batch: LogBatch) -> StoreJob {
        job(id, StoreWork::Log(Box::new(batch)))
    }

    /// A batch with every kind of record.
    fn full_batch() -> LogBatch {
        LogBatch {
            put: samples::records(),
            bound: vec![samples::binding()],
            conflicts: samples::conflicts(),
            ..LogBatch::default()
        }
    }

    fn full_log() -> SavedLog {
        let LogBatch { put, bound, conflicts, .. } = full_batch();
        SavedLog { records: put, bindings: bound, conflicts }
    }

    #[test]
    fn log_is_found_after_the_end_of_the_process() {
        let top = tempfile::tempdir().unwrap();
        let mut store = DirtyStore::open(top.path(), &key(), &note(1)).unwrap().store;
        let young = LogRecord { refusal: Some(1), ..samples::records().remove(0) };
        let batch = LogBatch { put: vec![young], ..LogBatch::default() };
        run(&mut store, vec![log(0, batch), save(1, 1, b"one"), log(2, full_batch())]);
        drop(store);
        let Opened { mut store, log: found, .. } = DirtyStore::open(top.path(), &key(), &note(1)).unwrap();
        assert_eq!(found, full_log());
        let (records, conflicts) = (found.records.len() as u64, found.conflicts.len() as u64);
        assert_eq!(store.counts().unwrap(), KeptCounts { files: 1, changes: records, conflicts });
        let removal = LogBatch {
            removed: found.records.iter().map(|record| record.id).collect(),
            unbound: vec![samples::binding().provisional],
            dismissed: found.conflicts.iter().skip(1).map(|conflict| conflict.id).collect(),
            ..LogBatch::default()
        };
        run(&mut store, vec![job(0, StoreWork::Remove(ObjectId(1))), log(1, removal)]);
        drop(store);
        let Opened { mut store, log: found, objects, .. } = DirtyStore::open(top.path(), &key(), &note(1)).unwrap();
        assert_eq!((objects, found.records, found.bindings), (vec![], vec![], vec![]));
        assert_eq!(found.conflicts, samples::conflicts()[..1]);
        let path = store.path().to_owned();
        let last = LogBatch { dismissed: vec![found.conflicts[0].id], ..LogBatch::default() };
        run(&mut store, vec![job(0, StoreWork::Barrier), log(1, last)]);
        assert_eq!(fs::read_dir(path.join("data")).unwrap().count(), 0);
        store.close().unwrap();
        assert!(!path.exists(), "nothing is kept");
    }

    #[test]
    fn conflict_alone_keeps_the_store() {
        let top = tempfile::tempdir().unwrap();
        let mut store = DirtyStore::open(top.path(), &key(), &note(1)).unwrap().store;
        run(&mut store, vec![log(0, LogBatch { conflicts: samples::conflicts(), ..LogBatch::default() })]);
        store.close().unwrap();
        let kept = super::super::store_dir::kept_exports(top.path()).unwrap();
        let counts = KeptCounts { conflicts: samples::conflicts().len() as u64, ..KeptCounts::default() };
        assert_eq!(kept[0].counts, Some(counts));
        assert!(super::super::store_dir::has_store(top.path(), &key()));
    }

    #[test]
    fn loss_of_power_undoes_the_log_to_the_barrier() {
        let top = tempfile::tempdir().unwrap();
        let open = |boot| DirtyStore::open_at_boot(top.path(), &key(), &note(1), boot).unwrap();
        let mut store = open("first").store;
        run(&mut store, vec![save(0, 1, b"one"), log(1, full_batch()), job(2, StoreWork::Barrier)]);
        let changed = LogRecord { refusal: Some(99), ..samples::records().remove(1) };
        let young = LogRecord { id: RecordId(1000), ..changed.clone() };
        let batch = LogBatch {
            put: vec![changed, young],
            removed: vec![samples::records()[0].id],
            unbound: vec![samples::binding().provisional],
            dismissed: vec![samples::conflicts()[0].id],
            ..LogBatch::default()
        };
        run(&mut store, vec![log(0, batch), job(1, StoreWork::Remove(ObjectId(1)))]);
        drop(store);
        // The same in the same run of the machine, then after a loss of power, and from then on.
        let Opened { store, log: found, objects, .. } = open("first");
        assert_eq!((found.records.len(), objects.len()), (samples::records().len(), 0));
        assert!(found.bindings.is_empty() && found.records.iter().any(|record| record.id == RecordId(1000)));
        drop(store);
        for _ in 0..2 {
            let Opened { store, log: found, objects, .. } = open("second");
            assert_eq!(found, full_log());
            assert_eq!(objects, [saved(&save(0, 1, b"one"))], "its removal is younger, too");
            drop(store);
        }
    }

    #[test]
    fn store_of_an_older_version_is_taken_over() {
        let top = tempfile::tempdir().unwrap();
        let mut store = DirtyStore::open(top.path(), &key(), &note(1)).unwrap().store;
        run(&mut store, vec![save(0, 1, b"one")]);
        let path = store.path().join("records.sqlite");
        drop(store);
        let alter = |commands: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(commands).unwrap();
        alter(
            "CREATE TABLE old (object INTEGER PRIMARY KEY, path BLOB NOT NULL, size INTEGER NOT NULL,
                record BLOB NOT NULL, synced BLOB);
             INSERT INTO old SELECT object, path, 13, record, synced FROM objects; DROP TABLE objects;
             ALTER TABLE old RENAME TO objects;
             DROP TABLE log; DROP TABLE bindings; DROP TABLE conflicts; PRAGMA user_version = 1;",
        );
        let Opened { mut store, objects, .. } = DirtyStore::open(top.path(), &key(), &note(1)).unwrap();
        assert_eq!(objects, [saved(&save(0, 1, b"one"))]);
        run(&mut store, vec![log(0, full_batch()), job(1, StoreWork::Barrier)]);
        drop(store);
        let Opened { store, log: found, .. } = DirtyStore::open(top.path(), &key(), &note(1)).unwrap();
        assert_eq!(found, full_log());
        drop(store);
        alter("PRAGMA user_version = 3;");
        let error = DirtyStore::open(top.path(), &key(), &note(1)).unwrap_err();
        assert!(matches!(error, StoreError::Newer { version: 3, .. }), "{error}");
        assert!(error.to_string().contains("newer version of remora"), "{error}");
    }

    #[test]
    fn unreadable_row_of_the_log_is_set_aside_and_listed() {
        let top = tempfile::tempdir().unwrap();
        let mut store = DirtyStore::open(top.path(), &key(), &note(1)).unwrap().store;
        run(&mut store, vec![log(0, full_batch())]);
        let path = store.path().join("records.sqlite");
        drop(store);
        let connection = rusqlite::Connection::open(&path).unwrap();
        for table in ["log", "bindings", "conflicts"] {
            let key = if table == "bindings" { "provisional" } else { "id" };
            let least = format!("{key} = (SELECT min({key}) FROM {table})");
            connection.execute(&format!("UPDATE {table} SET record = x'0102' WHERE {least}"), []).unwrap();
        }
        drop(connection);
        let Opened { store, log: found, damaged, .. } = DirtyStore::open(top.path(), &key(), &note(1)).unwrap();
        assert_eq!(found.records, samples::records()[1..]);
        assert_eq!((&found.conflicts[..], found.bindings.len()), (&samples::conflicts()[1..], 0));
        let listed = damaged
            .iter()
            .map(|aside| (String::from_utf8_lossy(&aside.path).into_owned(), fs::read(&aside.data).unwrap()));
        let names = ["change 1 of the log", "binding 0 of the log", "conflict 1 of the log"];
        assert_eq!(listed.collect::<Vec<_>>(), names.map(|name| (name.to_owned(), vec![1, 2])));
        drop(store);
        assert_eq!(DirtyStore::open(top.path(), &key(), &note(1)).unwrap().damaged, []);
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
