//! Header compression within a flow (the idea of RFC 2507).
//!
//! Read `headers` (one header relative to the previous one), then `contexts` (what each end knows).

pub(crate) mod contexts;
pub(crate) mod headers;
