//! The journal of an unfinished copy: its source, and the ranges on stable storage.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cp::resume::byte_ranges::ByteRanges;
use crate::cp::resume::source_state::SourceIdentity;
use crate::cp::resume::temp_file::{read_note, write_note};

/// Version of the format. Journals of other versions are not used.
const VERSION: u32 = 3;
/// Largest journal in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// State of an unfinished copy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    version: u32,
    source: SourceIdentity,
    /// Identifies the temporary file: inode number here, handle hash on a server.
    part: String,
    /// Ranges on stable storage.
    pub(crate) done: ByteRanges,
}

impl Journal {
    /// Of a new copy.
    pub(crate) fn new(source: SourceIdentity, part: impl ToString) -> Journal {
        Journal { version: VERSION, source, part: part.to_string(), done: ByteRanges::default() }
    }

    /// Bytes in the source.
    pub(crate) fn size(&self) -> u64 {
        self.source.size()
    }

    /// Whether no range is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.done.missing(self.source.size()).is_empty()
    }

    /// Whether it is about this copy, whose temporary file has `part_size` bytes.
    pub(crate) fn is_about(&self, source: &SourceIdentity, part: impl ToString, part_size: u64) -> bool {
        let fits = self.done.is_sound() && self.done.end() <= part_size.min(source.size());
        fits && self.version == VERSION && self.source == *source && self.part == part.to_string()
    }

    /// Why a copy of `source` starts again despite this journal.
    pub(crate) fn why_afresh(&self, source: &SourceIdentity) -> String {
        let why = if self.version != VERSION {
            "another version of remora began it"
        } else if self.source != *source {
            "the source changed (its data, mode, owner or links)"
        } else {
            "its temporary file is missing or changed"
        };
        format!("the copy starts again: {why}")
    }
}

#[derive(Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    /// Set by [`remove`](JournalFile::remove). Held while writing, so that no late writer brings a removed journal
    /// back.
    closed: Mutex<bool>,
}

impl JournalFile {
    pub(crate) fn at(path: PathBuf) -> JournalFile {
        JournalFile { path, closed: Mutex::new(false) }
    }

    /// Reads the journal; `None` if it is unreadable or not ours.
    pub(crate) fn load(&self) -> Option<Journal> {
        serde_json::from_slice(&read_note(&self.path, BYTES_MAX)?).ok()
    }

    /// Replaces the journal.
    pub(crate) fn store(&self, journal: &Journal) -> io::Result<()> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Ok(());
        }
        write_note(&self.path, &serde_json::to_vec(journal)?)
    }

    /// Removes the journal of an earlier copy. Returns whether none is left.
    pub(crate) fn clear(&self) -> bool {
        fs::remove_file(&self.path).is_ok() || !self.path.exists()
    }

    /// Removes the journal for good.
    pub(crate) fn remove(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = true;
        // It may never have been written.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cp::resume::source_state::tests::source;

    #[test]
    fn journal_is_used_only_for_its_own_copy() {
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
        let why = |journal: &Journal, secs| journal.why_afresh(&source(100, secs));
        assert!(why(&journal, 8).contains("changed") && why(&journal, 7).contains("missing"));
        journal.version -= 1;
        assert!(!journal.is_about(&source(100, 7), 9, 100));
        assert!(why(&journal, 7).contains("version"));
    }

    #[test]
    fn journal_once_removed_stays_removed() {
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
}
