//! From an id to an open object.
//!
//! The table says under which names the object was last seen; openat2(2) follows those of its
//! directory from the root, beneath it, through no symbolic link and onto no other file system,
//! and the directory stays open for a while ([`dirs`](crate::local::fd_cache::open_dirs)). statx(2) says whether what
//! is in it is the object meant. If not, [`search`](crate::local::handles::search) looks for it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use remora_wire::nfs3::{Attr, FileType, Status};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::local::LocalDisk;
use crate::local::creds::thread_creds;
use crate::local::fd_cache::open_dirs::VerifiedDir;
use crate::local::handles::file_id::{self, InodeKey, PathHint};
use crate::local::handles::path_cache::{DEPTH_MAX, NAMES_MAX};
use crate::local::inode::stat;
use crate::local::sys::errno::{self, OrStatus};
use crate::{FileId, Result};

/// Bytes of a path handed to the kernel at once: below PATH_MAX, which counts the NUL.
const PATH_PART: usize = 4000;
/// openat2 gives up with EAGAIN when somebody renames in the wrong moment.
const TRIES: usize = 16;

/// An object, opened at least to name it (O_PATH): that asks no permission of the object,
/// blocks on no pipe and wakes no device.
pub(crate) struct OpenObject {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) key: InodeKey,
    pub(crate) hint: PathHint,
    pub(crate) attr: Attr,
}

/// A directory to do something in. It may have been removed.
pub(crate) struct OpenDir {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) key: InodeKey,
    pub(crate) hint: PathHint,
}

impl OpenObject {
    /// A path that names this very object, whatever its names are.
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// As a directory.
    pub(crate) fn open_dir_of(&self) -> OpenDir {
        OpenDir { fd: self.fd.clone(), key: self.key, hint: self.hint }
    }
}

impl OpenDir {
    /// As [`OpenObject::proc_path`].
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Its attributes, if it is still there.
    pub(crate) fn attr(&self) -> Result<Attr> {
        let attr = stat::of(&self.fd).nfs()?.attr;
        if attr.nlink > 0 { Ok(attr) } else { Err(Status::Stale) }
    }
}

impl LocalDisk {
    /// The object that `id` names.
    pub(crate) fn resolve(&self, id: &FileId) -> Result<OpenObject> {
        let (key, hint) = file_id::decode(id).ok_or(Status::BadHandle)?;
        if let Some(open_path) = self.cached_dir(key) {
            let hint = if key == self.disk.root_key { PathHint::default() } else { hint };
            return open_path.fd.check_still(self, hint, key);
        }
        for _ in 0..NAMES_MAX {
            let Some((parent, name)) = self.paths().place(key) else { break };
            match self.open_in(parent, &name) {
                Ok(open_path) => match open_path.fd.check_still(self, hint, key) {
                    Ok(object) => return self.arrived(object, open_path.verified_at),
                    Err(Status::Stale) => {}
                    // It may be there: a name that is good must not be forgotten.
                    Err(why) => return Err(why),
                },
                // Somebody else renamed or removed a name on the open_path.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::STALE) => {}
                Err(e) => return Err(errno::status(e)),
            }
            self.paths().forget_name(key, parent, &name);
        }
        let began = Instant::now();
        self.arrived(self.search(key, hint)?, began)
    }

    /// What was reached by a open_path gone at `verified_at`. A directory is cached_dir open, unless it is so deep that nothing in
    /// it could be reached.
    fn arrived(&self, object: OpenObject, verified_at: Instant) -> Result<OpenObject> {
        if object.attr.kind == FileType::Directory {
            if self.paths().depth(object.key) == Err(Errno::NAMETOOLONG) {
                return Err(Status::NameTooLong);
            }
            self.disk.dirs.put(object.key, VerifiedDir { fd: object.fd.clone(), verified_at });
        }
        Ok(object)
    }

    /// The attributes of the object that `id` names: in one system call if it is where it was.
    pub(crate) fn attr_of(&self, id: &FileId) -> Result<Attr> {
        let (key, _) = file_id::decode(id).ok_or(Status::BadHandle)?;
        let place = if self.cached_dir(key).is_none() { self.paths().place(key) } else { None };
        let there = place.and_then(|(parent, name)| stat::at(&self.open_path(parent).ok()?.fd, &name).ok());
        match there.map(|stat| self.within(stat)).filter(|stat| self.is_still(stat, key) && !stat.is_mount) {
            Some(stat) => Ok(stat.attr),
            None => Ok(self.resolve(id)?.attr),
        }
    }

    /// The directory that `id` names.
    pub(crate) fn resolve_dir(&self, id: &FileId) -> Result<OpenObject> {
        let object = self.resolve(id)?;
        self.disk.protected.check(object.key)?;
        if object.attr.kind == FileType::Directory { Ok(object) } else { Err(Status::NotDir) }
    }

    /// The directory that `id` names, without a look at it if it is open.
    pub(crate) fn open_dir_of(&self, id: &FileId) -> Result<OpenDir> {
        let (key, hint) = file_id::decode(id).ok_or(Status::BadHandle)?;
        self.disk.protected.check(key)?;
        match self.cached_dir(key) {
            Some(open_path) if key == self.disk.root_key => {
                Ok(OpenDir { fd: open_path.fd, key, hint: PathHint::default() })
            }
            Some(open_path) => Ok(OpenDir { fd: open_path.fd, key, hint }),
            None => Ok(self.resolve_dir(id)?.open_dir_of()),
        }
    }

    /// What `done` came to in `dir`. In a directory that was removed nothing is found, but it is the
    /// directory that is gone; so it is in a subvolume of btrfs that was deleted.
    pub(crate) fn or_stale<T>(&self, dir: &OpenDir, done: Result<T>) -> Result<T> {
        if matches!(done, Err(Status::NoEnt)) && !self.is_still(&self.look(&dir.fd)?, dir.key) {
            return Err(Status::Stale);
        }
        done
    }

    /// Refuses a directory one deeper than those in which things are reached. What is below a directory that is
    /// moved may come to be deeper all the same: it is reached again when something above is moved up.
    pub(crate) fn may_hold_directories(&self, dir: &OpenDir) -> Result<()> {
        match self.paths().depth(dir.key) {
            Ok(..DEPTH_MAX) | Err(Errno::NOENT) => Ok(()),
            _ => Err(Status::NameTooLong),
        }
    }

    /// The directory, if it is open; the root always is.
    fn cached_dir(&self, key: InodeKey) -> Option<VerifiedDir> {
        if key == self.disk.root_key {
            return Some(VerifiedDir::now(self.disk.root.clone()));
        }
        self.disk.dirs.get(key)
    }

    /// The directory, opened by the names that lead to it unless it is open.
    pub(crate) fn open_path(&self, key: InodeKey) -> rustix::io::Result<VerifiedDir> {
        if let Some(open_path) = self.cached_dir(key) {
            return Ok(open_path);
        }
        thread_creds::restore();
        let names = self.paths().path(key)?;
        let open_path = VerifiedDir::now(Arc::new(self.open_names(&names)?));
        if !self.is_still(&self.within(stat::of(&open_path.fd)?), key) {
            return Err(Errno::STALE);
        }
        self.disk.dirs.put(key, open_path.clone());
        Ok(open_path)
    }

    /// Opens `name` in the directory `parent`; how it was reached.
    fn open_in(&self, parent: InodeKey, name: &[u8]) -> rustix::io::Result<VerifiedDir> {
        let VerifiedDir { fd: dir, verified_at } = self.open_path(parent)?;
        let open = || openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let fd = match open() {
            Err(Errno::ACCESS) if thread_creds::restore() => open()?,
            done => done?,
        };
        Ok(VerifiedDir { fd: Arc::new(fd), verified_at })
    }

    /// What the kernel says of an open object, in the file system's terms.
    pub(crate) fn look(&self, fd: impl AsFd) -> Result<stat::InodeStat> {
        Ok(self.within(stat::of(fd).nfs()?))
    }

    /// `stat` in the file system's terms.
    pub(crate) fn within(&self, stat: stat::InodeStat) -> stat::InodeStat {
        match (&self.disk.overlay, &self.disk.generation) {
            (Some(layers), _) => layers.within(stat),
            (None, Some(numbers)) => numbers.within(stat),
            (None, None) => stat,
        }
    }

    /// Whether that, which is where `key` was, is `key` still.
    fn is_still(&self, stat: &stat::InodeStat, key: InodeKey) -> bool {
        let there = stat.attr.fsid == self.disk.fsid && stat.attr.nlink > 0;
        self.is(stat, key) || (there && self.disk.overlay.as_ref().is_some_and(|layers| layers.is_copy(stat, key)))
    }

    /// Whether that is what `key` means.
    fn is(&self, stat: &stat::InodeStat, key: InodeKey) -> bool {
        stat.key == key && stat.attr.fsid == self.disk.fsid && stat.attr.nlink > 0
    }

    /// Opens what these names lead to from the root.
    pub(crate) fn open_names(&self, names: &[Box<[u8]>]) -> rustix::io::Result<OwnedFd> {
        let mut opened: Option<OwnedFd> = None;
        let mut part = Vec::new();
        for name in names {
            if part.len() + 1 + name.len() > PATH_PART {
                let at = opened.as_ref().map_or(self.disk.root.as_fd(), AsFd::as_fd);
                opened = Some(open_part(at, &part)?);
                part.clear();
            }
            if !part.is_empty() {
                part.push(b'/');
            }
            part.extend_from_slice(name);
        }
        let at = opened.as_ref().map_or(self.disk.root.as_fd(), AsFd::as_fd);
        open_part(at, if part.is_empty() { b"." } else { &part })
    }

    /// Opens `name` in `dir`, whatever it is; nothing on another file system.
    pub(crate) fn open_child(&self, dir: &OpenDir, name: &[u8]) -> Result<OpenObject> {
        let fd = openat(&dir.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).nfs()?;
        self.as_child(dir, fd)
    }

    /// What was opened in `dir`.
    pub(crate) fn as_child(&self, dir: &OpenDir, fd: OwnedFd) -> Result<OpenObject> {
        let stat = self.ours(stat::of(&fd).nfs()?)?;
        self.disk.protected.check(stat.key)?;
        let hint = self.hint_in(dir);
        Ok(OpenObject { fd: Arc::new(fd), key: stat.key, hint, attr: stat.attr })
    }

    /// Refuses what is on another file system: its inode numbers mean something else.
    pub(crate) fn ours(&self, stat: stat::InodeStat) -> Result<stat::InodeStat> {
        let stat = self.within(stat);
        let foreign = stat.attr.fsid != self.disk.fsid || (stat.is_mount && stat.key != self.disk.root_key);
        if foreign { Err(Status::Access) } else { Ok(stat) }
    }

    /// The id of `key`, known from now on as `name` in `dir`.
    pub(crate) fn register(&self, dir: &OpenDir, name: &[u8], key: InodeKey) -> Result<FileId> {
        self.register_below(dir.key, self.hint_in(dir), name, key)
    }

    /// The hint for what is in `dir`.
    pub(crate) fn hint_in(&self, dir: &OpenDir) -> PathHint {
        self.paths().hint_in(dir.key, dir.hint)
    }

    /// The same as [`register`](LocalDisk::register), where the hint is known.
    pub(crate) fn register_below(&self, dir: InodeKey, hint: PathHint, name: &[u8], key: InodeKey) -> Result<FileId> {
        if key == self.disk.root_key {
            return Ok(self.disk.root_id);
        }
        let hint = self.paths().put(key, dir, name, hint);
        file_id::encode(key, &hint).ok_or(Status::ServerFault)
    }
}

/// What has been opened, before it is known to be what was meant.
pub(crate) trait Check {
    /// The object, if it is `key`.
    fn check(self, disk: &LocalDisk, hint: PathHint, key: InodeKey) -> Result<OpenObject>;

    /// The same, for what was opened where `key` was last seen.
    fn check_still(self, disk: &LocalDisk, hint: PathHint, key: InodeKey) -> Result<OpenObject>;
}

impl Check for Arc<OwnedFd> {
    fn check(self, disk: &LocalDisk, hint: PathHint, key: InodeKey) -> Result<OpenObject> {
        let stat = disk.look(&self)?;
        if disk.is(&stat, key) { Ok(OpenObject { fd: self, key, hint, attr: stat.attr }) } else { Err(Status::Stale) }
    }

    fn check_still(self, disk: &LocalDisk, hint: PathHint, key: InodeKey) -> Result<OpenObject> {
        let stat = disk.look(&self)?;
        if disk.is_still(&stat, key) {
            Ok(OpenObject { fd: self, key, hint, attr: stat.attr })
        } else {
            Err(Status::Stale)
        }
    }
}

/// Opens what `path` leads to from `dir`, beneath it.
pub(crate) fn open_part(dir: impl AsFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = dir.as_fd();
    for _ in 0..TRIES {
        match openat2(dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}
