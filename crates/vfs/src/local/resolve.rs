//! From an id to an open object.
//!
//! The table says under which names the object was last seen; openat2(2) follows them from the
//! root, beneath it, through no symbolic link and onto no other file system; statx(2) says
//! whether it is the object meant. If not, [`search`](super::search) looks for it.

use std::os::fd::{AsFd, OwnedFd};

use remora_wire::nfs3::{Attr, FileType, Status};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::errno::{self, OrStatus};
use super::ids::{self, Hint, Key};
use super::{LocalDisk, stat};
use crate::{FileId, Result};

/// Bytes of a path handed to the kernel at once: below PATH_MAX, which counts the NUL.
const PATH_PART: usize = 4000;
/// openat2 gives up with EAGAIN when somebody renames in the wrong moment.
const TRIES: usize = 16;

/// An object, opened for nothing but to name it (O_PATH): that asks no permission of the
/// object, blocks on no pipe and wakes no device.
pub(super) struct Object {
    pub(super) fd: OwnedFd,
    pub(super) key: Key,
    pub(super) hint: Hint,
    pub(super) attr: Attr,
}

impl LocalDisk {
    /// The object that `id` names.
    pub(super) fn resolve(&self, id: &FileId) -> Result<Object> {
        let (key, hint) = ids::decode(id).ok_or(Status::BadHandle)?;
        if key == self.root_key {
            return self.open_names(&[]).nfs()?.check(self, Hint::default(), key);
        }
        let path = self.table().path(key);
        if let Some(names) = path {
            match self.open_names(&names) {
                Ok(fd) => {
                    if let Ok(object) = fd.check(self, hint, key) {
                        return Ok(object);
                    }
                }
                // Somebody else renamed or removed a name on the way.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::STALE) => {}
                Err(e) => return Err(errno::status(e)),
            }
            self.table().forget(key);
        }
        self.search(key, hint)
    }

    /// The directory that `id` names.
    pub(super) fn resolve_dir(&self, id: &FileId) -> Result<Object> {
        let object = self.resolve(id)?;
        if object.attr.kind == FileType::Directory { Ok(object) } else { Err(Status::NotDir) }
    }

    /// Opens what these names lead to from the root.
    pub(super) fn open_names(&self, names: &[Box<[u8]>]) -> rustix::io::Result<OwnedFd> {
        let mut at = self.root.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        let mut part = Vec::new();
        for name in names {
            if part.len() + 1 + name.len() > PATH_PART {
                at = self.open_part(&at, &part)?;
                part.clear();
            }
            if !part.is_empty() {
                part.push(b'/');
            }
            part.extend_from_slice(name);
        }
        self.open_part(&at, if part.is_empty() { b"." } else { &part })
    }

    fn open_part(&self, dir: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            match openat2(dir, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Linux before 5.6, or a sandbox that does not know it.
                Err(Errno::NOSYS) => return open_stepwise(dir, path),
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens `name` in `dir`, whatever it is; nothing on another file system.
    pub(super) fn open_child(&self, dir: &Object, name: &[u8]) -> Result<Object> {
        let fd = openat(&dir.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).nfs()?;
        let stat = self.ours(stat::of(&fd).nfs()?)?;
        let hint = self.table().hint_in(dir.key, dir.hint);
        Ok(Object { fd, key: stat.key, hint, attr: stat.attr })
    }

    /// Refuses what is on another file system: its inode numbers mean something else.
    pub(super) fn ours(&self, stat: stat::Stat) -> Result<stat::Stat> {
        let foreign = stat.attr.fsid != self.fsid || (stat.is_mount && stat.key != self.root_key);
        if foreign { Err(Status::Access) } else { Ok(stat) }
    }

    /// The id of `key`, known from now on as `name` in `dir`.
    pub(super) fn register(&self, dir: &Object, name: &[u8], key: Key) -> Result<FileId> {
        if key == self.root_key {
            return Ok(self.root_id);
        }
        let mut table = self.table();
        let hint = table.hint_in(dir.key, dir.hint);
        let hint = table.put(key, dir.key, name, hint);
        ids::encode(key, &hint).ok_or(Status::ServerFault)
    }
}

/// What has been opened, before it is known to be what was meant.
pub(super) trait Check {
    /// The object, if it is `key`.
    fn check(self, disk: &LocalDisk, hint: Hint, key: Key) -> Result<Object>;
}

impl Check for OwnedFd {
    fn check(self, disk: &LocalDisk, hint: Hint, key: Key) -> Result<Object> {
        let stat = stat::of(&self).nfs()?;
        if stat.key != key || stat.attr.fsid != disk.fsid || stat.attr.nlink == 0 {
            return Err(Status::Stale);
        }
        Ok(Object { fd: self, key, hint, attr: stat.attr })
    }
}

/// What openat2 does, a name at a time. `path` has no `..`: names are checked when they come in.
fn open_stepwise(dir: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let mut at = dir.try_clone().map_err(|_| Errno::MFILE)?;
    for name in path.split(|b| *b == b'/') {
        // An O_PATH descriptor of a symbolic link is no directory, so the next step fails.
        at = openat(&at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stepwise_way_follows_no_link() {
        let top = std::env::temp_dir().join(format!("remora-stepwise-{}", std::process::id()));
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", top.join("link")).unwrap();
        let root = OwnedFd::from(std::fs::File::open(&top).unwrap());
        let open = |path: &[u8]| open_stepwise(&root, path).map(|fd| stat::of(&fd).unwrap().attr.kind);
        assert_eq!(open(b"a/b"), Ok(FileType::Directory));
        assert_eq!(open(b"link"), Ok(FileType::SymLink));
        assert_eq!(open(b"link/b"), Err(Errno::NOTDIR));
        std::fs::remove_dir_all(&top).unwrap();
    }
}
