//! Part of the local disk: fd_cache.

#[expect(clippy::disallowed_methods, reason = "how long ago the way to a directory was gone is real time")]
pub(crate) mod open_dirs;
#[expect(clippy::disallowed_methods, reason = "how long ago the way to a file was gone is real time")]
pub(crate) mod open_files;
pub(crate) mod owner_write;
pub(crate) mod weak_fd;
