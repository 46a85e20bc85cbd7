//! Objects in an export that clients must not reach: the server's own keys.
//!
//! A protected directory is visible, but clients cannot list, search or change it. A protected file is visible, but
//! clients cannot read, change, rename, link or remove it. Objects are identified by inode number. An open descriptor
//! keeps the number in use, and a copy-up of an overlay keeps it, too.
//!
//! The directories and symbolic links on the path to a protected object keep their names. Otherwise a client could put
//! another directory there, and the next start of the server would protect that one. Paths are resolved when the export
//! is opened: later renames by local programs are not noticed.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use remora_wire::nfs3::{FileType, Status};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::local::inode::stat::{self, InodeKey};
use crate::types::Result;

/// The protected objects of an export, and the objects on the paths to them.
#[derive(Default)]
pub(crate) struct ProtectedPaths {
    by_ino: BTreeMap<u64, ProtectedInode>,
}

/// Most symbolic links on a path, as in the kernel.
const LINKS_MAX: usize = 40;
const OPEN_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct ProtectedInode {
    /// False for an object on the path to a protected one, which keeps its name only.
    is_protected: bool,
    /// Keeps the inode number in use.
    _fd: Arc<OwnedFd>,
}

/// Returns the descriptor that another export already holds on this object, or else `fd`: all exports protect the same
/// paths.
fn share(key: InodeKey, fsid: u64, fd: OwnedFd) -> Arc<OwnedFd> {
    static HELD: Mutex<BTreeMap<(u64, u64), Weak<OwnedFd>>> = Mutex::new(BTreeMap::new());
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.retain(|_, fd| fd.strong_count() > 0);
    let shared = held.get(&(fsid, key.ino)).and_then(Weak::upgrade);
    shared.unwrap_or_else(|| {
        let fd = Arc::new(fd);
        held.insert((fsid, key.ino), Arc::downgrade(&fd));
        fd
    })
}

impl ProtectedPaths {
    /// Finds those of `paths` that are in the export of `dir`, which is open as `root`. Skips paths that do not exist
    /// or that this process may not search: a server without root's rights cannot lead clients there either.
    pub(crate) fn find(paths: &[PathBuf], dir: &Path, root: &OwnedFd) -> io::Result<ProtectedPaths> {
        let dir = dir.canonicalize()?;
        let mut protected = ProtectedPaths::default();
        let fsid = stat::of(root)?.attr.fsid;
        for path in paths {
            protected.hold_path(&std::path::absolute(path)?, fsid)?;
            let path = match path.canonicalize() {
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => continue,
                path => path?,
            };
            if let Some(fd) = open(&path, &dir, root)? {
                let found = stat::of(&fd)?;
                let fd = share(found.key, found.attr.fsid, fd);
                protected.by_ino.insert(found.key.ino, ProtectedInode { is_protected: true, _fd: fd });
            }
        }
        Ok(protected)
    }

    /// Adds the objects on `path` that are on the file system `fsid`, as far as this process can follow it.
    fn hold_path(&mut self, path: &Path, fsid: u64) -> io::Result<()> {
        let names = |path: &Path| path.components().map(|c| c.as_os_str().to_owned()).collect::<VecDeque<OsString>>();
        let (mut todo, mut at, mut links) = (names(path), PathBuf::from("/"), 0);
        while let Some(name) = todo.pop_front() {
            match Path::new(&name).components().next() {
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => _ = at.pop(),
                Some(Component::Normal(name)) => {
                    let next = at.join(name);
                    let fd = match rustix::fs::open(&next, OPEN_FLAGS, Mode::empty()) {
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => break,
                        fd => fd?,
                    };
                    let found = stat::of(&fd)?;
                    if found.attr.fsid == fsid {
                        let fd = share(found.key, fsid, fd);
                        let inode = ProtectedInode { is_protected: false, _fd: fd };
                        self.by_ino.entry(found.key.ino).or_insert(inode);
                    }
                    if found.attr.kind != FileType::SymLink {
                        at = next;
                        continue;
                    }
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP.into());
                    }
                    let mut target = names(&std::fs::read_link(&next)?);
                    target.append(&mut todo);
                    todo = target;
                }
                Some(Component::CurDir | Component::Prefix(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Denies access to a protected object.
    pub(crate) fn check(&self, key: InodeKey) -> Result<()> {
        let is_protected = self.by_ino.get(&key.ino).is_some_and(|inode| inode.is_protected);
        if is_protected { Err(Status::Access) } else { Ok(()) }
    }

    /// Denies a change of the name of a protected object, or of one on the path to it.
    pub(crate) fn check_name(&self, key: InodeKey) -> Result<()> {
        if self.by_ino.contains_key(&key.ino) { Err(Status::Access) } else { Ok(()) }
    }
}

/// Opens `path`, which has no symbolic links, if it is in the export.
fn open(path: &Path, dir: &Path, root: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let Ok(below) = path.strip_prefix(dir) else {
        // The file system may be mounted in two places.
        let fd = rustix::fs::open(path, OPEN_FLAGS, Mode::empty())?;
        let is_exported = stat::of(&fd)?.attr.fsid == stat::of(root)?.attr.fsid;
        return Ok(is_exported.then_some(fd));
    };
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(root, below, OPEN_FLAGS, Mode::empty(), resolve) {
        // On another file system that is mounted there, and not exported.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV) => Ok(None),
        done => Ok(Some(done?)),
    }
}
