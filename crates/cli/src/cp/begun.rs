//! Notes that a directory was begun under a new name, kept in the state directory until it is
//! complete. When `--resume` comes something has the name, and without a note the same command
//! would copy into it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::hidden::{read_note, write_note};
use super::left::mark;
use super::notes::{self, Notes, digest, hash, user};
use crate::remote::Node;
use crate::servers::Place;
use crate::state;

/// No note is longer.
const BYTES_MAX: u64 = 1 << 10;

/// A directory, by its file system and its number there.
pub(crate) type Directory = (u64, u64);

/// What is noted.
#[derive(Default, Debug, Serialize, Deserialize)]
struct Note {
    /// The directory that was made; none before it is known whether it was.
    directory: Option<Directory>,
    /// The one on the server, by its handle. Former versions do not note it.
    there: Option<String>,
}

/// The note about the copy of one directory to one name. It is found by that, by this machine's name and by the
/// server's address; where one of the two is another now it is found by the handle of the directory on the server.
#[derive(Debug)]
pub(crate) struct Begun {
    /// `None` where there is no place for it: then nobody knows.
    notes: Option<Notes>,
    /// The directory on the server, if it is known.
    there: Option<String>,
}

impl Begun {
    /// Of `source` to the very name that `place` has.
    pub(crate) fn up(source: &Path, place: &Place) -> Begun {
        Begun::new("up", source, place, None)
    }

    /// Of `node`, which lies at `place`, to `dest` itself.
    pub(crate) fn down(place: &Place, node: &Node, dest: &Path) -> Begun {
        Begun::new("down", dest, place, Some(mark(&node.fh)))
    }

    /// Nothing is noted.
    pub(crate) fn never() -> Begun {
        Begun { notes: None, there: None }
    }

    fn new(way: &str, here: &Path, place: &Place, there: Option<String>) -> Begun {
        // Without the slash that may be at its end.
        let here: PathBuf = here.components().collect();
        let whole = std::path::absolute(&here).unwrap_or_else(|_| here.clone());
        let path = place.path.as_bytes();
        let broad = digest(&[&user(), way.as_bytes(), path, whole.as_os_str().as_encoded_bytes()]);
        Begun { notes: Notes::new("tree-", &broad, &hash(&place.remote, &here, path, way)), there }
    }

    /// It is about to be made; whether it was is not known until the answer is there.
    pub(crate) fn begin(&self) {
        self.write(&Note::default());
    }

    /// It was made here, and is this one.
    pub(crate) fn made(&self, directory: Directory) {
        self.write(&Note { directory: Some(directory), there: self.there.clone() });
    }

    /// It was made on the server, or was there from an earlier try. That is noted once from now on.
    pub(crate) fn made_there(&self, node: &Node) {
        let there = Some(mark(&node.fh));
        self.write(&Note { directory: Some(node.number()), there: there.clone() });
        self.forget_others(&there);
    }

    /// Best effort: a copy that cannot be resumed is still one.
    fn write(&self, note: &Note) {
        let Some(path) = self.notes.as_ref().map(Notes::own) else { return };
        let Ok(text) = serde_json::to_vec(note) else { return };
        if path.parent().is_some_and(|dir| state::make_private(dir).is_ok()) {
            let _ = write_note(&path, &text);
        }
    }

    /// Whether `directory`, which has the name here now, is what an earlier copy left unfinished.
    pub(crate) fn is(&self, directory: Directory) -> bool {
        self.noted().iter().any(|(name, note)| note.fits(directory) && (name.is_exact || note.is_of(&self.there)))
    }

    /// Whether `node`, which has the name on the server now, is. What has its handle is it, whatever number the server
    /// gives it since.
    pub(crate) fn is_there(&self, node: &Node) -> bool {
        let there = Some(mark(&node.fh));
        self.noted().iter().any(|(name, note)| note.is_of(&there) || (name.is_exact && note.fits(node.number())))
    }

    /// It is complete, or not meant any more.
    pub(crate) fn forget(&self) {
        self.names().iter().filter(|name| name.is_exact).for_each(remove);
        self.forget_others(&self.there);
    }

    /// The same for `node`.
    pub(crate) fn forget_there(&self, node: &Node) {
        self.forget();
        self.forget_others(&Some(mark(&node.fh)));
    }

    /// Forgets what was noted of this directory when the server had another address.
    fn forget_others(&self, there: &Option<String>) {
        let noted = self.noted();
        noted.iter().filter(|(name, note)| !name.is_exact && note.is_of(there)).for_each(|(name, _)| remove(name));
    }

    fn noted(&self) -> Vec<(notes::Note, Note)> {
        self.names().into_iter().filter_map(|name| Some((name.clone(), Note::read(&name)?))).collect()
    }

    fn names(&self) -> Vec<notes::Note> {
        self.notes.as_ref().map_or_else(Vec::new, Notes::all)
    }
}

impl Note {
    /// Former versions noted the directory alone.
    fn read(name: &notes::Note) -> Option<Note> {
        let text = read_note(&name.path, BYTES_MAX)?;
        let former = |text: &[u8]| Some(Note { directory: serde_json::from_slice(text).ok()?, there: None });
        serde_json::from_slice(&text).ok().or_else(|| former(&text))
    }

    fn fits(&self, directory: Directory) -> bool {
        self.directory.is_none_or(|noted| noted == directory)
    }

    fn is_of(&self, there: &Option<String>) -> bool {
        there.is_some() && self.there == *there
    }
}

fn remove(name: &notes::Note) {
    // Best effort: another run may have done it.
    let _ = fs::remove_file(&name.path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_begun_is_taken_up() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::in_dir(dir.path(), "tree-", "b", "e");
        let path = notes.own();
        let begun = Begun { notes: Some(notes), there: None };
        assert!(!begun.is((1, 2)));
        begun.begin();
        assert!(begun.is((1, 2)), "it may be");
        begun.made((1, 2));
        assert!(begun.is((1, 2)) && !begun.is((1, 3)), "one made by somebody else later");
        fs::write(&path, "[1,").unwrap();
        assert!(!begun.is((1, 2)));
        for (former, want) in [("[1,2]", true), ("[1,3]", false), ("null", true)] {
            fs::write(&path, former).unwrap();
            assert_eq!(begun.is((1, 2)), want, "{former}");
        }
        fs::write(&path, "[1,").unwrap();
        begun.forget();
        assert!(!path.exists());
    }
}
