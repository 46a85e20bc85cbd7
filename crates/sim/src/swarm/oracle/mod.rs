//! The oracle: derives the correct content of a file system from the replies its clients received.
//!
//! Each actor works in its own directory, one operation at a time, so its replies determine its
//! files exactly: an acknowledged operation was executed once and persists, every status is correct
//! in sequence. The oracle examines the server's files directly, past every protocol and cache.
//!
//! Two faults excuse an operation, and only the one they affect:
//! * **A crash while it was outstanding.** The duplicate request cache is lost, so a retransmission
//!   may be executed again and return NOENT for a REMOVE or EXIST for a CREATE (RFC 1813, section
//!   4.5 leaves this to the client). The files must match the state before or after the operation,
//!   nothing in between.
//! * **A disk error.** The operation must have left the files unchanged; a failed upload may have
//!   written any part.
//!
//! `model` has the operations and their effects, `compare` the check of the server's files.

mod compare;
mod model;

pub(crate) use compare::first_difference;
pub use compare::{Tree, differences, mixture};
pub use model::{CreateMode, Kind, Model, Op};
