//! Files and directories that stay open between requests.
//!
//! [`open_files`] caches files that are open for reading or writing, [`open_dirs`] directories. Both trust the path to
//! an open object for a while only. [`weak_fd`] examines cached descriptors without holding the cache's lock.

#[expect(clippy::disallowed_methods, reason = "an open directory is trusted for real time")]
pub(crate) mod open_dirs;
#[expect(clippy::disallowed_methods, reason = "an open file is trusted for real time")]
pub(crate) mod open_files;
pub(crate) mod weak_fd;
