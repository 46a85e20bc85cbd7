//! Under everything else of the local disk: the kernel's interfaces.
//!
//! Read [`errors`] first: the NFS status of each errno. [`syscalls`] are the calls that tests make fail,
//! [`detached_mount`] hides mount points in an export, and [`lru_cache`] is the bounded cache that the others use.

pub(crate) mod detached_mount;
pub(crate) mod errors;
pub(crate) mod lru_cache;
pub(crate) mod syscalls;
