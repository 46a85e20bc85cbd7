//! NFS version 2 (RFC 1094): all 18 procedures.
//!
//! [`Call`] and [`Reply`] hold a procedure's arguments and results; `types` has the types they
//! share. Differences from version 3: handles of exactly 32 bytes, sizes and offsets of 32 bits, at
//! most [`DATA_MAX`] bytes of data, times in microseconds, and no ACCESS, MKNOD, READDIRPLUS or
//! COMMIT.

mod call;
mod reply;
mod types;

pub use call::*;
pub use reply::*;
pub use types::*;

pub use crate::nfs3::{PORT, PROGRAM};
