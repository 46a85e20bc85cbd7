//! Notes that a directory was begun under a new name, kept in the state directory until it is
//! complete. When `--resume` comes something has the name, and without a note the same command
//! would copy into it.

use std::fs;
use std::path::{Path, PathBuf};

use super::hidden::{read_note, write_note};
use super::remote_part::hash;
use crate::servers::Place;
use crate::state;

/// No note is longer.
const BYTES_MAX: u64 = 1 << 10;

/// A directory, by its file system and its number there.
pub(crate) type Directory = (u64, u64);

/// The note about the copy of one directory to one name.
#[derive(Debug)]
pub(crate) struct Begun {
    /// `None` where there is no place for it: then nobody knows.
    path: Option<PathBuf>,
}

impl Begun {
    /// Of `source` to the very name that `place` has.
    pub(crate) fn up(source: &Path, place: &Place) -> Begun {
        Begun::new("up", source, place)
    }

    /// Of what lies at `place` to `dest` itself.
    pub(crate) fn down(place: &Place, dest: &Path) -> Begun {
        Begun::new("down", dest, place)
    }

    /// Nothing is noted.
    pub(crate) fn never() -> Begun {
        Begun { path: None }
    }

    fn new(way: &str, here: &Path, place: &Place) -> Begun {
        // Without the slash that may be at its end.
        let here: PathBuf = here.components().collect();
        let key = hash(&place.remote, &here, place.path.as_bytes(), way);
        Begun { path: state::user_dir().map(|dir| dir.join(format!("tree-{key}"))) }
    }

    /// It is about to be made; whether it was is not known until the answer is there.
    pub(crate) fn begin(&self) {
        self.write(None);
    }

    /// It was made, and is this one.
    pub(crate) fn made(&self, directory: Directory) {
        self.write(Some(directory));
    }

    /// Best effort: a copy that cannot be resumed is still one.
    fn write(&self, directory: Option<Directory>) {
        let Some(path) = &self.path else { return };
        let Ok(text) = serde_json::to_vec(&directory) else { return };
        if path.parent().is_some_and(|dir| state::make_private(dir).is_ok()) {
            let _ = write_note(path, &text, false);
        }
    }

    /// Whether `directory`, which has the name now, is what an earlier copy left unfinished.
    pub(crate) fn is(&self, directory: Directory) -> bool {
        let text = self.path.as_ref().and_then(|path| read_note(path, BYTES_MAX));
        let noted = text.and_then(|text| serde_json::from_slice::<Option<Directory>>(&text).ok());
        noted.is_some_and(|noted| noted.is_none_or(|noted| noted == directory))
    }

    /// It is complete, or not meant any more.
    pub(crate) fn forget(&self) {
        if let Some(path) = &self.path {
            // One that was never written is not there.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_begun_is_taken_up() {
        let path = std::env::temp_dir().join(format!("remora-begun-{}", std::process::id()));
        let begun = Begun { path: Some(path.clone()) };
        assert!(!begun.is((1, 2)));
        begun.begin();
        assert!(begun.is((1, 2)), "it may be");
        begun.made((1, 2));
        assert!(begun.is((1, 2)) && !begun.is((1, 3)), "one made by somebody else later");
        fs::write(&path, "[1,").unwrap();
        assert!(!begun.is((1, 2)));
        begun.forget();
        assert!(!path.exists());
    }
}
