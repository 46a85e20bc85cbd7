//! The oracle: what a file system must look like, given what its clients were told.
//!
//! Each actor works in a directory of its own, one operation at a time, so what it was told
//! determines its files exactly: an acknowledged operation was done once and is still there,
//! every status is the one its turn called for. The oracle looks at the server's files
//! directly, past every protocol and cache.
//!
//! Two things excuse an operation, and only the one they hit:
//! * **A crash while it was unanswered.** The duplicate request cache is gone, so a
//!   retransmission may be carried out a second time and say so: NOENT for a REMOVE, EXIST for
//!   a CREATE (RFC 1813, section 4.5 leaves this to the client). The files must then be as
//!   before or as after the operation, nothing between.
//! * **A disk error.** The operation must have left the files as they were; an upload that
//!   fails may have got anywhere.

mod compare;
mod model;

pub(crate) use compare::first_difference;
pub use compare::{Tree, differences, mixture};
pub use model::{Kind, Model};
