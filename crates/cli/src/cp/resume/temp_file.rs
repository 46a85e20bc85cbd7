//! Temporary files in directories where others may write. One is resumed only if this user or root owns it, and nothing
//! is read or written through a link.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::cp::resume::lock_file::{AS_IT_IS, TRIES_MAX, busy, is_at, lock};
use crate::cp::resume::temp_name::with_suffix;

/// Opens and locks the temporary file at `path`: the existing one if it is ours and `known` finds its journal, else a
/// new one. Fails if another copy holds it.
pub(crate) fn open<T>(path: &Path, known: impl Fn(&File) -> io::Result<Option<T>>) -> io::Result<(File, Option<T>)> {
    for _ in 0..TRIES_MAX {
        if let Some(left) = open_left(path)? {
            if !is_owned(path, &left)? {
                continue;
            }
            if is_ours(&left.metadata()?)
                && let Some(known) = known(&left)?
            {
                return Ok((left, Some(known)));
            }
            remove_if_there(path)?;
        }
        if let Some(file) = make(path)? {
            return Ok((file, None));
        }
    }
    Err(busy())
}

/// Opens an existing file. Removes what cannot be opened, or fails.
fn open_left(path: &Path) -> io::Result<Option<File>> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(meta) if meta.is_file() => match open_both_ways(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Err(e),
            Ok(file) => return Ok(Some(file)),
            Err(_) => {}
        },
        _ => {}
    }
    remove_if_there(path)?;
    Ok(None)
}

/// Opens for reading and writing. A copy that was interrupted before its rename may have the mode of a read-only
/// source. Fails if another copy holds it.
fn open_both_ways(path: &Path) -> io::Result<File> {
    let open = |writes| OpenOptions::new().read(true).write(writes).custom_flags(AS_IT_IS).open(path);
    match open(true) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let file = open(false)?;
            if !is_ours(&file.metadata()?) {
                return Err(e);
            }
            // Another copy may be about to rename it with this mode.
            if !is_owned(path, &file)? {
                return Err(io::ErrorKind::NotFound.into());
            }
            file.set_permissions(Permissions::from_mode(0o600))?;
            open(true)
        }
        file => file,
    }
}

/// Whether only this user or root can have made it and it has one name: writing through a hard link would change
/// another file.
fn is_ours(found: &Metadata) -> bool {
    let us = rustix::process::geteuid().as_raw();
    found.is_file() && found.nlink() <= 1 && [us, 0].contains(&found.uid())
}

/// Creates a new file; `None` if another copy was faster.
fn make(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(e) => Err(e),
        Ok(file) => Ok(is_owned(path, &file)?.then_some(file)),
    }
}

/// Locks `file`; fails if another copy holds it. Returns whether `path` still names it.
fn is_owned(path: &Path, file: &File) -> io::Result<bool> {
    lock(file)?;
    Ok(is_at(path, file))
}

/// Reads the note at `path`, if it is ours and has at most `max` bytes.
pub(crate) fn read_note(path: &Path, max: u64) -> Option<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(AS_IT_IS).open(path).ok()?;
    let meta = file.metadata().ok().filter(is_ours)?;
    let mut note = Vec::new();
    // It may grow meanwhile.
    file.take(max + 1).read_to_end(&mut note).ok()?;
    (meta.len() <= max && note.len() as u64 <= max).then_some(note)
}

/// Replaces the note at `path`.
pub(crate) fn write_note(path: &Path, note: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    // Left by a killed copy, or put there by somebody: removed, not followed.
    remove_if_there(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(note)?;
    fs::rename(&new, path)
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn afresh(path: &Path) -> io::Result<File> {
        open(path, |_| Ok(None::<()>)).map(|(file, _)| file)
    }

    #[test]
    fn file_removed_before_its_lock_is_not_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "left").unwrap();
        let left = open_left(&path).unwrap().unwrap();
        // Meanwhile another copy locks it, removes it and makes its own.
        let _first = afresh(&path).unwrap();
        assert!(!is_owned(&path, &left).unwrap(), "it can be locked, and is worth nothing");
        assert_eq!(afresh(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    }

    #[test]
    fn file_made_by_another_copy_meanwhile_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert!(open_left(&path).unwrap().is_none());
        let first = afresh(&path).unwrap();
        assert!(make(&path).unwrap().is_none());
        assert!(is_at(&path, &first));
    }

    /// Links of both kinds, and files of other users.
    #[test]
    fn only_own_temporary_files_are_resumed() {
        for how in ["link", "hard link", "another's", "ours"] {
            let dir = tempfile::tempdir().unwrap();
            let [path, other] = ["x", "other"].map(|name| dir.path().join(name));
            fs::write(&other, "other").unwrap();
            match how {
                "link" => symlink(&other, &path).unwrap(),
                "hard link" => fs::hard_link(&other, &path).unwrap(),
                _ => fs::write(&path, "other").unwrap(),
            }
            if how == "another's" && std::os::unix::fs::chown(&path, Some(2001), None).is_err() {
                // Requires root.
                continue;
            }
            let note = read_note(&path, 5);
            let (file, known) = open(&path, |_| Ok(Some(()))).unwrap();
            assert_eq!((note.is_some(), known.is_some()), (how == "ours", how == "ours"), "{how}");
            if known.is_none() {
                let made = file.metadata().unwrap();
                assert_eq!((made.mode() & 0o777, made.nlink(), made.len()), (0o600, 1, 0), "{how}");
            }
            (&file).write_all(b"mine").unwrap();
            assert_eq!(fs::read(&other).unwrap(), b"other", "{how}");
        }
    }

    #[test]
    fn note_is_not_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let [path, new, other] = ["x", "x.new", "other"].map(|name| dir.path().join(name));
        fs::write(&other, "other").unwrap();
        for at in [&path, &new] {
            symlink(&other, at).unwrap();
        }
        write_note(&path, b"mine").unwrap();
        assert_eq!((fs::read(&other).unwrap(), read_note(&path, 4)), (b"other".to_vec(), Some(b"mine".to_vec())));
        assert_eq!(read_note(&path, 3), None, "too long");
        assert!(!path.is_symlink() && fs::symlink_metadata(&new).is_err());
    }
}
