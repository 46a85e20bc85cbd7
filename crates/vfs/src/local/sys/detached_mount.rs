//! A mount of the exported directory without the mount points in it.
//!
//! NFSv3 shows one file system: LOOKUP does not cross mount points on the server (RFC 1813, section 3.3.3), so a client
//! sees the directories below them. A user-space server meets the mounted file systems instead. open_tree(2) clones a
//! mount of the same file system with nothing mounted in it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, OpenTreeFlags, mount_change, open_tree};

/// Opens `dir` in a detached mount. It follows remounts of the file system, but not of the mount that holds `dir`.
/// Needs CAP_SYS_ADMIN and Linux 5.2.
pub(crate) fn open(dir: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(dir, "", flags)?;
    // Under a shared mount, systemd's default, later mounts would propagate here. If this fails, clients cannot enter
    // them.
    let _ = mount_change(format!("/proc/self/fd/{}", tree.as_raw_fd()), MountPropagationFlags::PRIVATE);
    openat(tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
