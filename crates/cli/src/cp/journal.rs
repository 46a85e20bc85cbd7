//! What is known of an unfinished copy: which source it is of, and what of it is safe.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use remora_wire::nfs3::Attr;
use serde::{Deserialize, Serialize};

use super::hidden::{read_note, write_note};
use super::part::sync_name;
use super::ranges::Ranges;

/// Journals of another version are not understood, and not used.
const VERSION: u32 = 2;
/// No journal is longer.
const BYTES_MAX: u64 = 16 << 20;

/// Which file, in which state: if any of it differs, a copy cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    device: u64,
    file: u64,
    size: u64,
    mtime: (i64, u32),
}

impl Identity {
    /// Of a file on a server.
    pub(crate) fn of_remote(attr: &Attr) -> Identity {
        let mtime = (i64::from(attr.mtime.secs), attr.mtime.nanos);
        Identity { device: attr.fsid, file: attr.fileid, size: attr.size, mtime }
    }

    /// Of a file here.
    pub(crate) fn of_local(meta: &fs::Metadata) -> Identity {
        let mtime = (meta.mtime(), meta.mtime_nsec() as u32);
        Identity { device: meta.dev(), file: meta.ino(), size: meta.size(), mtime }
    }

    /// Bytes in the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether `copy`, whose time was set to this one's, still looks like a copy of it.
    pub(crate) fn is_copied_by(&self, copy: &Identity) -> bool {
        self.size == copy.size && self.has_dated(copy)
    }

    /// Whether `copy` has the time that was set when it was this one's copy. Some file systems keep whole
    /// seconds only.
    pub(crate) fn has_dated(&self, copy: &Identity) -> bool {
        let (mine, theirs) = (self.mtime, copy.mtime);
        mine.0 == theirs.0 && (mine.1 == theirs.1 || theirs.1 == 0)
    }
}

/// The state of an unfinished copy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    version: u32,
    /// What is copied.
    source: Identity,
    /// The file that is copied to, by what no other file has, also not a later one.
    part: String,
    /// What of it is on stable storage.
    pub(crate) done: Ranges,
    /// Its final name was asked for, though not all of it was known to be there.
    pub(crate) is_named: bool,
}

impl Journal {
    /// Of a copy that begins.
    pub(crate) fn new(source: Identity, part: impl ToString) -> Journal {
        let (part, done) = (part.to_string(), Ranges::default());
        Journal { version: VERSION, source, part, done, is_named: false }
    }

    /// Whether nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.done.missing(self.source.size).is_empty()
    }

    /// Whether it is about this copy, of which `part_size` bytes are there.
    pub(crate) fn is_about(&self, source: &Identity, part: impl ToString, part_size: u64) -> bool {
        let fits = self.done.is_sound() && self.done.end() <= part_size.min(source.size);
        fits && self.version == VERSION && self.source == *source && self.part == part.to_string()
    }
}

/// Where a journal is kept.
#[derive(Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    /// Nothing is written any more. Held while writing, so that no late writer brings a
    /// removed journal back.
    closed: Mutex<bool>,
}

impl JournalFile {
    pub(crate) fn at(path: PathBuf) -> JournalFile {
        JournalFile { path, closed: Mutex::new(false) }
    }

    /// The journal that is there; one that cannot be read or is not ours is as good as none.
    pub(crate) fn load(&self) -> Option<Journal> {
        serde_json::from_slice(&read_note(&self.path, BYTES_MAX)?).ok()
    }

    /// Replaces what is there.
    pub(crate) fn store(&self, journal: &Journal) -> io::Result<()> {
        self.replace(journal, false)
    }

    /// The same, so that it outlives a power failure.
    pub(crate) fn store_safely(&self, journal: &Journal) -> io::Result<()> {
        self.replace(journal, true)
    }

    fn replace(&self, journal: &Journal, safely: bool) -> io::Result<()> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Ok(());
        }
        let file = write_note(&self.path, &serde_json::to_vec(journal)?, safely)?;
        if safely { sync_name(&self.path, &file) } else { Ok(()) }
    }

    /// Removes what an earlier copy left there, which may not be taken for this one's. Says whether nothing is
    /// there now.
    pub(crate) fn clear(&self) -> bool {
        fs::remove_file(&self.path).is_ok() || !self.path.exists()
    }

    /// Removes it for good.
    pub(crate) fn remove(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = true;
        // One that was never written is not there.
        let _ = fs::remove_file(&self.path);
    }
}

/// `path` with `suffix` behind its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(size: u64, secs: i64) -> Identity {
        Identity { device: 1, file: 2, size, mtime: (secs, 5) }
    }

    #[test]
    fn a_journal_is_used_only_for_the_copy_it_is_about() {
        let mut journal = Journal::new(source(100, 7), 9);
        journal.done.insert(10..50);
        for (source, part, size, want) in [
            (source(100, 7), 9, 100, true),
            (source(100, 7), 9, 50, true),
            (source(100, 7), 9, 49, false),
            (source(100, 7), 8, 100, false),
            (source(101, 7), 9, 101, false),
            (source(100, 8), 9, 100, false),
        ] {
            assert_eq!(journal.is_about(&source, part, size), want, "{source:?}, part {part} of {size}");
        }
        journal.version += 1;
        assert!(!journal.is_about(&source(100, 7), 9, 100));
    }

    #[test]
    fn journals_survive_and_stay_removed() {
        let path = std::env::temp_dir().join(format!("remora-journal-{}", std::process::id()));
        let file = JournalFile::at(path.clone());
        let mut journal = Journal::new(source(100, 7), 9);
        journal.done.insert(0..10);
        file.store(&journal).unwrap();
        assert_eq!(file.load(), Some(journal.clone()));
        assert!(file.clear() && file.clear());
        assert_eq!(file.load(), None);
        file.store(&journal).unwrap();
        fs::write(&path, b"{\"version\":1").unwrap();
        assert_eq!(file.load(), None);
        file.remove();
        file.store(&journal).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn copies_are_recognised_by_size_and_time() {
        let a = source(100, 7);
        assert!(a.is_copied_by(&Identity { device: 8, file: 8, size: 100, mtime: (7, 5) }));
        assert!(a.is_copied_by(&Identity { device: 8, file: 8, size: 100, mtime: (7, 0) }));
        assert!(!a.is_copied_by(&Identity { device: 8, file: 8, size: 100, mtime: (7, 6) }));
        assert!(!a.is_copied_by(&source(99, 7)) && !a.is_copied_by(&source(100, 8)));
    }
}
