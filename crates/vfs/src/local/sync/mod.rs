//! Stable storage: which data is dirty, and how it is flushed.
//!
//! Read [`flush`] first: a flush of one file, of a directory, or of the whole file system, and the write verifier that
//! changes when one fails. [`syncfs_policy`] chooses between many fsync(2) and one syncfs(2). [`dirty_files`] keeps
//! files open that have unflushed data.

#[expect(clippy::disallowed_types, reason = "looked up by key only: the order is never visible")]
#[expect(clippy::disallowed_methods, reason = "dirty data is flushed after a real time")]
pub(crate) mod dirty_files;
pub(crate) mod flush;
#[expect(clippy::disallowed_methods, reason = "a flush takes real time")]
pub(crate) mod syncfs_policy;
