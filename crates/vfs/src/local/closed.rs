//! What nobody gets at, though it lies in the export: the server's own keys.
//!
//! A directory that is closed is seen, but nobody lists it, nor finds, makes or changes anything in it. A file that is closed is
//! seen, but nobody reads or changes it, nor takes its name or gives it another. They are known by their inode numbers,
//! which are nobody else's for as long as they are open here, and stay when an overlay copies them up.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use remora_wire::nfs3::Status;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::ids::Key;
use super::stat;
use crate::Result;

/// See the module.
#[derive(Default)]
pub(super) struct Closed(Vec<Held>);

struct Held {
    ino: u64,
    /// Open to be named.
    _fd: OwnedFd,
}

impl Closed {
    /// Those of `paths` that are in the export of `dir`, which is open as `root`. One that is not there is not meant.
    pub(super) fn find(paths: &[PathBuf], dir: &Path, root: &OwnedFd) -> io::Result<Closed> {
        let dir = dir.canonicalize()?;
        let mut closed = Closed::default();
        for path in paths {
            let path = match path.canonicalize() {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                path => path?,
            };
            if let Some(fd) = open(&path, &dir, root)? {
                closed.0.push(Held { ino: stat::of(&fd)?.key.ino, _fd: fd });
            }
        }
        Ok(closed)
    }

    /// Fails for what is closed.
    pub(super) fn check(&self, key: Key) -> Result<()> {
        if self.0.iter().any(|held| held.ino == key.ino) { Err(Status::Access) } else { Ok(()) }
    }
}

/// What is at `path`, which leads through no links, if that is in the export.
fn open(path: &Path, dir: &Path, root: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(below) = path.strip_prefix(dir) else {
        // It may be mounted in two places.
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let is_there = stat::of(&fd)?.attr.fsid == stat::of(root)?.attr.fsid;
        return Ok(is_there.then_some(fd));
    };
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(root, below, flags, Mode::empty(), resolve) {
        // On what is mounted there, which is not exported with it.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV) => Ok(None),
        done => Ok(Some(done?)),
    }
}
