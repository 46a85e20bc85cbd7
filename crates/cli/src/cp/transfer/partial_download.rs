//! The temporary file of a download.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remora_wire::nfs3::Attr;
use tokio::task::{block_in_place, spawn_blocking};

use crate::cp::created_objects::{CreatedObjects, FileKey};
use crate::cp::resume::journal::{Journal, JournalFile};
use crate::cp::resume::lock_file::is_at;
use crate::cp::resume::source_state::SourceIdentity;
use crate::cp::resume::temp_file::{self, remove_if_there};
use crate::cp::resume::temp_name::{part_name, with_suffix};
use crate::cp::transfer::attributes::dress;
use crate::interrupt::Kept;

/// Interval of flushing and recording what has arrived: what an interruption may lose.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A temporary file. Dropped unfinished it stays for `--resume` if anything is recorded, else it is removed.
#[derive(Debug)]
pub(crate) struct PartialDownload {
    file: Arc<File>,
    path: PathBuf,
    dest: PathBuf,
    journal_file: Arc<JournalFile>,
    journal: Mutex<Journal>,
    /// Bytes in the journal on disk.
    saved: Arc<AtomicU64>,
    /// It was empty: gaps read as zeros.
    fresh: bool,
    finished: bool,
    kept: Kept,
}

impl PartialDownload {
    /// The journal of an earlier copy to `dest`.
    pub(crate) fn noted(dest: &Path) -> Option<Journal> {
        journal_of(&hidden_path(dest)?).load()
    }

    /// Whether it was created by this run.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Creates the file for `dest`, or with `resume` resumes the existing one of the same source. Fails if another copy
    /// is running.
    pub(crate) fn open(dest: &Path, source: &SourceIdentity, resume: bool, kept: Kept) -> io::Result<PartialDownload> {
        let path = hidden_path(dest).ok_or(io::ErrorKind::InvalidInput)?;
        let journal_at = || journal_of(&path);
        let known = |left: &File| {
            let (meta, journal) = (left.metadata()?, resume.then(|| journal_at().load()).flatten());
            Ok(journal.filter(|journal| journal.is_about(source, meta.ino(), meta.len())))
        };
        match temp_file::open(&path, known)? {
            (file, Some(journal)) => {
                let journal_file = journal_at();
                Ok(PartialDownload::new(file, path, dest, journal_file, journal, false, kept))
            }
            (file, None) => PartialDownload::begin(file, path, dest, source, kept),
        }
    }

    fn begin(
        file: File,
        path: PathBuf,
        dest: &Path,
        source: &SourceIdentity,
        kept: Kept,
    ) -> io::Result<PartialDownload> {
        let journal_path = with_suffix(&path, ".json");
        remove_if_there(&journal_path)?;
        let journal = Journal::new(source.clone(), file.metadata()?.ino());
        let part = PartialDownload::new(file, path, dest, JournalFile::at(journal_path), journal, true, kept);
        part.file.set_len(source.size())?;
        Ok(part)
    }

    fn new(
        file: File,
        path: PathBuf,
        dest: &Path,
        journal_file: JournalFile,
        journal: Journal,
        fresh: bool,
        kept: Kept,
    ) -> PartialDownload {
        PartialDownload {
            file: Arc::new(file),
            path,
            dest: dest.to_owned(),
            journal_file: Arc::new(journal_file),
            saved: Arc::new(AtomicU64::new(journal.done.bytes())),
            journal: Mutex::new(journal),
            fresh,
            finished: false,
            kept,
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.journal().done.bytes()
    }

    /// Ranges of `size` bytes that are missing.
    pub(crate) fn missing(&self, size: u64) -> Vec<Range<u64>> {
        self.journal().done.missing(size)
    }

    /// Writes bytes that have arrived.
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        // Zeros are there already, and stay a hole.
        if !(self.fresh && data.iter().all(|b| *b == 0)) {
            self.file.write_all_at(data, at)?;
        }
        self.journal().done.insert(at..at + data.len() as u64);
        Ok(())
    }

    pub(crate) fn write_over(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
    }

    /// Flushes and records periodically; ends only with an error.
    pub(crate) async fn keep_saving(&self) -> io::Error {
        loop {
            tokio::time::sleep(SAVE_EVERY).await;
            match spawn_blocking(self.saving()).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => return e,
                Err(e) => return io::Error::other(e),
            }
        }
    }

    /// Flushes and records what has arrived, if there is more than last time.
    fn saving(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let journal = self.journal().clone();
        let (file, journal_file, saved) = (self.file.clone(), self.journal_file.clone(), self.saved.clone());
        let path = self.path.clone();
        move || {
            let bytes = journal.done.bytes();
            if bytes == saved.load(Ordering::Relaxed) {
                return Ok(());
            }
            check_owned(&path, &file)?;
            // The data first: the journal must not promise what a power failure takes.
            file.sync_data()?;
            journal_file.store(&journal)?;
            saved.store(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    /// The file, for reading.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Sets attributes, flushes and renames the complete file. Returns the error of a file system without modes or
    /// times: the copy is kept. The rename fails if another file has the temporary name, and replaces nothing that was
    /// just `created`.
    pub(crate) fn finish(
        &mut self,
        source: &Attr,
        preserves: bool,
        created: &CreatedObjects,
    ) -> io::Result<Option<io::Error>> {
        block_in_place(|| {
            let dressed = dress(&self.file, source, preserves);
            self.file.sync_all()?;
            check_owned(&self.path, &self.file)?;
            rename_here(&self.path, &self.dest, created)?;
            self.finished = true;
            self.journal_file.remove();
            sync_name(&self.dest, &self.file)?;
            Ok(dressed.err())
        })
    }

    /// Keeps what has arrived for `--resume`.
    pub(crate) fn keep(self) {
        // What cannot be recorded is lost.
        let _ = block_in_place(self.saving());
    }

    /// Removes the file.
    pub(crate) fn discard(mut self) {
        self.remove();
    }

    fn remove(&mut self) {
        self.finished = true;
        if !is_at(&self.path, &self.file) {
            return;
        }
        self.journal_file.remove();
        // Best effort.
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for PartialDownload {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        match self.saved.load(Ordering::Relaxed) {
            0 => self.remove(),
            bytes => self.kept.add(bytes),
        }
    }
}

fn hidden_path(dest: &Path) -> Option<PathBuf> {
    let name = part_name(dest.file_name()?.as_bytes(), "");
    Some(dest.with_file_name(std::ffi::OsStr::from_bytes(&name)))
}

fn journal_of(hidden: &Path) -> JournalFile {
    JournalFile::at(with_suffix(hidden, ".json"))
}

/// Renames `path` to `dest`, unless `dest` was just `created`.
pub(crate) fn rename_here(path: &Path, dest: &Path, created: &CreatedObjects) -> io::Result<()> {
    let key = FileKey::of_local(&fs::symlink_metadata(path)?);
    if let Ok(old) = fs::symlink_metadata(dest) {
        created.check_here(dest, &old)?;
    }
    fs::rename(path, dest)?;
    created.note(key);
    Ok(())
}

/// Fails if another file has the temporary name.
fn check_owned(path: &Path, file: &File) -> io::Result<()> {
    let taken = || io::Error::other("its unfinished copy was removed or replaced");
    if is_at(path, file) { Ok(()) } else { Err(taken()) }
}

/// The parent directory.
pub(crate) fn above(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Flushes a directory.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    sync_opened(File::open(dir))
}

/// Flushes a directory that was opened.
pub(crate) fn sync_opened(dir: io::Result<File>) -> io::Result<()> {
    match dir {
        // It may be writable and not readable, and name no file system.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            rustix::fs::sync();
            Ok(())
        }
        dir => dir?.sync_all(),
    }
}

/// Flushes the name of `file`.
pub(crate) fn sync_name(path: &Path, file: &File) -> io::Result<()> {
    match File::open(above(path)) {
        // It may be writable and not readable: flushes the file system.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(rustix::fs::syncfs(file)?),
        dir => dir?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    use super::*;
    use crate::interrupt::kept;

    const SIZE: u64 = 8;

    /// An empty directory, and a source of 8 bytes.
    fn place(name: &str) -> (PathBuf, SourceIdentity) {
        let dir = std::env::temp_dir().join(format!("remora-part-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("source"), [7; SIZE as usize]).unwrap();
        let source = SourceIdentity::of_local(&fs::metadata(dir.join("source")).unwrap());
        (dir, source)
    }

    fn attr() -> Attr {
        let time = NfsTime { secs: 1, nanos: 0 };
        let rdev = SpecData { major: 0, minor: 0 };
        let (kind, mode) = (FileType::Regular, 0o644);
        Attr {
            kind,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: SIZE,
            used: SIZE,
            rdev,
            fsid: 1,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn open(dest: &Path, source: &SourceIdentity, resume: bool) -> io::Result<PartialDownload> {
        PartialDownload::open(dest, source, resume, kept().0)
    }

    #[test]
    fn file_in_place_of_the_temporary_one_is_not_renamed() {
        let (dir, source) = place("lost");
        let (dest, path) = (dir.join("x"), dir.join(".x.remora-part"));
        let mut part = open(&dest, &source, false).unwrap();
        part.write(0, &[7; SIZE as usize]).unwrap();
        fs::remove_file(&path).unwrap();
        let journal = with_suffix(&path, ".json");
        [&path, &journal].into_iter().for_each(|other| fs::write(other, "another's").unwrap());
        let error = part.finish(&attr(), false, &CreatedObjects::default()).unwrap_err();
        assert!(error.to_string().contains("unfinished copy"), "{error}");
        part.keep();
        assert!(!dest.exists());
        for other in [&path, &journal] {
            assert_eq!(fs::read(other).unwrap(), b"another's", "{}", other.display());
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn earlier_temporary_file_is_resumed_or_replaced() {
        let (dir, source) = place("resume");
        let (dest, path) = (dir.join("x"), dir.join(".x.remora-part"));
        for resume in [true, false] {
            let part = open(&dest, &source, false).unwrap();
            part.write(0, &[7; 4]).unwrap();
            part.keep();
            let part = open(&dest, &source, resume).unwrap();
            assert_eq!(part.bytes(), if resume { 4 } else { 0 });
        }
        // Nothing is written through a link.
        let target = dir.join("target");
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let part = open(&dest, &source, true).unwrap();
        part.write(0, &[7; 4]).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        drop(part);
        fs::remove_dir_all(dir).unwrap();
    }
}
