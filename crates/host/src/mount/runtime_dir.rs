//! The directory of the control sockets: one socket for each mount, and beside it a note that describes the mount, which can
//! be read when the process is stopped.
//!
//! `/run/remora/mount` for root, else `$XDG_RUNTIME_DIR/remora/mount` or, without that, `/tmp/remora-UID/mount`. Only
//! its owner can enter it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// Mounts at the same directory, of which all but one are being unmounted.
const SAME_DIR_MAX: u32 = 16;
/// Longest note in bytes.
const NOTE_MAX: u64 = 64 << 10;

/// What is mounted, as its process noted it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountNote {
    pub url: String,
    pub dir: PathBuf,
    pub pid: u32,
}

/// Path of the directory; it may not exist.
pub fn path() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/remora/mount");
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = runtime.map_or_else(|| PathBuf::from(format!("/tmp/remora-{}", uid.as_raw())), |dir| dir.join("remora"));
    base.join("mount")
}

/// Creates the directory if it is missing. Fails if others can write to it.
pub(super) fn create(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    check_private(dir)?;
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}

/// Fails if the directory or its parent is another user's or can be written to by others: they could make sockets and
/// notes of their own.
fn check_private(dir: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for dir in [Some(dir), dir.parent()].into_iter().flatten() {
        let found = fs::symlink_metadata(dir)?;
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            let why = format!("{} is not a directory that only this user can write to", dir.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    Ok(())
}

/// Locks the directory: between `bind` and `listen` a socket looks as if its process were dead.
pub(super) fn lock(dir: &Path) -> io::Result<File> {
    let turn = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join("lock"))?;
    flock(&turn, FlockOperation::LockExclusive)?;
    Ok(turn)
}

/// Paths that a mount at `mount_point` can have for its socket. A mount that is being unmounted still has its own.
pub(super) fn socket_paths(dir: &Path, mount_point: &Path) -> impl Iterator<Item = PathBuf> {
    let mut hasher = SipHasher13::new();
    hasher.write(mount_point.as_os_str().as_bytes());
    let (dir, name) = (dir.to_owned(), format!("{:016x}", hasher.finish()));
    (1..=SAME_DIR_MAX).map(move |n| dir.join(if n == 1 { format!("{name}.sock") } else { format!("{name}-{n}.sock") }))
}

/// The note beside a socket.
fn note_path(socket: &Path) -> PathBuf {
    socket.with_extension("json")
}

/// Writes the note beside `socket`.
pub(super) fn write_note(socket: &Path, note: &MountNote) -> io::Result<()> {
    let path = note_path(socket);
    remove(&path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(serde_json::to_string(note)?.as_bytes())
}

/// The note beside `socket`.
pub(super) fn read_note(socket: &Path) -> io::Result<MountNote> {
    let path = note_path(socket);
    if fs::metadata(&path)?.len() > NOTE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Removes a socket and its note.
pub(super) fn remove_socket(socket: &Path) {
    // Either may have gone.
    let _ = remove(socket);
    let _ = remove(&note_path(socket));
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The sockets in `dir`, with and without a living process; none if the directory is missing. Fails if others can write
/// to it.
pub(super) fn sockets(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match check_private(dir).and_then(|()| fs::read_dir(dir)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    found.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_that_others_can_write_to_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("remora/mount");
        create(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(top.path().join("remora"), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(create(&dir).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(sockets(&dir).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn note_is_read_back_and_removed_with_its_socket() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("remora/mount");
        create(&dir).unwrap();
        let note = MountNote { url: "nfs://nas/srv".into(), dir: "/home/a/nas".into(), pid: 7 };
        let paths: Vec<PathBuf> = socket_paths(&dir, &note.dir).collect();
        fs::write(&paths[1], "").unwrap();
        for _ in 0..2 {
            write_note(&paths[1], &note).unwrap();
        }
        assert_eq!((read_note(&paths[1]).unwrap(), sockets(&dir).unwrap()), (note, vec![paths[1].clone()]));
        assert!(paths[0] != paths[1] && read_note(&paths[0]).is_err());
        remove_socket(&paths[1]);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
}
