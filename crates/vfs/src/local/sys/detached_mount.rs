//! A directory without what is mounted in it.
//!
//! NFSv3 shows one file system (RFC 1813, section 3.3.3: a LOOKUP does not cross mount points on
//! the server), which is what lies below the mount points. A process that is not the kernel meets
//! what is mounted there instead. open_tree(2) gives it a mount of its own, of the same file system
//! and with nothing mounted in it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, OpenTreeFlags, mount_change, open_tree};

/// `dir`, open in a mount of its own. It follows later remounts of the file system, but not of the
/// mount that `dir` is on. Takes CAP_SYS_ADMIN, and Linux 5.2.
pub(crate) fn open(dir: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(dir, "", flags)?;
    // What is mounted later would come here, too, if the mount is shared, as it is by default under
    // systemd. If that cannot be helped it is what it would be without all this: not entered.
    let _ = mount_change(format!("/proc/self/fd/{}", tree.as_raw_fd()), MountPropagationFlags::PRIVATE);
    openat(tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
