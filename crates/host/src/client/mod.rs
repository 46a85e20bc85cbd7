//! The client core on real sockets.
//!
//! A [`Session`] is a handle on one mounted server: cheap to clone, used by many tasks at
//! once. Behind it one task owns the socket and one mutex the core; calls lock it for as long
//! as it takes to hand over a request.

mod driver;
mod error;
mod known;
mod later;
mod line;
mod mount;
mod objects;
mod race;
mod rescue;
mod roaming;
mod session;
mod streams;
mod target;
mod transfer;

pub use error::ClientError;
pub use known::Known;
pub use mount::{Mounted, Options, exports, mount, mount_first};
pub use session::Session;
pub use streams::STREAMS_LOSS;
pub use target::{Keys, Target, TargetError};
pub use transfer::{Downloaded, Limits, Progress, Written, download, receive, send, upload};
