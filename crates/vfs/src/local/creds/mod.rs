//! Part of the local disk: creds.

pub(crate) mod caller_creds;
pub(crate) mod protected_paths;
pub(crate) mod thread_creds;
