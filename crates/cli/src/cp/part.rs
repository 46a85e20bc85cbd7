//! The file that a download grows in, before it gets its name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use remora_wire::nfs3::Attr;
use tokio::task::{block_in_place, spawn_blocking};

use super::journal::{Identity, Journal, JournalFile, with_suffix};
use super::lock::lock;
use super::names::part_name;
use crate::interrupt::Kept;

/// How often what has arrived is made safe and noted: what an interruption may lose.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A file under its hidden name. Dropped unfinished it stays for `--resume` if anything of it
/// is safe, and is removed if nothing is.
#[derive(Debug)]
pub(crate) struct Part {
    file: Arc<File>,
    path: PathBuf,
    dest: PathBuf,
    journal_file: Arc<JournalFile>,
    journal: Mutex<Journal>,
    /// Bytes that the journal on the disk knows of.
    saved: Arc<AtomicU64>,
    /// Nothing was in it when it was made: what is not written reads as zeros.
    fresh: bool,
    finished: bool,
    kept: Kept,
}

impl Part {
    /// Makes one for `dest`, or with `resume` takes up the one that is there if it is of the
    /// same source.
    pub(crate) fn open(dest: &Path, source: &Identity, resume: bool, kept: Kept) -> io::Result<Part> {
        let name = dest.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let path = dest.with_file_name(std::ffi::OsStr::from_bytes(&part_name(name.as_bytes(), "")));
        let journal_file = JournalFile::at(with_suffix(&path, ".json"));
        let old = take_up(&path)?;
        if let Some(file) = &old
            && resume
            && let Some(journal) = journal_file.load()
            && let meta = file.metadata()?
            && journal.is_about(source, meta.ino(), meta.len())
        {
            let file = file.try_clone()?;
            return Ok(Part::new(file, path, dest, journal_file, journal, false, kept));
        }
        for old in [&path, &with_suffix(&path, ".json")] {
            match fs::remove_file(old) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        lock(&file)?;
        let journal = Journal::new(source.clone(), file.metadata()?.ino());
        let part = Part::new(file, path, dest, journal_file, journal, true, kept);
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
    ) -> Part {
        Part {
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

    /// Bytes that are there.
    pub(crate) fn bytes(&self) -> u64 {
        self.journal().done.bytes()
    }

    /// What is still to come of `size` bytes.
    pub(crate) fn missing(&self, size: u64) -> Vec<Range<u64>> {
        self.journal().done.missing(size)
    }

    /// Puts bytes in their place.
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        // Zeros are there already, and take no room that way.
        if !(self.fresh && data.iter().all(|b| *b == 0)) {
            self.file.write_all_at(data, at)?;
        }
        self.journal().done.insert(at..at + data.len() as u64);
        Ok(())
    }

    /// Saves again and again; ends only when that fails.
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

    /// Makes what has arrived by now safe and notes it, if there is more of it than at the last time.
    fn saving(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let journal = self.journal().clone();
        let (file, journal_file, saved) = (self.file.clone(), self.journal_file.clone(), self.saved.clone());
        move || {
            let bytes = journal.done.bytes();
            if bytes == saved.load(Ordering::Relaxed) {
                return Ok(());
            }
            // The data first: the journal must not promise what a power failure takes.
            file.sync_data()?;
            journal_file.store(&journal)?;
            saved.store(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    /// The file, to be read from its start.
    pub(crate) fn reader(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// All of it is here: gives it the source's mode and time, makes it safe, and then gives
    /// it its name. Not every file system (that of a memory stick, say) takes any mode or time: what one
    /// said that did not is no reason to have no copy.
    pub(crate) fn finish(&mut self, source: &Attr) -> io::Result<Option<io::Error>> {
        block_in_place(|| {
            let mtime = Duration::new(u64::from(source.mtime.secs), source.mtime.nanos.min(999_999_999));
            let timed = self.file.set_modified(SystemTime::UNIX_EPOCH + mtime);
            let dressed = timed.and(self.file.set_permissions(fs::Permissions::from_mode(source.mode & 0o777)));
            self.file.sync_all()?;
            fs::rename(&self.path, &self.dest)?;
            self.finished = true;
            self.journal_file.remove();
            sync_dir(&self.dest)?;
            Ok(dressed.err())
        })
    }

    /// It cannot go on now. What has arrived stays, for `--resume`.
    pub(crate) fn keep(self) {
        // What cannot be saved was not there.
        let _ = block_in_place(self.saving());
    }

    /// Nothing can come of it any more.
    pub(crate) fn discard(mut self) {
        self.remove();
    }

    fn remove(&mut self) {
        self.finished = true;
        self.journal_file.remove();
        // Best effort: there is nobody to tell.
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Part {
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

/// Opens what an earlier copy left, never through a link that somebody put there; fails if
/// that copy is still under way.
fn take_up(path: &Path) -> io::Result<Option<File>> {
    if !fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        return Ok(None);
    }
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        // It can be removed all the same, or that fails and says why.
        Err(_) => return Ok(None),
        Ok(file) => file,
    };
    lock(&file)?;
    Ok(Some(file))
}

/// Makes a new name safe.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
