//! Errors of mounting and unmounting.

use std::io;
use std::path::PathBuf;

use remora_wire::fuse::{RequestError, VersionError};

/// An error of a mount.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    #[error("cannot mount at {dir}: it does not exist (make it with `mkdir`)", dir = dir.display())]
    NoDirectory { dir: PathBuf },
    #[error("cannot mount at {dir}: it is not a directory", dir = dir.display())]
    NotADirectory { dir: PathBuf },
    #[error("cannot mount at {dir}: {source_name} is mounted there already (unmount it, or choose another \
             directory)", dir = dir.display())]
    AlreadyMounted { dir: PathBuf, source_name: String },
    #[error("cannot mount at {dir}: this kernel has no FUSE (load it as root with `modprobe fuse`)", dir = dir.display())]
    NoDevice { dir: PathBuf },
    #[error("cannot mount at {dir}: cannot open /dev/fuse: {source} (users need `chmod 0666 /dev/fuse` by root; a container \
             needs the device)", dir = dir.display())]
    Device { dir: PathBuf, source: io::Error },
    #[error("cannot mount at {dir}: fusermount3, by which users mount, is missing (install the package fuse3, or \
             mount as root)", dir = dir.display())]
    NoFusermount { dir: PathBuf },
    #[error("cannot mount at {dir}: users may let others in only if /etc/fuse.conf has the line `user_allow_other` \
             (add it as root, or leave allow_other out)", dir = dir.display())]
    AllowOther { dir: PathBuf },
    #[error("cannot mount at {dir}: {message}", dir = dir.display())]
    Fusermount { dir: PathBuf, message: String },
    #[error("cannot mount at {dir}: {source}", dir = dir.display())]
    Mount { dir: PathBuf, source: io::Error },
    #[error("cannot mount at {dir}: {source}", dir = dir.display())]
    Version { dir: PathBuf, source: VersionError },
    #[error("cannot mount at {dir}: the kernel's first request is wrong: {source}", dir = dir.display())]
    FirstRequest { dir: PathBuf, source: RequestError },
    #[error("cannot read requests of the mount at {dir}: {source}", dir = dir.display())]
    Read { dir: PathBuf, source: io::Error },
    #[error("cannot start a thread for the mount at {dir}: {source}", dir = dir.display())]
    Thread { dir: PathBuf, source: io::Error },
    #[error("cannot unmount {dir}: {message}", dir = dir.display())]
    Unmount { dir: PathBuf, message: String },
    #[error("no FUSE file system is mounted at {dir}", dir = dir.display())]
    NotMounted { dir: PathBuf },
    #[error("cannot abort the mount at {dir}: {source} (needs root or the mount's owner, and `mount -t fusectl none \
             /sys/fs/fuse/connections`)", dir = dir.display())]
    Abort { dir: PathBuf, source: io::Error },
}
