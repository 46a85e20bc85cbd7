//! `remora lab`: experiments and emulated links, a module each.

pub(crate) mod atp;
pub(crate) mod channel;
pub(crate) mod copy;
pub(crate) mod drc;
pub(crate) mod emulate;
pub(crate) mod emulate_report;
pub(crate) mod flags;
pub(crate) mod mount;
pub(crate) mod nfs_atp;
pub(crate) mod predict;
pub(crate) mod publication;
pub(crate) mod relay;
pub(crate) mod wireless;
