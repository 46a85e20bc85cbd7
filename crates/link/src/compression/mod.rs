//! Header compression within a flow (after RFC 2507).
//!
//! Read `headers` (headers relative to a context), then `contexts` (the contexts known to each end).

pub(crate) mod contexts;
pub(crate) mod headers;
