//! The exported tree, and objects opened in it.
//!
//! openat2(2) resolves paths beneath the root, through no symbolic link and onto no other file system. statx(2)
//! identifies what was opened.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remora_wire::nfs3::{Attr, Status};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::local::creds::protected_paths::ProtectedPaths;
use crate::local::creds::thread_creds;
use crate::local::fd_cache::open_dirs::{DirCache, VerifiedDir};
use crate::local::handles::file_id::{self, PathHint};
use crate::local::handles::path_cache::{DEPTH_MAX, PathCache};
use crate::local::handles::search_limit::SearchLimit;
use crate::local::inode::inode_generation::InodeGeneration;
use crate::local::inode::overlay::Overlay;
use crate::local::inode::stat::{self, InodeKey, InodeStat};
use crate::local::sys::errors::{self, OrStatus};
use crate::types::{FileId, Result};

/// Bytes of a path per openat2(2): below PATH_MAX, which counts the NUL.
const PATH_PART: usize = 4000;
/// openat2(2) fails with EAGAIN if a concurrent rename interferes.
const OPEN_TRIES: usize = 16;
/// Opens an object without permissions on it, without blocking on a pipe or waking a device.
const O_PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An exported directory, and what is known of the objects below it.
pub(crate) struct ExportTree {
    pub(crate) root: Arc<OwnedFd>,
    pub(crate) root_key: InodeKey,
    pub(crate) root_id: FileId,
    /// The file system's device number.
    pub(crate) fsid: u64,
    /// On overlayfs only.
    pub(crate) overlay: Option<Overlay>,
    /// Where inode numbers are assigned anew only.
    pub(crate) generation: Option<InodeGeneration>,
    pub(crate) protected: ProtectedPaths,
    pub(crate) paths: Mutex<PathCache>,
    pub(crate) dirs: DirCache,
    pub(crate) search_limit: SearchLimit,
    /// Most entries that one walk of a search examines.
    pub(crate) search_entries_max: usize,
}

/// An object that is open, at least with O_PATH.
pub(crate) struct OpenObject {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) key: InodeKey,
    pub(crate) hint: PathHint,
    pub(crate) attr: Attr,
}

/// An open directory. It may have been removed.
pub(crate) struct OpenDir {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) key: InodeKey,
    pub(crate) hint: PathHint,
}

impl OpenObject {
    /// A path to this object, whatever its names are.
    pub(crate) fn proc_path(&self) -> String {
        proc_path(&self.fd)
    }

    /// The object as a directory.
    pub(crate) fn as_dir(&self) -> OpenDir {
        OpenDir { fd: self.fd.clone(), key: self.key, hint: self.hint }
    }

    /// Opens the regular file for its data.
    pub(crate) fn reopen(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat(CWD, self.proc_path(), flags, Mode::empty())
    }
}

impl OpenDir {
    /// The attributes. Fails with [`Status::Stale`] if the directory was removed.
    pub(crate) fn attr(&self) -> Result<Attr> {
        let attr = stat::of(&self.fd).nfs()?.attr;
        if attr.nlink > 0 { Ok(attr) } else { Err(Status::Stale) }
    }

    /// Opens the directory for listing or fsync(2). By its path in /proc, because `.` needs search permission.
    pub(crate) fn reopen(&self) -> Result<OwnedFd> {
        self.reopen_with(OFlags::empty()).nfs()
    }

    /// Opens the directory for a search, which leaves its atime alone if the server may.
    pub(crate) fn reopen_noatime(&self) -> Result<OwnedFd> {
        match self.reopen_with(OFlags::NOATIME) {
            Err(Errno::PERM) => self.reopen(),
            done => done.nfs(),
        }
    }

    fn reopen_with(&self, more: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
        openat(CWD, proc_path(&self.fd), flags, Mode::empty())
    }
}

/// The path of an open descriptor.
pub(crate) fn proc_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

impl ExportTree {
    /// The path cache, locked.
    pub(crate) fn paths(&self) -> MutexGuard<'_, PathCache> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The root as a directory.
    pub(crate) fn root_dir(&self) -> OpenDir {
        OpenDir { fd: self.root.clone(), key: self.root_key, hint: PathHint::default() }
    }

    // --- Identity ---

    /// Stats an open object, with the key that it has in this export.
    pub(crate) fn stat(&self, fd: impl AsFd) -> Result<InodeStat> {
        Ok(self.localize(stat::of(fd).nfs()?))
    }

    /// `stat` with the key that the object has in this export.
    pub(crate) fn localize(&self, stat: InodeStat) -> InodeStat {
        match (&self.overlay, &self.generation) {
            (Some(overlay), _) => overlay.apply(stat),
            (None, Some(generation)) => generation.apply(stat),
            (None, None) => stat,
        }
    }

    /// `stat` with its key in this export. Denies objects on other file systems, whose inode numbers mean something
    /// else.
    pub(crate) fn localize_exported(&self, stat: InodeStat) -> Result<InodeStat> {
        let stat = self.localize(stat);
        let foreign = stat.attr.fsid != self.fsid || (stat.is_mount && stat.key != self.root_key);
        if foreign { Err(Status::Access) } else { Ok(stat) }
    }

    /// Whether `stat` is of the object `key`.
    pub(crate) fn is(&self, stat: &InodeStat, key: InodeKey) -> bool {
        stat.key == key && self.is_linked(stat)
    }

    /// Whether `stat`, taken at the path where `key` was last seen, is of the object `key`.
    pub(crate) fn is_still(&self, stat: &InodeStat, key: InodeKey) -> bool {
        let is_copy = || self.overlay.as_ref().is_some_and(|overlay| overlay.is_copy(stat, key));
        self.is(stat, key) || (self.is_linked(stat) && is_copy())
    }

    fn is_linked(&self, stat: &InodeStat) -> bool {
        stat.attr.fsid == self.fsid && stat.attr.nlink > 0
    }

    /// The object `key`, if `fd` is it. Fails with [`Status::Stale`] otherwise.
    pub(crate) fn verify(&self, fd: Arc<OwnedFd>, key: InodeKey, hint: PathHint) -> Result<OpenObject> {
        let stat = self.stat(&fd)?;
        if self.is(&stat, key) { Ok(OpenObject { fd, key, hint, attr: stat.attr }) } else { Err(Status::Stale) }
    }

    /// As [`verify`](ExportTree::verify), for `fd` opened at the path where `key` was last seen.
    pub(crate) fn verify_still(&self, fd: Arc<OwnedFd>, key: InodeKey, hint: PathHint) -> Result<OpenObject> {
        let stat = self.stat(&fd)?;
        if self.is_still(&stat, key) { Ok(OpenObject { fd, key, hint, attr: stat.attr }) } else { Err(Status::Stale) }
    }

    // --- Open objects ---

    /// The directory `key`, if it is open and verified. The root always is.
    pub(crate) fn cached_dir(&self, key: InodeKey) -> Option<VerifiedDir> {
        if key == self.root_key { Some(VerifiedDir::now(self.root.clone())) } else { self.dirs.get(key) }
    }

    /// Opens the directory `key` by its cached path, unless it is open.
    pub(crate) fn open_dir(&self, key: InodeKey) -> rustix::io::Result<VerifiedDir> {
        if let Some(dir) = self.cached_dir(key) {
            return Ok(dir);
        }
        thread_creds::restore();
        let names = self.paths().path(key)?;
        let dir = VerifiedDir::now(Arc::new(self.open_path(&names)?));
        if !self.is_still(&self.localize(stat::of(&dir.fd)?), key) {
            return Err(Errno::STALE);
        }
        self.dirs.put(key, dir.clone());
        Ok(dir)
    }

    /// Opens `name` in the directory `parent`, as the server.
    pub(crate) fn open_in(&self, parent: InodeKey, name: &[u8]) -> rustix::io::Result<VerifiedDir> {
        let VerifiedDir { fd: dir, verified_at } = self.open_dir(parent)?;
        let open = || openat(&dir, name, O_PATH, Mode::empty());
        let fd = match open() {
            Err(Errno::ACCESS) if thread_creds::restore() => open()?,
            done => done?,
        };
        Ok(VerifiedDir { fd: Arc::new(fd), verified_at })
    }

    /// Opens the path of `names` from the root.
    pub(crate) fn open_path(&self, names: &[Box<[u8]>]) -> rustix::io::Result<OwnedFd> {
        let mut opened: Option<OwnedFd> = None;
        let mut part = Vec::new();
        for name in names {
            if part.len() + 1 + name.len() > PATH_PART {
                let at = opened.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
                opened = Some(open_beneath(at, &part)?);
                part.clear();
            }
            if !part.is_empty() {
                part.push(b'/');
            }
            part.extend_from_slice(name);
        }
        let at = opened.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
        open_beneath(at, if part.is_empty() { b"." } else { &part })
    }

    /// Opens `name` in `dir`, unless it is on another file system or protected.
    pub(crate) fn open_child(&self, dir: &OpenDir, name: &[u8]) -> Result<OpenObject> {
        self.child_from_fd(dir, openat(&dir.fd, name, O_PATH, Mode::empty()).nfs()?)
    }

    /// The object `fd`, which was opened in `dir`.
    pub(crate) fn child_from_fd(&self, dir: &OpenDir, fd: OwnedFd) -> Result<OpenObject> {
        let stat = self.localize_exported(stat::of(&fd).nfs()?)?;
        self.protected.check(stat.key)?;
        Ok(OpenObject { fd: Arc::new(fd), key: stat.key, hint: self.hint_in(dir), attr: stat.attr })
    }

    /// Changes "not found" in a removed directory to [`Status::Stale`]. A deleted btrfs subvolume counts as removed.
    pub(crate) fn stale_if_removed<T>(&self, dir: &OpenDir, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Status::NoEnt)) && !self.is_still(&self.stat(&dir.fd)?, dir.key) {
            return Err(Status::Stale);
        }
        result
    }

    /// Rejects a new directory in `dir` if it would be too deep. A rename may move directories deeper: they become
    /// reachable again when something above them moves up.
    pub(crate) fn check_depth(&self, dir: &OpenDir) -> Result<()> {
        match self.paths().depth(dir.key) {
            Ok(..DEPTH_MAX) | Err(Errno::NOENT) => Ok(()),
            _ => Err(Status::NameTooLong),
        }
    }

    // --- Ids ---

    /// The id of an open object.
    pub(crate) fn id_of(&self, object: &OpenObject) -> Result<FileId> {
        let hint = if object.key == self.root_key { PathHint::default() } else { object.hint };
        file_id::encode(object.key, &hint).ok_or(Status::ServerFault)
    }

    /// The hint of objects in `dir`.
    pub(crate) fn hint_in(&self, dir: &OpenDir) -> PathHint {
        self.paths().hint_in(dir.key, dir.hint)
    }

    /// Caches `name` in `dir` as the path of `key` and returns the object's id.
    pub(crate) fn register(&self, dir: &OpenDir, name: &[u8], key: InodeKey) -> Result<FileId> {
        self.register_with_hint(dir.key, self.hint_in(dir), name, key)
    }

    /// As [`register`](ExportTree::register), with the hint of objects in `dir`.
    pub(crate) fn register_with_hint(
        &self,
        dir: InodeKey,
        hint: PathHint,
        name: &[u8],
        key: InodeKey,
    ) -> Result<FileId> {
        if key == self.root_key {
            return Ok(self.root_id);
        }
        let hint = self.paths().put(key, dir, name, hint);
        file_id::encode(key, &hint).ok_or(Status::ServerFault)
    }
}

/// Opens `path` beneath `dir`, through no symbolic link and onto no other file system.
pub(crate) fn open_beneath(dir: impl AsFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let dir = dir.as_fd();
    for _ in 0..OPEN_TRIES {
        match openat2(dir, path, O_PATH, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens `name` in `dir` with O_PATH.
pub(crate) fn open_name(dir: impl AsFd, name: &[u8]) -> Result<Arc<OwnedFd>> {
    openat(dir, name, O_PATH, Mode::empty()).map(Arc::new).map_err(errors::status)
}
