//! Callers: as whom the kernel executes an operation, and which objects no caller reaches.
//!
//! [`thread_creds`] switches the credentials of a thread to those of the caller, so that the kernel checks permissions
//! as for a local process. [`protected_paths`] denies access to the server's own keys.

pub(crate) mod protected_paths;
pub(crate) mod thread_creds;
