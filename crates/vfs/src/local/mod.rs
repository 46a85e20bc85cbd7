//! Exports a directory of this machine, on Linux.
//!
//! * **File ids** survive restarts and renames without privileges: inode number, birth time and a hint. On file systems
//!   without birth times a reused inode number cannot be detected; where numbers hold for one mount only, so do the
//!   ids.
//! * **Boundaries**: the export is one file system. Of a mount point in it clients see the directory below, or, if the
//!   process may not see that, a name that they cannot enter. Names are single components and no symbolic link is
//!   followed: openat2(2) resolves every path beneath the root. What another program moves out of the export stays
//!   reachable for [`Options::revalidate_after`] if it is cached open.
//! * **Credentials**: with [`Options::honour_credentials`] each operation has its caller's user and groups, so the
//!   kernel checks permissions. Without, it has the server's.
//! * **Stability** is that of fdatasync(2) and fsync(2), on directories, too.
//!
//! Needs /proc, openat2(2), and Linux 5.8 for the times of symbolic links. Read `disk.rs` first, then `ops` from
//! `mod.rs`; the other folders are below them: `handles`, `fd_cache`, `sync`, `listing`, `creds`, `inode`, `sys`.

mod creds;
mod disk;
mod fd_cache;
mod handles;
mod inode;
mod listing;
mod ops;
mod sync;
mod sys;
#[cfg(test)]
mod tests;

pub use creds::thread_creds::DedicatedThread;
pub use disk::{LocalDisk, Options};
pub use inode::inode_generation::HandleLifetime;
pub use sys::errors::{DiskFailure, FailureHook, FdExhaustion, fd_exhaustion, note_fd_exhaustion};
