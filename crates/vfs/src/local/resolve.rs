//! From an id to an open object.
//!
//! The table says under which names the object was last seen; openat2(2) follows those of its
//! directory from the root, beneath it, through no symbolic link and onto no other file system,
//! and the directory stays open for a while ([`dirs`](super::dirs)). statx(2) says whether what
//! is in it is the object meant. If not, [`search`](super::search) looks for it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use remora_wire::nfs3::{Attr, FileType, Status};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::acting;
use super::dirs::Way;
use super::errno::{self, OrStatus};
use super::ids::{self, Hint, Key};
use super::table::{DEPTH_MAX, NAMES_MAX};
use super::{LocalDisk, stat};
use crate::{FileId, Result};

/// Bytes of a path handed to the kernel at once: below PATH_MAX, which counts the NUL.
const PATH_PART: usize = 4000;
/// openat2 gives up with EAGAIN when somebody renames in the wrong moment.
const TRIES: usize = 16;

/// An object, opened at least to name it (O_PATH): that asks no permission of the object,
/// blocks on no pipe and wakes no device.
pub(super) struct Object {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) key: Key,
    pub(super) hint: Hint,
    pub(super) attr: Attr,
}

/// A directory to do something in. It may have been removed.
pub(super) struct Folder {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) key: Key,
    pub(super) hint: Hint,
}

impl Object {
    /// A path that names this very object, whatever its names are.
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// As a directory.
    pub(super) fn folder(&self) -> Folder {
        Folder { fd: self.fd.clone(), key: self.key, hint: self.hint }
    }
}

impl Folder {
    /// As [`Object::proc_path`].
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Its attributes, if it is still there.
    pub(super) fn attr(&self) -> Result<Attr> {
        let attr = stat::of(&self.fd).nfs()?.attr;
        if attr.nlink > 0 { Ok(attr) } else { Err(Status::Stale) }
    }
}

impl LocalDisk {
    /// The object that `id` names.
    pub(super) fn resolve(&self, id: &FileId) -> Result<Object> {
        let (key, hint) = ids::decode(id).ok_or(Status::BadHandle)?;
        if let Some(way) = self.kept(key) {
            let hint = if key == self.disk.root_key { Hint::default() } else { hint };
            return way.fd.check_still(self, hint, key);
        }
        for _ in 0..NAMES_MAX {
            let Some((parent, name)) = self.table().place(key) else { break };
            match self.open_in(parent, &name) {
                Ok(way) => match way.fd.check_still(self, hint, key) {
                    Ok(object) => return self.arrived(object, way.since),
                    Err(Status::Stale) => {}
                    // It may be there: a name that is good must not be forgotten.
                    Err(why) => return Err(why),
                },
                // Somebody else renamed or removed a name on the way.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::STALE) => {}
                Err(e) => return Err(errno::status(e)),
            }
            self.table().forget_name(key, parent, &name);
        }
        let began = Instant::now();
        self.arrived(self.search(key, hint)?, began)
    }

    /// What was reached by a way gone at `since`. A directory is kept open, unless it is so deep that nothing in
    /// it could be reached.
    fn arrived(&self, object: Object, since: Instant) -> Result<Object> {
        if object.attr.kind == FileType::Directory {
            if self.table().depth(object.key) == Err(Errno::NAMETOOLONG) {
                return Err(Status::NameTooLong);
            }
            self.disk.dirs.put(object.key, Way { fd: object.fd.clone(), since });
        }
        Ok(object)
    }

    /// The attributes of the object that `id` names: in one system call if it is where it was.
    pub(super) fn attr_of(&self, id: &FileId) -> Result<Attr> {
        let (key, _) = ids::decode(id).ok_or(Status::BadHandle)?;
        let place = if self.kept(key).is_none() { self.table().place(key) } else { None };
        let there = place.and_then(|(parent, name)| stat::at(&self.way(parent).ok()?.fd, &name).ok());
        match there.map(|stat| self.within(stat)).filter(|stat| self.is_still(stat, key) && !stat.is_mount) {
            Some(stat) => Ok(stat.attr),
            None => Ok(self.resolve(id)?.attr),
        }
    }

    /// The directory that `id` names.
    pub(super) fn resolve_dir(&self, id: &FileId) -> Result<Object> {
        let object = self.resolve(id)?;
        self.disk.closed.check(object.key)?;
        if object.attr.kind == FileType::Directory { Ok(object) } else { Err(Status::NotDir) }
    }

    /// The directory that `id` names, without a look at it if it is open.
    pub(super) fn folder(&self, id: &FileId) -> Result<Folder> {
        let (key, hint) = ids::decode(id).ok_or(Status::BadHandle)?;
        self.disk.closed.check(key)?;
        match self.kept(key) {
            Some(way) if key == self.disk.root_key => Ok(Folder { fd: way.fd, key, hint: Hint::default() }),
            Some(way) => Ok(Folder { fd: way.fd, key, hint }),
            None => Ok(self.resolve_dir(id)?.folder()),
        }
    }

    /// What `done` came to in `dir`. In a directory that was removed nothing is found, but it is the
    /// directory that is gone; so it is in a subvolume of btrfs that was deleted.
    pub(super) fn or_stale<T>(&self, dir: &Folder, done: Result<T>) -> Result<T> {
        if matches!(done, Err(Status::NoEnt)) && !self.is_still(&self.look(&dir.fd)?, dir.key) {
            return Err(Status::Stale);
        }
        done
    }

    /// Refuses a directory one deeper than those in which things are reached. What is below a directory that is
    /// moved may come to be deeper all the same: it is reached again when something above is moved up.
    pub(super) fn may_hold_directories(&self, dir: &Folder) -> Result<()> {
        match self.table().depth(dir.key) {
            Ok(..DEPTH_MAX) | Err(Errno::NOENT) => Ok(()),
            _ => Err(Status::NameTooLong),
        }
    }

    /// The directory, if it is open; the root always is.
    fn kept(&self, key: Key) -> Option<Way> {
        if key == self.disk.root_key {
            return Some(Way::now(self.disk.root.clone()));
        }
        self.disk.dirs.get(key)
    }

    /// The directory, opened by the names that lead to it unless it is open.
    pub(super) fn way(&self, key: Key) -> rustix::io::Result<Way> {
        if let Some(way) = self.kept(key) {
            return Ok(way);
        }
        acting::own();
        let names = self.table().path(key)?;
        let way = Way::now(Arc::new(self.open_names(&names)?));
        if !self.is_still(&self.within(stat::of(&way.fd)?), key) {
            return Err(Errno::STALE);
        }
        self.disk.dirs.put(key, way.clone());
        Ok(way)
    }

    /// Opens `name` in the directory `parent`; how it was reached.
    fn open_in(&self, parent: Key, name: &[u8]) -> rustix::io::Result<Way> {
        let Way { fd: dir, since } = self.way(parent)?;
        let open = || openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let fd = match open() {
            Err(Errno::ACCESS) if acting::own() => open()?,
            done => done?,
        };
        Ok(Way { fd: Arc::new(fd), since })
    }

    /// What the kernel says of an open object, in the file system's terms.
    pub(super) fn look(&self, fd: impl AsFd) -> Result<stat::Stat> {
        Ok(self.within(stat::of(fd).nfs()?))
    }

    /// `stat` in the file system's terms.
    pub(super) fn within(&self, stat: stat::Stat) -> stat::Stat {
        match (&self.disk.layers, &self.disk.numbers) {
            (Some(layers), _) => layers.within(stat),
            (None, Some(numbers)) => numbers.within(stat),
            (None, None) => stat,
        }
    }

    /// Whether that, which is where `key` was, is `key` still.
    fn is_still(&self, stat: &stat::Stat, key: Key) -> bool {
        let there = stat.attr.fsid == self.disk.fsid && stat.attr.nlink > 0;
        self.is(stat, key) || (there && self.disk.layers.as_ref().is_some_and(|layers| layers.is_copy(stat, key)))
    }

    /// Whether that is what `key` means.
    fn is(&self, stat: &stat::Stat, key: Key) -> bool {
        stat.key == key && stat.attr.fsid == self.disk.fsid && stat.attr.nlink > 0
    }

    /// Opens what these names lead to from the root.
    pub(super) fn open_names(&self, names: &[Box<[u8]>]) -> rustix::io::Result<OwnedFd> {
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
    pub(super) fn open_child(&self, dir: &Folder, name: &[u8]) -> Result<Object> {
        let fd = openat(&dir.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).nfs()?;
        self.as_child(dir, fd)
    }

    /// What was opened in `dir`.
    pub(super) fn as_child(&self, dir: &Folder, fd: OwnedFd) -> Result<Object> {
        let stat = self.ours(stat::of(&fd).nfs()?)?;
        self.disk.closed.check(stat.key)?;
        let hint = self.hint_in(dir);
        Ok(Object { fd: Arc::new(fd), key: stat.key, hint, attr: stat.attr })
    }

    /// Refuses what is on another file system: its inode numbers mean something else.
    pub(super) fn ours(&self, stat: stat::Stat) -> Result<stat::Stat> {
        let stat = self.within(stat);
        let foreign = stat.attr.fsid != self.disk.fsid || (stat.is_mount && stat.key != self.disk.root_key);
        if foreign { Err(Status::Access) } else { Ok(stat) }
    }

    /// The id of `key`, known from now on as `name` in `dir`.
    pub(super) fn register(&self, dir: &Folder, name: &[u8], key: Key) -> Result<FileId> {
        self.register_below(dir.key, self.hint_in(dir), name, key)
    }

    /// The hint for what is in `dir`.
    pub(super) fn hint_in(&self, dir: &Folder) -> Hint {
        self.table().hint_in(dir.key, dir.hint)
    }

    /// The same as [`register`](LocalDisk::register), where the hint is known.
    pub(super) fn register_below(&self, dir: Key, hint: Hint, name: &[u8], key: Key) -> Result<FileId> {
        if key == self.disk.root_key {
            return Ok(self.disk.root_id);
        }
        let hint = self.table().put(key, dir, name, hint);
        ids::encode(key, &hint).ok_or(Status::ServerFault)
    }
}

/// What has been opened, before it is known to be what was meant.
pub(super) trait Check {
    /// The object, if it is `key`.
    fn check(self, disk: &LocalDisk, hint: Hint, key: Key) -> Result<Object>;

    /// The same, for what was opened where `key` was last seen.
    fn check_still(self, disk: &LocalDisk, hint: Hint, key: Key) -> Result<Object>;
}

impl Check for Arc<OwnedFd> {
    fn check(self, disk: &LocalDisk, hint: Hint, key: Key) -> Result<Object> {
        let stat = disk.look(&self)?;
        if disk.is(&stat, key) { Ok(Object { fd: self, key, hint, attr: stat.attr }) } else { Err(Status::Stale) }
    }

    fn check_still(self, disk: &LocalDisk, hint: Hint, key: Key) -> Result<Object> {
        let stat = disk.look(&self)?;
        if disk.is_still(&stat, key) { Ok(Object { fd: self, key, hint, attr: stat.attr }) } else { Err(Status::Stale) }
    }
}

/// Opens what `path` leads to from `dir`, beneath it.
pub(super) fn open_part(dir: impl AsFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
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
