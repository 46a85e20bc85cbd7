//! Lock files: one copy at a time to a destination.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

/// Flags that follow no link and do not wait at a pipe.
pub(crate) const AS_IT_IS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;
/// Attempts to lock a file that is removed or swept meanwhile.
pub(crate) const TRIES_MAX: usize = 10;
/// Longer than a sweep holds a lock.
const SWEPT_AFTER: Duration = Duration::from_millis(10);
/// Largest number of files in the state directory that a sweep looks at.
const SWEEP_MAX: usize = 1000;
/// Suffix of lock files.
const SUFFIX: &str = ".json.lock";

/// Locks a file while it is open; fails if another process holds the lock.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
        rustix::io::Errno::WOULDBLOCK => busy(),
        e => e.into(),
    })
}

/// Whether `path` still names `file`. A lock on a removed or replaced file keeps nobody out.
pub(crate) fn is_at(path: &Path, file: &File) -> bool {
    let number = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (fs::symlink_metadata(path), file.metadata()) {
        (Ok(there), Ok(here)) => number(there) == number(here),
        _ => false,
    }
}

pub(crate) fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another copy to this file is running")
}

/// A lock file, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    _locked: File,
}

impl LockFile {
    /// Fails with [`io::ErrorKind::ResourceBusy`] if another process holds the lock.
    pub(crate) fn acquire(path: &Path) -> io::Result<LockFile> {
        for _ in 0..TRIES_MAX {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(AS_IT_IS);
            let file = options.open(path)?;
            match lock(&file) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(SWEPT_AFTER);
                    continue;
                }
                locked => locked?,
            }
            if let Some(lock) = LockFile::of(path, file) {
                return Ok(lock);
            }
        }
        Err(busy())
    }

    /// Of a locked file; `None` if its last owner has just removed it.
    fn of(path: &Path, locked: File) -> Option<LockFile> {
        is_at(path, &locked).then(|| LockFile { path: path.to_owned(), _locked: locked })
    }
}

/// Removes lock files of killed processes. Best effort.
pub(crate) fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.take(SWEEP_MAX).filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().ends_with(SUFFIX) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = OpenOptions::new().write(true).custom_flags(AS_IT_IS).open(&path) else { continue };
        if lock(&file).is_ok() {
            // Removed as by its next owner.
            drop(LockFile::of(&path, file));
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // While the lock is held, so that it is no successor's file. Best effort: a remaining file is used again.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_file_has_one_owner_at_a_time() {
        let path = std::env::temp_dir().join(format!("remora-lock-{}", std::process::id()));
        for _ in 0..2 {
            let lock = LockFile::acquire(&path).unwrap();
            assert_eq!(LockFile::acquire(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
            drop(lock);
            assert!(!path.exists());
        }
    }

    #[test]
    fn sweep_removes_only_locks_without_owner() {
        let dir = std::env::temp_dir().join(format!("remora-locks-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let [left, held, other] = ["left.json.lock", "held.json.lock", "upload.json"].map(|name| dir.join(name));
        let _held = LockFile::acquire(&held).unwrap();
        [&left, &other].into_iter().for_each(|path| fs::write(path, "").unwrap());
        sweep(&dir);
        assert!(!left.exists() && held.exists() && other.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn lock_held_for_a_moment_is_acquired_after_it() {
        let path = std::env::temp_dir().join(format!("remora-moment-{}", std::process::id()));
        let lock = LockFile::acquire(&path).unwrap();
        let sweeper = thread::spawn(|| drop(lock));
        LockFile::acquire(&path).unwrap();
        sweeper.join().unwrap();
    }
}
