//! The file that a download grows in, before it gets its name.

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
use crate::cp::resume::journal::{Journal, JournalFile, with_suffix};
use crate::cp::resume::lock_file::is_at;
use crate::cp::resume::source_state::SourceIdentity;
use crate::cp::resume::temp_file::{self, remove_if_there};
use crate::cp::resume::temp_name::part_name;
use crate::cp::transfer::attributes::dress;
use crate::interrupt::Kept;

/// How often what has arrived is made safe and noted: what an interruption may lose.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A file under its hidden name. Dropped unfinished it stays for `--resume` if anything of it
/// is safe, and is removed if nothing is.
#[derive(Debug)]
pub(crate) struct PartialDownload {
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

impl PartialDownload {
    /// What an earlier copy to `dest` has noted.
    pub(crate) fn noted(dest: &Path) -> Option<Journal> {
        journal_of(&hidden_path(dest)?).load()
    }

    /// Whether it was made anew.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Makes one for `dest`, or with `resume` takes up the one that is there if it is of the
    /// same source. Fails if another copy is under way.
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

    /// Puts bytes in the place of others.
    pub(crate) fn write_over(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
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

    /// What has arrived, to be read.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// All of it is here: gives it the source's mode and time, with `preserves` all that `-p` keeps, makes it safe, and then gives
    /// it its name. Not every file system (that of a memory stick, say) takes any mode or time: what one
    /// said that did not is no reason to have no copy. What has the hidden name by now may be somebody
    /// else's, and unfinished: that gets no name. Nothing that was just `created` is replaced.
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
        if !is_at(&self.path, &self.file) {
            return;
        }
        self.journal_file.remove();
        // Best effort: there is nobody to tell.
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

/// Gives what `path` names the name `dest`, unless that is the name of something that was just `created`.
pub(crate) fn rename_here(path: &Path, dest: &Path, created: &CreatedObjects) -> io::Result<()> {
    let key = FileKey::of_local(&fs::symlink_metadata(path)?);
    if let Ok(old) = fs::symlink_metadata(dest) {
        created.check_here(dest, &old)?;
    }
    fs::rename(path, dest)?;
    created.note(key);
    Ok(())
}

/// A part that lost its name must touch nothing that has it now.
fn check_owned(path: &Path, file: &File) -> io::Result<()> {
    let taken = || io::Error::other("somebody removed or replaced its unfinished copy");
    if is_at(path, file) { Ok(()) } else { Err(taken()) }
}

/// The directory in which this lies.
pub(crate) fn above(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in a directory safe.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    sync_opened(File::open(dir))
}

/// The same for one that was to be opened.
pub(crate) fn sync_opened(dir: io::Result<File>) -> io::Result<()> {
    match dir {
        // One may write to it and not list it, and there may be nothing in it to name its file system by.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            rustix::fs::sync();
            Ok(())
        }
        dir => dir?.sync_all(),
    }
}

/// Makes the new name of `file` safe.
pub(crate) fn sync_name(path: &Path, file: &File) -> io::Result<()> {
    match File::open(above(path)) {
        // One may write to it and not list it: then all of its file system is flushed.
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

    /// An empty directory, and a source of 8 bytes for a copy there.
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
    fn what_stands_in_its_place_gets_no_name_and_stays() {
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
    fn what_was_left_is_taken_up_or_goes() {
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
