//! Sparse files with the unsent bytes, one an object.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use remora_cache::{DirtyPart, ObjectId};

/// Bytes of the disk that programs cannot fill: they are for the records, and for data that was accepted before.
const RESERVE: u64 = 64 << 20;

/// The file with the bytes of an object of `store`.
pub(in crate::mount) fn data_path(store: &Path, object: ObjectId) -> PathBuf {
    store.join("data").join(object.0.to_string())
}

/// The disk of a store.
#[derive(Debug)]
pub(in crate::mount) struct StoreDisk(File);

impl StoreDisk {
    /// Bytes that it has beside the reserve.
    pub(in crate::mount) fn room(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.0)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(RESERVE))
    }
}

/// The files of a store.
#[derive(Debug)]
pub(super) struct DataFiles {
    dir: PathBuf,
    /// Files that were written since the last barrier.
    unsynced: BTreeSet<ObjectId>,
    /// Files whose records have gone since the last barrier. Until then a loss of power may bring the records back.
    removed: Vec<ObjectId>,
}

impl DataFiles {
    pub(super) fn open(store: &Path) -> io::Result<DataFiles> {
        let dir = store.join("data");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        Ok(DataFiles { dir, unsynced: BTreeSet::new(), removed: Vec::new() })
    }

    pub(super) fn path(&self, object: ObjectId) -> PathBuf {
        self.dir.join(object.0.to_string())
    }

    /// A look at the disk for any thread.
    pub(super) fn disk(&self) -> io::Result<StoreDisk> {
        File::open(&self.dir).map(StoreDisk)
    }

    pub(super) fn write(&mut self, object: ObjectId, parts: &[DirtyPart]) -> io::Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(self.path(object))?;
        self.unsynced.insert(object);
        parts.iter().try_for_each(|part| file.write_all_at(&part.data, part.offset))
    }

    /// The bytes of `ranges`.
    pub(super) fn read(&self, object: ObjectId, ranges: &[Range<u64>]) -> io::Result<Vec<DirtyPart>> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let file = File::open(self.path(object))?;
        let len = file.metadata()?.len();
        let read = |range: &Range<u64>| {
            if range.end > len || range.start > range.end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut data = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut data, range.start)?;
            Ok(DirtyPart { offset: range.start, data: data.into() })
        };
        ranges.iter().map(read).collect()
    }

    /// An earlier process wrote the file, and may not have synced it.
    pub(super) fn set_unsynced(&mut self, object: ObjectId) {
        self.unsynced.insert(object);
    }

    /// The record of `object` has gone.
    pub(super) fn remove(&mut self, object: ObjectId) {
        self.unsynced.remove(&object);
        self.removed.push(object);
    }

    /// Removes the files whose records have gone. Call it after a barrier.
    pub(super) fn remove_old(&mut self) {
        for object in std::mem::take(&mut self.removed) {
            // It may have no bytes.
            let _ = fs::remove_file(self.path(object));
        }
    }

    /// Removes the files of unknown objects, whose saves did not end.
    pub(super) fn retain(&mut self, known: &BTreeSet<ObjectId>) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let object = name.to_str().and_then(|name| name.parse().ok()).map(ObjectId);
            if object.is_some_and(|object| !known.contains(&object)) {
                fs::remove_file(self.dir.join(name))?;
            }
        }
        Ok(())
    }

    /// Syncs all writes since the last barrier, so that they survive a loss of power.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        for object in &self.unsynced {
            match File::open(self.path(*object)) {
                // A record without data.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                file => file?.sync_data()?,
            }
        }
        File::open(&self.dir)?.sync_all()?;
        self.unsynced.clear();
        Ok(())
    }
}
