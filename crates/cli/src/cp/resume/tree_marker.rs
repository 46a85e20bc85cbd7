//! The marker of an unfinished tree copy: the directory that `cp -r` made under a name that was free.
//!
//! It is kept in the state directory until the tree is complete. `cp -r --resume` completes a directory that has a
//! marker, and copies into any other.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::state_dir;
use crate::cp::resume::resume_index::{self, Direction, handle_hash};
use crate::cp::resume::temp_file::{read_note, write_note};
use crate::remote::listing::Node;
use crate::remote::servers::Place;

/// Largest marker that is read, in bytes.
const BYTES_MAX: u64 = 1 << 10;

/// Device and inode number of a local directory.
pub(crate) type LocalDirectory = (u64, u64);

/// Content of a marker.
#[derive(Default, Debug, Serialize, Deserialize)]
struct Note {
    /// Address of the server.
    server: String,
    /// The directory that a download made; `None` before the answer to mkdir(2).
    local: Option<LocalDirectory>,
    /// Handle hash of the directory on the server; `None` before the answer to MKDIR.
    remote: Option<String>,
}

/// The marker of the copy of one directory to one name.
#[derive(Debug)]
pub(crate) struct TreeMarker {
    /// `None` without a state directory, and where no marker is wanted.
    path: Option<PathBuf>,
    server: String,
    /// Handle hash of the source of a download.
    source: Option<String>,
}

impl TreeMarker {
    /// For an upload of `source` to the name that `place` has.
    pub(crate) fn up(source: &Path, place: &Place) -> TreeMarker {
        TreeMarker {
            path: resume_index::tree_marker(Direction::Up, source, place),
            server: server_of(place),
            source: None,
        }
    }

    /// For a download of `node`, which lies at `place`, to `dest`.
    pub(crate) fn down(place: &Place, node: &Node, dest: &Path) -> TreeMarker {
        let (path, source) = (resume_index::tree_marker(Direction::Down, dest, place), Some(handle_hash(&node.fh)));
        TreeMarker { path, server: server_of(place), source }
    }

    pub(crate) fn never() -> TreeMarker {
        TreeMarker { path: None, server: String::new(), source: None }
    }

    /// The directory is about to be made.
    pub(crate) fn begin(&self) {
        self.write(None, self.source.clone());
    }

    /// A download made `directory`.
    pub(crate) fn made(&self, directory: LocalDirectory) {
        self.write(Some(directory), self.source.clone());
    }

    /// An upload made `node`, or completes it.
    pub(crate) fn made_there(&self, node: &Node) {
        self.write(None, Some(handle_hash(&node.fh)));
    }

    /// Best effort: a copy that cannot be resumed is still one.
    fn write(&self, local: Option<LocalDirectory>, remote: Option<String>) {
        let Some(path) = &self.path else { return };
        let Ok(text) = serde_json::to_vec(&Note { server: self.server.clone(), local, remote }) else { return };
        if path.parent().is_some_and(|dir| state_dir::make_private(dir).is_ok()) {
            let _ = write_note(path, &text);
        }
    }

    /// Whether an unfinished download of this source made `directory`.
    pub(crate) fn is(&self, directory: LocalDirectory) -> bool {
        self.read().is_some_and(|note| note.remote == self.source && note.local.is_none_or(|made| made == directory))
    }

    /// Whether an unfinished upload made `node`.
    pub(crate) fn is_there(&self, node: &Node) -> bool {
        self.read().is_some_and(|note| match note.remote {
            Some(made) => made == handle_hash(&node.fh),
            None => note.server == self.server,
        })
    }

    /// Removes the marker: the tree is complete, or is to be copied into.
    pub(crate) fn forget(&self) {
        // Best effort: another run may have done it.
        let _ = self.path.as_ref().map(fs::remove_file);
    }

    fn read(&self) -> Option<Note> {
        serde_json::from_slice(&read_note(self.path.as_ref()?, BYTES_MAX)?).ok()
    }
}

fn server_of(place: &Place) -> String {
    place.remote.session().addr().ip().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_fits_only_the_directory_that_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tree-0");
        let of =
            |source: &str| TreeMarker { path: Some(path.clone()), server: "s".into(), source: Some(source.into()) };
        let begun = of("source");
        assert!(!begun.is((1, 2)));
        begun.begin();
        assert!(begun.is((1, 2)), "mkdir(2) may have been done");
        begun.made((1, 2));
        assert!(begun.is((1, 2)) && !begun.is((1, 3)), "a directory made later");
        assert!(!of("another").is((1, 2)), "a copy of another source");
        fs::write(&path, "[1,").unwrap();
        assert!(!begun.is((1, 2)));
        begun.forget();
        assert!(!path.exists());
    }
}
