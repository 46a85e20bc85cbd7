//! The disk cache of a mount: what can be fetched again, in an index and sparse files.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use remora_cache::{DiskDone, DiskJob, DiskJobId, DiskObject, DiskPart, DiskPin, DiskWork};
use remora_wire::nfs3::Fh;
use rusqlite::ErrorCode;
use rustix::fs::{FallocateFlags, fallocate};

use super::disk_index::{DiskIndex, Extent, ObjectRow, checksum};
use super::records::io_error;
use super::store_dir::{StoreDir, StoreError, StoreKey};
use super::store_thread::JobStore;
use crate::mount::runtime_dir::MountNote;

const INDEX: &str = "index.sqlite";
/// Bytes of the disk that stay free.
const RESERVE: u64 = 128 << 20;
/// Largest limit that is chosen by default, in bytes.
const LIMIT_MAX: u64 = 10 << 30;

/// A locked disk cache.
#[derive(Debug)]
pub struct DiskCache {
    dir: StoreDir,
    index: DiskIndex,
    limit: u64,
    /// Data files whose objects the open transaction removes.
    removed: Vec<i64>,
    figures: Arc<DiskFigures>,
}

/// Figures of a disk cache.
#[derive(Debug, Default)]
pub struct DiskFigures {
    bytes: AtomicU64,
    /// Why it is not used any more.
    error: OnceLock<String>,
}

impl DiskFigures {
    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Why it is not used any more.
    pub fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }
}

/// A disk cache, and where a damaged one was set aside.
#[derive(Debug)]
pub struct OpenedCache {
    pub cache: DiskCache,
    pub set_aside: Option<PathBuf>,
}

impl DiskCache {
    /// Opens the disk cache of `key` in `parent` for the mount of `note`. It keeps at most `limit` bytes, by default 10 GiB
    /// or a tenth of what is free.
    pub fn open(
        parent: &Path,
        key: &StoreKey,
        note: &MountNote,
        limit: Option<u64>,
    ) -> Result<OpenedCache, StoreError> {
        let dir = StoreDir::lock(parent, key, note)?;
        let path = dir.path().to_owned();
        let failed = |source| StoreError::Io { dir: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path.join("data")).map_err(failed)?;
        let (index, set_aside) = match DiskIndex::open(&path.join(INDEX)) {
            Ok(index) => (index, None),
            Err(error) if is_damage(&error) => {
                let aside = set_aside(&path).map_err(failed)?;
                (DiskIndex::open(&path.join(INDEX)).map_err(|e| failed(io_error(&e)))?, Some(aside))
            }
            Err(error) => return Err(failed(io_error(&error))),
        };
        let limit = limit.unwrap_or_else(|| LIMIT_MAX.min((free(&path) + index.bytes) / 10));
        let mut cache = DiskCache { dir, index, limit, removed: Vec::new(), figures: Arc::default() };
        let swept = cache.sweep().and_then(|()| cache.transaction(Vec::new())).map(drop);
        swept.map_err(|e| failed(io_error(&e)))?;
        Ok(OpenedCache { cache, set_aside })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Maximum bytes on disk.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn figures(&self) -> Arc<DiskFigures> {
        self.figures.clone()
    }

    fn data_path(&self, object: i64) -> PathBuf {
        self.dir.path().join("data").join(object.to_string())
    }

    /// Removes the files of unknown objects.
    fn sweep(&mut self) -> rusqlite::Result<()> {
        let known: BTreeSet<i64> = self.index.objects()?.into_iter().collect();
        let Ok(entries) = fs::read_dir(self.dir.path().join("data")) else { return Ok(()) };
        for entry in entries.flatten() {
            if entry.file_name().to_str().and_then(|name| name.parse().ok()).is_none_or(|id| !known.contains(&id)) {
                // Nothing reads it.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Executes jobs together, and evicts what is too much.
    fn transaction(&mut self, jobs: Vec<DiskJob>) -> rusqlite::Result<Vec<(DiskJobId, DiskDone)>> {
        self.index.begin()?;
        let done = jobs.into_iter().map(|job| Ok((job.id, self.perform(&job.fh, job.work)?)));
        let done = done.collect::<rusqlite::Result<Vec<_>>>()?;
        self.evict()?;
        self.index.commit()?;
        for object in std::mem::take(&mut self.removed) {
            // It may have no data.
            let _ = fs::remove_file(self.data_path(object));
        }
        self.figures.bytes.store(self.index.bytes, Ordering::Relaxed);
        Ok(done)
    }

    fn perform(&mut self, fh: &Fh, work: DiskWork) -> rusqlite::Result<DiskDone> {
        let found = self.index.find(fh)?;
        Ok(match (work, found) {
            (DiskWork::Save { record, kept, data }, _) => {
                let row = self.index.put(fh, record.as_deref())?;
                self.drop_extents(fh, row, &kept)?;
                self.write(fh, row, &data)?;
                self.index.count(row)?;
                DiskDone::Changed
            }
            (DiskWork::Load, Some(row)) => {
                let Some(record) = self.index.record(fh, row)? else { return Ok(DiskDone::Loaded(None)) };
                self.index.touch(row)?;
                let extents = self.index.extents(row, 0..u64::MAX)?;
                let ranges = extents.into_iter().map(|extent| extent.range).collect();
                DiskDone::Loaded(Some(Box::new(DiskObject { record, ranges })))
            }
            (DiskWork::Read(range), Some(row)) => {
                self.index.touch(row)?;
                DiskDone::Read(self.read(fh, row, range)?)
            }
            (DiskWork::Remove, Some(row)) => {
                self.remove(row)?;
                DiskDone::Changed
            }
            (DiskWork::Pin(stamp), Some(row)) => self.pin(fh, row, stamp)?,
            (DiskWork::Unpin { all_but }, _) => {
                self.index.unpin(all_but)?;
                DiskDone::Changed
            }
            (DiskWork::Load, None) => DiskDone::Loaded(None),
            (DiskWork::Pin(_), None) => DiskDone::Pinned(None),
            (DiskWork::Read(_), None) => DiskDone::Read(Vec::new()),
            (DiskWork::Remove, None) => DiskDone::Changed,
        })
    }

    /// Pins an object that has a record.
    fn pin(&mut self, fh: &Fh, row: ObjectRow, stamp: u64) -> rusqlite::Result<DiskDone> {
        if self.index.record(fh, row)?.is_none() {
            return Ok(DiskDone::Pinned(None));
        }
        self.index.pin(row, stamp)?;
        let extents = self.index.extents(row, 0..u64::MAX)?;
        let ranges = extents.into_iter().map(|extent| extent.range).collect();
        Ok(DiskDone::Pinned(Some(DiskPin { ranges, bytes: row.bytes })))
    }

    /// Drops what is not within `kept`, and gives its space back.
    fn drop_extents(&mut self, fh: &Fh, row: ObjectRow, kept: &[Range<u64>]) -> rusqlite::Result<()> {
        let is_kept = |range: &Range<u64>| kept.iter().any(|kept| kept.start <= range.start && range.end <= kept.end);
        let mut extents = self.index.extents(row, 0..u64::MAX)?;
        extents.retain(|extent| !is_kept(&extent.range));
        if extents.is_empty() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(self.data_path(row.object));
        for extent in extents {
            let Range { start, end } = extent.range;
            let left =
                kept.iter().map(|kept| kept.start.max(start)..kept.end.min(end)).filter(|part| part.start < part.end);
            let left: Vec<Range<u64>> = left.collect();
            let data = if left.is_empty() { Vec::new() } else { self.read(fh, row, start..end)? };
            self.index.remove_extent(row, &extent)?;
            // Not every file system can; then the space is used again by the same file.
            let _ = file.as_ref().map(|file| {
                for gap in gaps(start..end, &left) {
                    let _ = fallocate(
                        file,
                        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                        gap.start,
                        gap.end - gap.start,
                    );
                }
            });
            for whole in data.iter().filter(|part| part.offset == start) {
                for range in &left {
                    let part = &whole.data[(range.start - start) as usize..(range.end - start) as usize];
                    let sum = checksum(fh, range.start, part);
                    self.index.add_extent(row, &Extent { range: range.clone(), sum })?;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, fh: &Fh, row: ObjectRow, data: &[DiskPart]) -> rusqlite::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.data_path(row.object)).map_err(sql_error)?;
        for part in data {
            file.write_all_at(&part.data, part.offset).map_err(sql_error)?;
            let range = part.offset..part.offset + part.data.len() as u64;
            self.index.add_extent(row, &Extent { range, sum: checksum(fh, part.offset, &part.data) })?;
        }
        Ok(())
    }

    /// The data in `range` that is undamaged.
    fn read(&self, fh: &Fh, row: ObjectRow, range: Range<u64>) -> rusqlite::Result<Vec<DiskPart>> {
        let Ok(file) = File::open(self.data_path(row.object)) else { return Ok(Vec::new()) };
        let len = file.metadata().map_or(0, |found| found.len());
        let part = |Extent { range, sum }: Extent| {
            if range.start > range.end || range.end > len {
                return None;
            }
            let mut data = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut data, range.start).ok()?;
            (checksum(fh, range.start, &data) == sum).then(|| DiskPart { offset: range.start, data: data.into() })
        };
        Ok(self.index.extents(row, range)?.into_iter().filter_map(part).collect())
    }

    fn remove(&mut self, row: ObjectRow) -> rusqlite::Result<()> {
        self.index.remove(row)?;
        self.removed.push(row.object);
        Ok(())
    }

    /// Removes the objects that were used least recently, pinned ones last, until the rest has room.
    fn evict(&mut self) -> rusqlite::Result<()> {
        let room = (self.index.bytes + free(self.dir.path())).saturating_sub(RESERVE);
        let limit = self.limit.min(room);
        if self.index.bytes <= limit {
            return Ok(());
        }
        while self.index.bytes > limit / 10 * 9
            && let Some(oldest) = self.index.oldest()?
        {
            self.remove(oldest)?;
        }
        Ok(())
    }

    /// Sets the damaged index aside and begins afresh.
    fn begin_afresh(&mut self) -> Result<(), String> {
        let path = self.dir.path().to_owned();
        let aside = set_aside(&path).map_err(|e| e.to_string())?;
        self.index = DiskIndex::open(&path.join(INDEX)).map_err(|e| e.to_string())?;
        self.removed.clear();
        tracing::warn!(aside = %aside.display(), "the disk cache was damaged: it is set aside, and a fresh one begins");
        Ok(())
    }
}

impl JobStore for DiskCache {
    type Job = DiskJob;
    type Done = (DiskJobId, DiskDone);

    fn execute(&mut self, jobs: Vec<DiskJob>) -> Vec<(DiskJobId, DiskDone)> {
        let ids: Vec<DiskJobId> = jobs.iter().map(|job| job.id).collect();
        let error = match self.transaction(jobs) {
            Ok(done) => return done,
            Err(error) => error,
        };
        let begun = if is_damage(&error) { self.begin_afresh() } else { Err(error.to_string()) };
        // Of a fresh cache the core's reads find nothing.
        let done = match begun {
            Ok(()) => DiskDone::Read(Vec::new()),
            Err(why) => {
                let why = self.figures.error.get_or_init(|| why);
                tracing::warn!(dir = %self.dir.path().display(), %why, "the disk cache is switched off");
                DiskDone::Failed
            }
        };
        ids.into_iter().map(|id| (id, done.clone())).collect()
    }
}

/// The parts of `range` that none of `parts`, which are in order, covers.
fn gaps(range: Range<u64>, parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let ends = std::iter::once(range.start).chain(parts.iter().map(|part| part.end));
    let starts = parts.iter().map(|part| part.start).chain([range.end]);
    ends.zip(starts).map(|(start, end)| start..end).filter(|gap| gap.start < gap.end).collect()
}

/// Moves a damaged index and its data into a directory of their own, instead of those that were there.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = path.join("damaged");
    match fs::remove_dir_all(&aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&aside)?;
    for name in [INDEX, "index.sqlite-wal", "index.sqlite-shm", "data"] {
        match fs::rename(path.join(name), aside.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    DirBuilder::new().mode(0o700).create(path.join("data"))?;
    Ok(aside)
}

/// Bytes that are free on the disk.
fn free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether the index cannot be used, whatever the disk does.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown),
        None => true,
    }
}

/// An error of the disk as one of the index.
fn sql_error(error: io::Error) -> rusqlite::Error {
    let code = if error.kind() == io::ErrorKind::StorageFull { 13 } else { 10 };
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(error.to_string()))
}

#[cfg(test)]
mod tests {
    use remora_cache::{DiskChild, DiskGrant, DiskName, DiskRecord};
    use remora_wire::nfs3::{Attr, FileType, NfsTime, SpecData};

    use super::*;
    use crate::client::Target;

    fn open(top: &Path, limit: u64) -> OpenedCache {
        let key = StoreKey::of(&Target::parse("nfs://nas/srv").unwrap());
        let note = MountNote { url: "nfs://nas/srv".into(), dir: "/home/a/nas".into(), pid: 1 };
        DiskCache::open(top, &key, &note, Some(limit)).unwrap()
    }

    fn fh(name: &'static str) -> Fh {
        Fh(name.as_bytes().into())
    }

    fn record() -> DiskRecord {
        let at = NfsTime { secs: 5, nanos: 6 };
        let attr = Attr {
            kind: FileType::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 3,
            gid: 4,
            size: 10,
            used: 20,
            rdev: SpecData { major: 0, minor: 0 },
            fsid: 7,
            fileid: 8,
            atime: at,
            mtime: at,
            ctime: at,
        };
        let child = DiskChild { fh: fh("child"), attr: attr.clone() };
        DiskRecord {
            attr,
            names: Some(vec![
                DiskName { name: "a".into(), fileid: 8, child: Some(child) },
                DiskName { name: "b".into(), fileid: 9, child: None },
            ]),
            grants: vec![DiskGrant { uid: 1, gid: 2, groups: vec![3, 4], tested: 63, granted: 1 }],
            link_target: Some("target".into()),
        }
    }

    fn part(offset: u64, data: &'static [u8]) -> DiskPart {
        DiskPart { offset, data: data.into() }
    }

    fn save(kept: &[Range<u64>], data: Vec<DiskPart>) -> DiskWork {
        DiskWork::Save { record: Some(Box::new(record())), kept: kept.to_vec(), data }
    }

    fn run(cache: &mut DiskCache, name: &'static str, work: DiskWork) -> DiskDone {
        cache.execute(vec![DiskJob { id: DiskJobId(1), fh: fh(name), work }]).remove(0).1
    }

    fn ranges(cache: &mut DiskCache, name: &'static str) -> Option<Vec<Range<u64>>> {
        match run(cache, name, DiskWork::Load) {
            DiskDone::Loaded(object) => object.map(|object| object.ranges),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn part_of_an_extent_is_kept() {
        let top = tempfile::tempdir().unwrap();
        let mut cache = open(top.path(), 1 << 20).cache;
        run(&mut cache, "a", save(&[], vec![part(10, b"0123456789"), part(30, b"abc")]));
        run(&mut cache, "a", save(&[10..12, 15..20, 30..33], vec![part(12, b"xyz")]));
        assert_eq!(ranges(&mut cache, "a"), Some(vec![10..12, 12..15, 15..20, 30..33]));
        let DiskDone::Read(parts) = run(&mut cache, "a", DiskWork::Read(0..40)) else { panic!("no data") };
        let found: Vec<u8> = parts.iter().flat_map(|part| part.data.to_vec()).collect();
        assert_eq!(found, b"01xyz56789abc");
    }

    #[test]
    fn saved_object_is_found_after_a_restart() {
        let top = tempfile::tempdir().unwrap();
        let mut cache = open(top.path(), 1 << 20).cache;
        run(&mut cache, "a", save(&[], vec![part(0, b"0123"), part(8, b"89")]));
        run(&mut cache, "a", save(&[0..4, 30..40], vec![part(20, b"20")]));
        let data = vec![part(0, b"x")];
        run(&mut cache, "b", DiskWork::Save { record: None, kept: Vec::new(), data: data.clone() });
        assert_eq!(run(&mut cache, "b", DiskWork::Read(0..9)), DiskDone::Read(data));
        run(&mut cache, "c", save(&[], Vec::new()));
        run(&mut cache, "c", DiskWork::Remove);
        drop(cache);
        let mut cache = open(top.path(), 1 << 20).cache;
        let ranges = vec![0..4, 20..22];
        let object = DiskObject { record: record(), ranges };
        assert_eq!(run(&mut cache, "a", DiskWork::Load), DiskDone::Loaded(Some(Box::new(object))));
        let found = DiskDone::Read(vec![part(0, b"0123"), part(20, b"20")]);
        assert_eq!(run(&mut cache, "a", DiskWork::Read(2..30)), found);
        assert_eq!(run(&mut cache, "b", DiskWork::Load), DiskDone::Loaded(None), "it had no record");
        assert_eq!(run(&mut cache, "c", DiskWork::Load), DiskDone::Loaded(None));
        assert_eq!(fs::read_dir(cache.path().join("data")).unwrap().count(), 1);
    }

    #[test]
    fn data_with_another_checksum_is_not_there() {
        let top = tempfile::tempdir().unwrap();
        let mut cache = open(top.path(), 1 << 20).cache;
        run(&mut cache, "a", save(&[], vec![part(0, b"0123"), part(8, b"89")]));
        let file = OpenOptions::new().write(true).open(cache.path().join("data/1")).unwrap();
        file.write_all_at(b"x", 2).unwrap();
        assert_eq!(run(&mut cache, "a", DiskWork::Read(0..20)), DiskDone::Read(vec![part(8, b"89")]));
        file.set_len(9).unwrap();
        assert_eq!(run(&mut cache, "a", DiskWork::Read(0..20)), DiskDone::Read(vec![]));
    }

    #[test]
    fn object_that_was_used_least_recently_is_evicted() {
        static DATA: [u8; 100_000] = [1; 100_000];
        let top = tempfile::tempdir().unwrap();
        let mut cache = open(top.path(), 350_000).cache;
        for name in ["a", "b", "c"] {
            run(&mut cache, name, save(&[], vec![part(0, &DATA)]));
        }
        assert!(ranges(&mut cache, "a").is_some());
        run(&mut cache, "d", save(&[], vec![part(0, &DATA)]));
        let kept = ["a", "b", "c", "d"].map(|name| ranges(&mut cache, name).is_some());
        assert_eq!(kept, [true, false, true, true]);
        assert!((300_000..350_000).contains(&cache.figures().bytes()));
        assert_eq!(fs::read_dir(cache.path().join("data")).unwrap().count(), 3);
    }

    #[test]
    fn pinned_object_is_evicted_last() {
        static DATA: [u8; 100_000] = [1; 100_000];
        let top = tempfile::tempdir().unwrap();
        let mut cache = open(top.path(), 350_000).cache;
        assert_eq!(run(&mut cache, "a", DiskWork::Pin(7)), DiskDone::Pinned(None), "it is not there");
        run(&mut cache, "a", save(&[], vec![part(0, &DATA)]));
        let DiskDone::Pinned(Some(pin)) = run(&mut cache, "a", DiskWork::Pin(7)) else { panic!("it has a record") };
        assert!(
            pin.ranges == std::slice::from_ref(&(0..100_000)) && (100_000..102_000).contains(&pin.bytes),
            "{pin:?}"
        );
        // A later save of the same object leaves it pinned.
        run(&mut cache, "a", save(std::slice::from_ref(&(0..100_000)), Vec::new()));
        drop(cache);
        let mut cache = open(top.path(), 350_000).cache;
        let fill = |cache: &mut DiskCache| {
            for name in ["b", "c", "d", "e", "f"] {
                run(cache, name, save(&[], vec![part(0, &DATA)]));
            }
        };
        fill(&mut cache);
        assert!(ranges(&mut cache, "a").is_some() && ranges(&mut cache, "b").is_none());
        run(&mut cache, "a", DiskWork::Unpin { all_but: 7 });
        fill(&mut cache);
        assert!(ranges(&mut cache, "a").is_some());
        run(&mut cache, "a", DiskWork::Unpin { all_but: 8 });
        fill(&mut cache);
        assert!(ranges(&mut cache, "a").is_none());
    }

    #[test]
    fn damaged_index_is_replaced_while_it_is_used() {
        let top = tempfile::tempdir().unwrap();
        let mut cache = open(top.path(), 1 << 20).cache;
        run(&mut cache, "a", save(&[], vec![part(0, b"0123")]));
        cache.index.break_for_test();
        assert_eq!(run(&mut cache, "a", DiskWork::Load), DiskDone::Read(Vec::new()));
        assert!(cache.path().join("damaged/data/1").exists());
        run(&mut cache, "a", save(&[], vec![part(0, b"0123")]));
        assert_eq!(run(&mut cache, "a", DiskWork::Read(0..9)), DiskDone::Read(vec![part(0, b"0123")]));
    }
}
