//! Names of the files received in this run, so that none is replaced through a name that the file system considers
//! equal (case folding).

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use crate::commands::transfer::recv::refusal::Refusal;
use crate::commands::transfer::recv::storage::hash_cache::Stamp;
use crate::output::escape;

/// Files that are remembered, some 100 bytes each.
const FILES_MAX: usize = 1 << 16;

/// A device and an inode number.
type Number = (u64, u64);

/// The names by inode. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenNames(Arc<Mutex<BTreeMap<Number, GivenName>>>);

#[derive(Debug)]
struct GivenName {
    name: String,
    /// The file's state when it got the name. A file changed since then may have been renamed, too.
    stamp: Option<Stamp>,
}

impl GivenNames {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Number, GivenName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a file that has this name now.
    pub(crate) fn note(&self, meta: &Metadata, name: &str) {
        // A file with several names may be meant by each of them.
        if meta.nlink() <= 1 {
            insert(&mut self.lock(), meta, GivenName { name: name.to_owned(), stamp: Some(Stamp::of(meta)) });
        }
    }

    /// Fails if the file that is at `path` was received in this run under a name other than `name`.
    pub(crate) fn check(&self, path: &Path, name: &str) -> Result<(), Refusal> {
        check(&self.lock(), path, name)
    }

    /// Moves a file to `path` by `rename`, unless a file is there that was received under a name other than `name`.
    pub(crate) fn give(
        &self,
        path: &Path,
        name: &str,
        file: &Metadata,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut given = self.lock();
        check(&given, path, name).map_err(io::Error::other)?;
        rename()?;
        insert(&mut given, file, GivenName { name: name.to_owned(), stamp: None });
        Ok(())
    }
}

fn insert(given: &mut BTreeMap<Number, GivenName>, meta: &Metadata, name: GivenName) {
    let number = (meta.dev(), meta.ino());
    if given.len() >= FILES_MAX && !given.contains_key(&number) {
        given.pop_first();
    }
    given.insert(number, name);
}

fn check(given: &BTreeMap<Number, GivenName>, path: &Path, name: &str) -> Result<(), Refusal> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    let Some(known) = given.get(&(meta.dev(), meta.ino())) else { return Ok(()) };
    let is_unchanged = known.stamp.is_none_or(|stamp| stamp == Stamp::of(&meta));
    if !is_unchanged || name == known.name {
        return Ok(());
    }
    Err(format!(
        "its name is here the same as '{}', which was received before",
        escape::printable(known.name.as_bytes())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second name of the same inode stands for a file system that takes both names for one.
    #[test]
    fn received_file_is_not_replaced_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second, hidden] = ["README", "readme", ".part"].map(|name| dir.path().join(name));
        let given = GivenNames::default();
        fs::write(&hidden, "first").unwrap();
        let meta = fs::metadata(&hidden).unwrap();
        given.give(&first, "README", &meta, || fs::rename(&hidden, &first)).unwrap();
        fs::hard_link(&first, &second).unwrap();
        fs::write(&hidden, "second").unwrap();
        let meta = fs::metadata(&hidden).unwrap();
        let replace = |path: &Path, name| given.give(path, name, &meta, || fs::rename(&hidden, path));
        assert!(replace(&second, "readme").unwrap_err().to_string().contains("'README'"));
        assert_eq!(fs::read(&second).unwrap(), b"first");
        let in_folded_dir = given.check(&first, "Dir/README").unwrap_err();
        assert!(in_folded_dir.contains("'README'"), "{in_folded_dir}");
        // The same name again is an update.
        replace(&first, "README").unwrap();
        assert_eq!(fs::read(&first).unwrap(), b"second");
    }

    #[test]
    fn renamed_received_file_has_its_new_name() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| dir.path().join(name));
        let given = GivenNames::default();
        fs::write(&first, "").unwrap();
        given.note(&fs::metadata(&first).unwrap(), "a");
        fs::rename(&first, &second).unwrap();
        fs::File::open(&second).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(given.check(&second, "b").is_ok());
    }
}
