//! Part of the local disk: ops.

pub(crate) mod access;
pub(crate) mod exclusive;
pub(crate) mod files;
pub(crate) mod namespace;
pub(crate) mod unlink;
