//! Files that are made once for a verifier (RFC 1813, section 3.3.8).
//!
//! The verifier is kept in the file's times, which are there before the name is: a server that dies in between has
//! made nothing. Else whoever asks again would be told that the file is there, and not that it is its own.

use std::os::fd::OwnedFd;

use remora_wire::nfs3::{Attr, SetAttr};
use rustix::fs::{Mode, OFlags, Timestamps, futimens, openat};
use rustix::io::Errno;

use super::LocalDisk;
use super::files::timespec;
use super::resolve::Folder;
use super::stock::link;
use crate::Cred;

impl LocalDisk {
    /// A new file `name` in `dir`, which looks like `attr`, for `cred`, as whom this thread acts. It has the times of
    /// `wish` from the beginning, where the file system knows files without a name.
    pub(super) fn make_marked(
        &self,
        cred: &Cred,
        (dir, attr): (&Folder, &Attr),
        name: &[u8],
        (mode, wish): (Mode, &SetAttr),
    ) -> rustix::io::Result<OwnedFd> {
        // The ordinary way has the last word.
        self.mark_and_name(dir, name, mode, wish).unwrap_or_else(|| self.make_file(cred, (dir, attr), name, mode))
    }

    /// `None`: it does not go that way.
    fn mark_and_name(
        &self,
        dir: &Folder,
        name: &[u8],
        mode: Mode,
        wish: &SetAttr,
    ) -> Option<rustix::io::Result<OwnedFd>> {
        if self.hands_down_acl(dir) {
            return None;
        }
        self.disk.release_number();
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&dir.fd, c".", flags, mode).ok()?;
        let times = Timestamps { last_access: timespec(wish.atime), last_modification: timespec(wish.mtime) };
        futimens(&file, &times).ok()?;
        match link(&file, dir, name) {
            Ok(()) => Some(Ok(file)),
            Err(Errno::EXIST) => Some(Err(Errno::EXIST)),
            Err(_) => None,
        }
    }
}
