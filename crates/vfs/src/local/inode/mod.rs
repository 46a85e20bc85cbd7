//! Inodes: what identifies one, and how file systems differ.
//!
//! Read [`stat`] first: an inode is identified by its number and birth time. [`inode_generation`], [`overlay`] and
//! [`inode_reuse`] keep that identity unique where a file system does not. [`fs_caps`] and [`fs_conventions`] say what
//! the file system of an export can do. [`inode_locks`] makes operations atomic.

pub(crate) mod fs_caps;
pub(crate) mod fs_conventions;
pub(crate) mod inode_generation;
pub(crate) mod inode_locks;
#[expect(clippy::disallowed_methods, reason = "clock ticks of the kernel pass in real time")]
pub(crate) mod inode_reuse;
pub(crate) mod overlay;
pub(crate) mod stat;
