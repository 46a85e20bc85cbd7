//! Objects that this command has created, which no later source may replace.
//!
//! Some file systems and servers take different names for one: upper and lower case, composed and decomposed letters.
//! Only they know which. So `cp` compares the object that a copy would replace with those that it has created.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::output::escape;
use crate::output::exit::{Error, Result};
use crate::remote::listing::Node;

/// Largest number of directory entries searched for another name of an inode.
const SEARCHED_MAX: usize = 10_000;

/// Identity of an object: device and inode number here, handle hash on a server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileKey([u8; 16]);

impl FileKey {
    pub(crate) fn of_local(meta: &fs::Metadata) -> FileKey {
        FileKey((u128::from(meta.dev()) << 64 | u128::from(meta.ino())).to_be_bytes())
    }

    pub(crate) fn of_handle(node: &Node) -> FileKey {
        FileKey::hash(&[&node.fh.0])
    }

    /// Of an object that may have another handle under each name. It includes the times, for some servers give all
    /// files one number.
    fn of_attributes(node: &Node) -> FileKey {
        let attr = &node.attr;
        let times = [attr.mtime.secs, attr.mtime.nanos, attr.ctime.secs, attr.ctime.nanos].map(u32::to_be_bytes);
        let numbers = [attr.fsid, attr.fileid, attr.size].map(u64::to_be_bytes);
        FileKey::hash(&[numbers.as_flattened(), times.as_flattened()])
    }

    fn hash(parts: &[&[u8]]) -> FileKey {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        let mut key = [0; 16];
        hasher.finalize_xof().fill(&mut key);
        FileKey(key)
    }
}

/// Objects that this command has created or found complete: 16 bytes each.
#[derive(Debug, Default)]
pub(crate) struct CreatedObjects {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashSet<FileKey>,
    /// Names of objects that may be met again under another name.
    names: HashMap<FileKey, Box<[u8]>>,
}

impl CreatedObjects {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an object. Returns false if it was recorded before.
    pub(crate) fn note(&self, key: FileKey) -> bool {
        self.lock().keys.insert(key)
    }

    /// Records an object with its name on a server. Returns false if it was recorded before.
    pub(crate) fn note_named(&self, node: &Node, name: &[u8]) -> bool {
        let keys = [FileKey::of_handle(node), FileKey::of_attributes(node)];
        let mut state = self.lock();
        for key in keys {
            state.names.entry(key).or_insert_with(|| name.into());
        }
        state.keys.insert(keys[1]);
        state.keys.insert(keys[0])
    }

    /// Records the name of a local object. A directory may list another one, in lower case for example.
    pub(crate) fn remember_name(&self, path: &Path) {
        let (Ok(meta), Some(name)) = (fs::symlink_metadata(path), path.file_name()) else { return };
        let (key, mut state) = (FileKey::of_local(&meta), self.lock());
        if state.keys.contains(&key) {
            state.names.entry(key).or_insert_with(|| name.as_bytes().into());
        }
    }

    /// Fails if the local object `old` at `dest` was just created.
    pub(crate) fn check_here(&self, dest: &Path, old: &fs::Metadata) -> io::Result<()> {
        let (key, state) = (FileKey::of_local(old), self.lock());
        if !state.keys.contains(&key) {
            return Ok(());
        }
        let known = state.names.get(&key).map(|name| name.to_vec());
        drop(state);
        let other = known.or_else(|| Some(name_here(dest, key, old.ino())?.into_vec()));
        Err(io::Error::other(refusal(other.as_deref())))
    }

    /// Fails if `old`, which `source` would replace on the server, was just created.
    pub(crate) fn check_there(&self, source: &Path, old: &Node) -> Result {
        let state = self.lock();
        let keys = [FileKey::of_handle(old), FileKey::of_attributes(old)];
        let Some(key) = keys.iter().find(|key| state.keys.contains(key)) else { return Ok(()) };
        Err(Error::refused(source.display(), refusal(state.names.get(key).map(|name| &name[..]))))
    }
}

/// Why a source is not copied.
fn refusal(other: Option<&[u8]>) -> String {
    let other = other.map_or("another file".to_owned(), |name| format!("'{}'", escape::printable(name)));
    let what = "is not copied: it would replace";
    format!("{what} {other}, which was just copied: both names are the same at the destination")
}

/// Another name of the object at `path` in its directory.
fn name_here(path: &Path, key: FileKey, inode: u64) -> Option<OsString> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let others = || {
        let entries = fs::read_dir(dir).ok()?;
        Some(entries.filter_map(io::Result::ok).filter(|entry| Some(&*entry.file_name()) != path.file_name()))
    };
    let is_it = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|meta| FileKey::of_local(&meta) == key);
    let by_number = others()?.find(|entry| entry.ino() == inode && is_it(entry));
    let found = by_number.or_else(|| others()?.take(SEARCHED_MAX).find(is_it));
    found.map(|entry| entry.file_name())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs3::{Attr, Fh, FileType, NfsTime, SpecData};

    use super::*;

    /// A hard link stands for a file system that takes both names for one.
    #[test]
    fn just_created_file_is_not_replaced_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second, third] = ["README", "readme", "other"].map(|name| dir.path().join(name));
        let created = CreatedObjects::default();
        for path in [&first, &third] {
            fs::write(path, "").unwrap();
        }
        let look = |path: &Path| fs::symlink_metadata(path).unwrap();
        assert!(created.note(FileKey::of_local(&look(&first))));
        assert!(!created.note(FileKey::of_local(&look(&first))));
        fs::hard_link(&first, &second).unwrap();
        let error = created.check_here(&second, &look(&second)).unwrap_err();
        assert!(error.to_string().contains("'README'"), "{error}");
        assert!(created.check_here(&third, &look(&third)).is_ok(), "it was there before");
    }

    fn node(fh: &'static [u8], fileid: u64, ctime: u32) -> Node {
        let (kind, rdev, time) = (FileType::Regular, SpecData { major: 0, minor: 0 }, NfsTime { secs: 1, nanos: 0 });
        let (mode, nlink, uid, gid, size, used, fsid) = (0o600, 1, 0, 0, 8, 8, 1);
        let (atime, mtime, ctime) = (time, time, NfsTime { secs: ctime, nanos: 0 });
        let attr = Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime };
        Node { fh: Fh(Bytes::from_static(fh)), attr }
    }

    #[test]
    fn file_on_a_server_is_known_by_handle_or_attributes() {
        let created = CreatedObjects::default();
        assert!(created.note_named(&node(b"a", 1, 5), b"README"));
        for (found, is_known) in [
            (node(b"a", 1, 9), true),
            (node(b"b", 1, 5), true),
            (node(b"b", 1, 4), false), // A server that gives all files the same number.
            (node(b"b", 2, 5), false),
        ] {
            let checked = created.check_there(Path::new("readme"), &found);
            assert_eq!(checked.is_err(), is_known, "{found:?}");
            if let Err(e) = checked {
                let text = e.to_string();
                assert!(text.starts_with("readme: ") && text.contains("'README'"), "{text}");
            }
        }
    }
}
