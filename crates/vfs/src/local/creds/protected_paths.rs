//! What nobody gets at, though it lies in the export: the server's own keys.
//!
//! A directory that is protected is seen, but nobody lists it, nor finds, makes or changes anything in it. A file that is protected is
//! seen, but nobody reads or changes it, nor takes its name or gives it another. They are known by their inode numbers,
//! which are nobody else's for as long as they are open here, and stay when an overlay copies them up.
//!
//! The directories and symbolic links that their paths lead through keep their names, too: with another directory in the
//! place of one of them the next start of the server would find other keys there, and close those instead. Only what is
//! on the way when the export is opened counts: what somebody renames on this machine is not noticed.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use remora_wire::nfs3::{FileType, Status};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::Result;
use crate::local::handles::file_id::InodeKey;
use crate::local::inode::stat;

/// See the module.
#[derive(Default)]
pub(crate) struct ProtectedPaths {
    /// By inode number: what is protected, and what leads there.
    inodes: BTreeMap<u64, ProtectedInode>,
}

/// Symbolic links on a way, at most, as for the kernel.
const LINKS_MAX: usize = 40;
/// Opens an object only to name it.
const NAMED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct ProtectedInode {
    /// Whether it is protected. What only leads there keeps its name and is open to clients otherwise.
    is_protected: bool,
    /// Keeps the inode number from being used again.
    _fd: OwnedFd,
}

impl ProtectedPaths {
    /// Those of `paths` that are in the export of `dir`, which is open as `root`. Skips a path that does not exist, and
    /// one that this process may not search: a server without root's rights cannot lead its clients there either.
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
                let ino = stat::of(&fd)?.key.ino;
                protected.inodes.insert(ino, ProtectedInode { is_protected: true, _fd: fd });
            }
        }
        Ok(protected)
    }

    /// Holds what `path` leads through, as far as this process can follow it, on the file system `fsid`.
    fn hold_path(&mut self, path: &Path, fsid: u64) -> io::Result<()> {
        let names = |path: &Path| path.components().map(|c| c.as_os_str().to_owned()).collect::<VecDeque<OsString>>();
        let (mut todo, mut at, mut links) = (names(path), PathBuf::from("/"), 0);
        while let Some(name) = todo.pop_front() {
            match Path::new(&name).components().next() {
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => _ = at.pop(),
                Some(Component::Normal(name)) => {
                    let next = at.join(name);
                    let fd = match rustix::fs::open(&next, NAMED, Mode::empty()) {
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => break,
                        fd => fd?,
                    };
                    let found = stat::of(&fd)?;
                    if found.attr.fsid == fsid {
                        self.inodes.entry(found.key.ino).or_insert(ProtectedInode { is_protected: false, _fd: fd });
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

    /// Fails for what is protected.
    pub(crate) fn check(&self, key: InodeKey) -> Result<()> {
        if self.inodes.get(&key.ino).is_some_and(|inodes| inodes.is_protected) { Err(Status::Access) } else { Ok(()) }
    }

    /// Fails for what must keep its name.
    pub(crate) fn check_name(&self, key: InodeKey) -> Result<()> {
        if self.inodes.contains_key(&key.ino) { Err(Status::Access) } else { Ok(()) }
    }
}

/// What is at `path`, which leads through no links, if that is in the export.
fn open(path: &Path, dir: &Path, root: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let Ok(below) = path.strip_prefix(dir) else {
        // It may be mounted in two places.
        let fd = rustix::fs::open(path, NAMED, Mode::empty())?;
        let is_there = stat::of(&fd)?.attr.fsid == stat::of(root)?.attr.fsid;
        return Ok(is_there.then_some(fd));
    };
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(root, below, NAMED, Mode::empty(), resolve) {
        // On what is mounted there, which is not exported with it.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV) => Ok(None),
        done => Ok(Some(done?)),
    }
}
