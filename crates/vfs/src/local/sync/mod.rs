//! Part of the local disk: sync.

#[expect(clippy::disallowed_types, reason = "looked up by key only: order is never seen")]
#[expect(clippy::disallowed_methods, reason = "how long ago a file was written to is real time")]
pub(crate) mod dirty_files;
pub(crate) mod flush;
#[expect(clippy::disallowed_methods, reason = "how long the disk takes is real time")]
pub(crate) mod syncfs_policy;
