//! Errors of the kernel's side of a mount.

use remora_host::fuse::FuseError;

use crate::output::exit::Error;

/// What the kernel, or fusermount3, did not do.
pub(crate) fn kernel_error(error: &FuseError) -> Error {
    let text = error.to_string();
    let (what, why) = text.split_once(": ").unwrap_or(("cannot mount", &text));
    Error::refused(what, why)
}
