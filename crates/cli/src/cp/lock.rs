//! Locks: one copy at a time to a place, so that none takes another's part away.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// How often a lock's file may go away between being opened and being locked.
const TRIES_MAX: usize = 10;

/// Locks a file for as long as it is open; fails if another process has.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
        rustix::io::Errno::WOULDBLOCK => busy(),
        e => e.into(),
    })
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another copy to this file is under way")
}

/// A file that is there to be locked, and goes when its owner does.
#[derive(Debug)]
pub(super) struct LockFile {
    path: PathBuf,
    _locked: File,
}

impl LockFile {
    /// Fails with [`io::ErrorKind::ResourceBusy`] if another process has it.
    pub(super) fn acquire(path: &Path) -> io::Result<LockFile> {
        for _ in 0..TRIES_MAX {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
            lock(&file)?;
            // Its last owner may have removed it just before.
            if fs::metadata(path).is_ok_and(|m| file.metadata().is_ok_and(|f| (m.dev(), m.ino()) == (f.dev(), f.ino())))
            {
                return Ok(LockFile { path: path.to_owned(), _locked: file });
            }
        }
        Err(busy())
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // While the lock is held, so that it is this file and no successor's. Best effort: one
        // that stays is used again.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time() {
        let path = std::env::temp_dir().join(format!("remora-lock-{}", std::process::id()));
        for _ in 0..2 {
            let lock = LockFile::acquire(&path).unwrap();
            assert_eq!(LockFile::acquire(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
            drop(lock);
            assert!(!path.exists());
        }
    }
}
