//! What is known of an unfinished copy: which source it is of, and what of it is safe.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::hidden::{read_note, write_note};
use super::identity::Identity;
use super::names::{is_part, is_plain};
use super::part::sync_name;
use super::ranges::Ranges;

/// Journals of another version are not understood, and not used.
const VERSION: u32 = 3;
/// No file has this mark.
pub(super) const NO_PART: &str = "";
/// No journal is longer.
const BYTES_MAX: u64 = 16 << 20;

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
    /// What has the final name may be what an earlier try left unfinished. Former versions do not note that.
    #[serde(default)]
    is_other_partial: bool,
    /// Which file that is, by the same means as `part`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_partial: Option<String>,
    /// The hidden name of that file on a server. Former versions do not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hidden: Option<Vec<u8>>,
}

impl Journal {
    /// Of a copy that begins.
    pub(crate) fn new(source: Identity, part: impl ToString) -> Journal {
        let (part, done) = (part.to_string(), Ranges::default());
        let (is_named, is_other_partial, other_partial, hidden) = (false, false, None, None);
        Journal { version: VERSION, source, part, done, is_named, is_other_partial, other_partial, hidden }
    }

    /// The same, in a file with this hidden name.
    pub(crate) fn hidden_as(self, name: &[u8]) -> Journal {
        Journal { hidden: Some(name.to_owned()), ..self }
    }

    /// The hidden name of the file, if that was noted.
    pub(crate) fn hidden(&self) -> Option<&[u8]> {
        self.hidden.as_deref().filter(|name| is_part(name) && is_plain(name))
    }

    /// The same, while what an earlier try left, `other`, may have the final name.
    pub(crate) fn beside_partial(self, other: &str) -> Journal {
        Journal { is_other_partial: true, other_partial: Some(other.to_owned()), ..self }
    }

    /// What is left of it when the file that was copied to is gone; `None` if that is nothing.
    pub(crate) fn without_part(&self) -> Option<Journal> {
        let (is_other_partial, other_partial) = (self.is_other_partial, self.other_partial.clone());
        let left = || Journal { is_other_partial, other_partial, ..Journal::new(self.source.clone(), NO_PART) };
        is_other_partial.then(left)
    }

    /// Bytes in the source.
    pub(crate) fn size(&self) -> u64 {
        self.source.size()
    }

    /// Whether nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.done.missing(self.source.size()).is_empty()
    }

    /// Whether it is of a copy of this source, in whatever state that was.
    pub(crate) fn is_of(&self, source: &Identity) -> bool {
        self.source.is_same_file(source)
    }

    /// Whether it says that this file has its final name and may be unfinished.
    fn tells_of(&self, file: &str) -> bool {
        (self.is_named && self.part == file) || self.other_partial.as_deref() == Some(file)
    }

    /// Whether it is about a copy in this file.
    pub(crate) fn is_in(&self, part: &str) -> bool {
        self.part == part
    }

    /// Whether it is about this copy, of which `part_size` bytes are there.
    pub(crate) fn is_about(&self, source: &Identity, part: impl ToString, part_size: u64) -> bool {
        let fits = self.done.is_sound() && self.done.end() <= part_size.min(source.size());
        fits && self.version == VERSION && self.source == *source && self.part == part.to_string()
    }

    /// Why a copy of `source` begins afresh although this was noted.
    pub(crate) fn why_afresh(&self, source: &Identity) -> String {
        let why = if self.version != VERSION {
            "another version of this program had begun it"
        } else if self.source != *source {
            "its source has changed, or its source's mode, owner or names have"
        } else {
            "what had arrived is not there any more"
        };
        format!("the copy begins afresh: {why}")
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

    /// Whether what has the final name may be unfinished: so it is where a note says so, and may be where there
    /// is one that cannot be read.
    pub(crate) fn tells_of_partial(&self) -> bool {
        self.path.exists() && self.load().is_none_or(|journal| journal.is_named || journal.is_other_partial)
    }

    /// Whether this very file may be, by a note that may be about others, too.
    pub(crate) fn tells_of(&self, file: &str) -> bool {
        self.load().is_some_and(|journal| journal.tells_of(file))
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
    use super::super::identity::tests::source;
    use super::*;

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
        let why = |journal: &Journal, secs| journal.why_afresh(&source(100, secs));
        assert!(why(&journal, 8).contains("changed") && why(&journal, 7).contains("not there"));
        journal.version -= 1;
        assert!(!journal.is_about(&source(100, 7), 9, 100));
        assert!(why(&journal, 7).contains("version"));
    }

    #[test]
    fn what_has_the_name_may_be_partial_where_a_note_says_so_or_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let file = JournalFile::at(path.clone());
        assert!(!file.tells_of_partial());
        let plain = Journal::new(source(100, 7), 9);
        let beside = plain.clone().beside_partial("8");
        let left = beside.without_part().unwrap();
        assert_eq!((plain.without_part(), left.without_part().as_ref()), (None, Some(&left)));
        for (journal, want) in
            [(plain.clone(), false), (Journal { is_named: true, ..plain }, true), (beside, true), (left, true)]
        {
            file.store(&journal).unwrap();
            assert_eq!(file.tells_of_partial(), want, "{journal:?}");
            let of = if journal.is_named { "9" } else { "8" };
            assert!(file.tells_of(of) == want && !file.tells_of("7"), "{journal:?}");
        }
        fs::write(path, b"{\"version\":1").unwrap();
        assert!(file.tells_of_partial() && !file.tells_of("9"));
    }

    /// Of a version that noted no time of change: it is understood as far as to say so.
    #[test]
    fn a_journal_of_a_former_version_is_read_and_not_used() {
        let mut old = serde_json::to_value(Journal { version: 2, ..Journal::new(source(100, 7), 9) }).unwrap();
        old["source"].as_object_mut().unwrap().remove("ctime").unwrap();
        let old: Journal = serde_json::from_value(old).unwrap();
        assert!(!old.is_about(&source(100, 7), 9, 100));
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
}
