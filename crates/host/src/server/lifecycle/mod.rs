//! Start, shutdown and upkeep of a server.

pub(super) mod descriptors;
mod export_upkeep;
pub(super) mod serving;
