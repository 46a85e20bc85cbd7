//! Part of the local disk: sys.

pub(crate) mod detached_mount;
pub(crate) mod disk_failure;
pub(crate) mod errno;
pub(crate) mod fd_exhaustion;
pub(crate) mod inode_locks;
pub(crate) mod lru_cache;
pub(crate) mod syscalls;
