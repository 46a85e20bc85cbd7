//! How a server that is not root opens its user's own file for writing when the mode does not let even the owner.
//!
//! NFS checks at every WRITE what a local file system checks at open only (RFC 1813, section 4.4): who made a file
//! read-only and fills it, as `git`, `tar` and `cp -p` do, may go on, behind a restart of the server as well. Root just
//! opens it. An owner may give itself the permission, and does for as long as it takes to open: some microseconds, in
//! which a crash or kill -9 would leave the mode so. Whoever may write here could have changed the mode, too; not so who may only
//! read, and therefore nothing is lent for that.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, chmodat};
use rustix::io::Errno;

use crate::local::LocalDisk;
use crate::local::fd_cache::open_files::{OpenMode, reopen};
use crate::local::handles::resolve::OpenObject;
use crate::local::inode::stat;

const OWNER_WRITES: u32 = 0o200;
/// A change of mode clears this for good where the group is not one's own.
const SET_GID: u32 = 0o2000;

impl LocalDisk {
    /// Opens it. ACCESS where it is somebody else's, and where a mode cannot be given and taken again.
    pub(crate) fn open_with_owner_write(&self, object: &OpenObject) -> rustix::io::Result<OwnedFd> {
        // Else a SETATTR in between would be undone.
        let _alone = self.disk.mode_locks.lock(&[object.key]);
        let mode = stat::of(&object.fd)?.attr.mode;
        if mode & SET_GID != 0 {
            return Err(Errno::ACCESS);
        }
        let set = |mode| chmodat(CWD, object.proc_path(), Mode::from_raw_mode(mode), AtFlags::empty());
        set(mode | OWNER_WRITES).map_err(|_| Errno::ACCESS)?;
        let opened = reopen(object, OpenMode::Write.flags());
        set(mode)?;
        opened
    }
}
