//! NFS version 3 (RFC 1813): all 22 procedures.
//!
//! [`Call`] and [`Reply`] hold a procedure's arguments and results; `types` has the types they
//! share.

mod call;
mod reply;
mod types;

pub use call::*;
pub use reply::*;
pub use types::*;
