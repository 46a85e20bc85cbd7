//! What notes about unfinished copies are called in the state directory, and which of those that earlier runs left there
//! are to be looked at.
//!
//! A note has two names in one. The exact one has in it at which address the server was and what the files were called
//! on both sides, so that no two copies share a note; but a server is reached at another address tomorrow. The broad one
//! has only what stays, so that it finds more than is meant: what such a note is about is to be told by a handle.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::journal::{JournalFile, with_suffix};
use super::lock::LockFile;
use super::upload::Destination;
use crate::remote::Remote;
use crate::state;

/// How many notes of earlier runs are looked at.
const LEFT_MAX: usize = 10_000;

/// The notes about copies of one thing to one place.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    dir: PathBuf,
    /// What they begin with.
    kind: &'static str,
    broad: String,
    /// And what they end with.
    exact: String,
}

/// One that may be about the copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) path: PathBuf,
    /// It has the exact name.
    pub(super) is_exact: bool,
}

impl Notes {
    /// `None` where there is no place for them.
    pub(super) fn new(kind: &'static str, broad: &str, exact: &str) -> Option<Notes> {
        Some(Notes::in_dir(&state::user_dir()?, kind, broad, exact))
    }

    pub(super) fn in_dir(dir: &Path, kind: &'static str, broad: &str, exact: &str) -> Notes {
        Notes { dir: dir.to_owned(), kind, broad: broad.to_owned(), exact: exact.to_owned() }
    }

    /// About copies to this name: all that are made to that, whatever server says to have the directory's handle.
    pub(super) fn of_upload(source: &Path, dest: &Destination) -> Option<Notes> {
        let broad = digest(&[&user(), &dest.dir.fh.0, &dest.name]);
        let notes = Notes::new("upload-", &broad, &format!("{}.json", key(source, dest)))?;
        state::make_private(&notes.dir).ok()?;
        Some(notes)
    }

    /// Where this run notes.
    pub(super) fn own(&self) -> PathBuf {
        self.dir.join(format!("{}{}-{}", self.kind, self.broad, self.exact))
    }

    /// What sets copies here apart. Former versions have the same.
    pub(super) fn lock(&self) -> io::Result<LockFile> {
        lock_of(&self.own())
    }

    /// Those that are there, the likeliest first.
    pub(super) fn all(&self) -> Vec<Note> {
        static LEFT: OnceLock<Vec<String>> = OnceLock::new();
        // What this run adds to them it finds by its own name.
        let left = LEFT.get_or_init(|| {
            let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.filter(|name| !name.ends_with(".lock")).take(LEFT_MAX).collect()
        });
        let mut found = self.among(left);
        found.retain(|note| note.path.exists());
        found
    }

    /// Those of `left` that may be about the copy, behind its own. Former versions had no broad names.
    fn among(&self, left: &[String]) -> Vec<Note> {
        let own = self.own();
        let named = left.iter().filter_map(|name| {
            let rest = name.strip_prefix(self.kind)?;
            let is_exact = rest.ends_with(&self.exact);
            let path = self.dir.join(name);
            ((is_exact || rest.starts_with(&self.broad)) && path != own).then_some(Note { path, is_exact })
        });
        let mut notes: Vec<Note> = named.collect();
        notes.sort_by_key(|note| !note.is_exact);
        notes.insert(0, Note { path: own, is_exact: true });
        notes
    }

    /// The copy is complete: removes the notes with the exact name. Its lock is held.
    pub(super) fn forget(&self) {
        self.all().into_iter().filter(|note| note.is_exact).for_each(|note| JournalFile::at(note.path).remove());
    }
}

/// Takes the lock that copies with this exact name have.
pub(super) fn lock_of(note: &Path) -> io::Result<LockFile> {
    let name = note.file_name().unwrap_or_default().to_string_lossy();
    let (kind, exact) = (name.split('-').next().unwrap_or_default(), name.rsplit('-').next().unwrap_or_default());
    LockFile::acquire(&with_suffix(&note.with_file_name(format!("{kind}-{exact}")), ".lock"))
}

/// Names a copy by who copies what to where, however path and URL put it, and whatever this machine is called by
/// now. Another address may be another server, whose directories have the same numbers.
fn key(source: &Path, dest: &Destination) -> String {
    let dir = &dest.dir.attr;
    hash_for(b"", &dest.remote, &whole_path(source), &dest.name, &format!("{} {}", dir.fsid, dir.fileid))
}

/// The one path of a source that has several.
pub(super) fn whole_path(source: &Path) -> PathBuf {
    fs::canonicalize(source).unwrap_or_else(|_| source.to_owned())
}

/// Names a copy: who copies what to where.
pub(super) fn hash(remote: &Remote, source: &Path, name: &[u8], dir: &str) -> String {
    let host = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    hash_for(&host, remote, source, name, dir)
}

fn hash_for(host: &[u8], remote: &Remote, source: &Path, name: &[u8], dir: &str) -> String {
    let source = std::path::absolute(source).unwrap_or_else(|_| source.to_owned());
    let server = remote.session().server();
    let server = server.rsplit_once(':').map_or(server, |(ip, _port)| ip);
    let who_where = [&user()[..], b" ", dir.as_bytes()].concat();
    digest(&[host, &who_where, server.as_bytes(), name, source.as_os_str().as_encoded_bytes()])
}

pub(super) fn user() -> Vec<u8> {
    rustix::process::geteuid().as_raw().to_string().into_bytes()
}

pub(super) fn digest(parts: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_by_either_name_and_the_exact_one_first() {
        let dir = PathBuf::from("/d");
        let notes = Notes::in_dir(&dir, "upload-", "b0", "e0.json");
        let left =
            ["upload-b0-e1.json", "upload-e0.json", "upload-b0-e0.json", "upload-b1-e0.json", "upload-b1-e1.json"];
        let left: Vec<String> = left.iter().chain(&["tree-b0-e0.json", "id"]).map(ToString::to_string).collect();
        let found = notes.among(&left);
        let want = [("upload-b0-e0.json", true), ("upload-e0.json", true), ("upload-b1-e0.json", true)];
        let want = want.into_iter().chain([("upload-b0-e1.json", false)]);
        assert_eq!(found, want.map(|(name, is_exact)| Note { path: dir.join(name), is_exact }).collect::<Vec<_>>());
    }

    #[test]
    fn copies_with_one_exact_name_have_one_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock_of(&dir.path().join("upload-b0-e0.json")).unwrap();
        assert!(dir.path().join("upload-e0.json.lock").exists());
        assert!(
            lock_of(&dir.path().join("upload-e0.json")).is_err()
                && lock_of(&dir.path().join("upload-b0-e1.json")).is_ok()
        );
        drop(lock);
    }
}
