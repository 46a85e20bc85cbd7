//! Exclusive CREATE (RFC 1813, section 3.3.8).
//!
//! The verifier is stored in the file's times. They are set before the file gets its name, so a server that crashes in
//! between has created nothing, and a retransmitted request never finds its own file without the verifier.

use std::os::fd::{AsRawFd, OwnedFd};

use remora_wire::nfs3::SetAttr;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timestamps, futimens, linkat, openat};
use rustix::io::Errno;

use crate::local::LocalDisk;
use crate::local::handles::resolve::OpenDir;
use crate::local::ops::files::timespec;

/// Creates the regular file `name`, open for writing. Fails with EEXIST if the name exists.
pub(crate) fn make_file(dir: &OpenDir, name: &[u8], mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&dir.fd, name, flags, mode)
}

impl LocalDisk {
    /// Creates the regular file `name` with the times of `wish`, which hold the verifier. Without O_TMPFILE the times
    /// follow the name.
    pub(crate) fn make_exclusive(
        &self,
        dir: &OpenDir,
        name: &[u8],
        mode: Mode,
        wish: &SetAttr,
    ) -> rustix::io::Result<OwnedFd> {
        // O_TMPFILE ignores a default ACL.
        let unnamed = if self.hands_down_acl(dir) { None } else { make_unnamed(dir, mode, wish) };
        match unnamed.map(|file| (link(&file, dir, name), file)) {
            Some((Ok(()), file)) => Ok(file),
            Some((Err(Errno::EXIST), _)) => Err(Errno::EXIST),
            _ => make_file(dir, name, mode),
        }
    }
}

/// A file without a name and with the times of `wish`; `None` if the file system has no such files.
fn make_unnamed(dir: &OpenDir, mode: Mode, wish: &SetAttr) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(&dir.fd, c".", flags, mode).ok()?;
    let times = Timestamps { last_access: timespec(wish.atime), last_modification: timespec(wish.mtime) };
    futimens(&file, &times).ok()?;
    Some(file)
}

/// Gives an open file its first name.
fn link(file: &OwnedFd, dir: &OpenDir, name: &[u8]) -> rustix::io::Result<()> {
    match linkat(file, c"", &dir.fd, name, AtFlags::EMPTY_PATH) {
        // Without CAP_DAC_READ_SEARCH only the path in /proc works.
        Err(Errno::NOENT) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, path, &dir.fd, name, AtFlags::SYMLINK_FOLLOW)
        }
        done => done,
    }
}
