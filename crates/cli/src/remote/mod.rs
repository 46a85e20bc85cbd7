//! Files on NFS servers: [`servers`] mounts what a URL names, [`filesystem`] has the operations on it.

pub(crate) mod attributes;
pub(crate) mod concurrency;
pub(crate) mod filesystem;
pub(crate) mod flags;
pub(crate) mod listing;
pub(crate) mod root_cache;
pub(crate) mod servers;
pub(crate) mod stall_notice;
