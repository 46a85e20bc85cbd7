//! The file operations of an NFS server, apart from protocol messages.
//!
//! [`Vfs`] is the contract. Its attributes, errors and write stability are those of NFSv3 (RFC 1813). Calls block: run
//! them on an executor's threads, or inline in virtual time. [`LocalDisk`] exports a directory of this machine;
//! [`MemFs`] is a file system in memory for tests and the simulator. Read `vfs.rs` first, then `flush.rs`.

mod args;
mod flush;
#[cfg(target_os = "linux")]
pub mod local;
pub mod memory;
mod perm;
mod types;
mod vfs;

pub use args::NAME_MAX;
pub use flush::{Flush, FlushKey, Flushing, Ledger};
#[cfg(target_os = "linux")]
pub use local::LocalDisk;
pub use memory::MemFs;
pub use types::{Acls, Cred, DirEnd, DirEntry, DirQuery, Features, FileId, Made, NameIn, OFFSET_MAX, Result};
pub use vfs::Vfs;
