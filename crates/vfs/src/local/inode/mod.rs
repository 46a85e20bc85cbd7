//! Part of the local disk: inode.

pub(crate) mod file_size_limit;
pub(crate) mod fs_caps;
pub(crate) mod inode_generation;
#[expect(clippy::disallowed_methods, reason = "how long the kernel's tick has passed is real time")]
pub(crate) mod inode_reuse;
pub(crate) mod overlay;
pub(crate) mod pathconf;
pub(crate) mod stat;
