//! The link layer on real networks: `remora link`. An end has a TUN device for IP packets
//! above, the link core (`remora_link`) in the middle and sealed UDP datagrams below.
//!
//! ```text
//! any IP traffic -> device -> classify, table -> remora_link -> party -> UDP
//! ```
//!
//! [`Daemon`] is an end that runs; [`Settings`] is what it is told. Below it, [`party`] is the
//! secure tunnel as a state machine (Noise, sessions, roaming), without clock or socket.

mod advice;
mod caller;
mod check;
mod classify;
pub mod control;
mod daemon;
mod device;
mod error;
mod flips;
mod forward;
mod handshake;
pub(crate) mod key;
mod limiter;
pub mod party;
mod replay;
mod report;
mod session;
mod sessions;
mod settings;
mod standing;
mod strangers;
mod table;
mod unsent;
mod ups;
mod worker;

#[cfg(test)]
mod party_tests;

pub use daemon::{Control, Daemon};
pub use error::LinkError;
pub use key::{Identity, KeyError, PublicKey, SharedSecret};
pub use report::{ChannelState, Drops, Figures, Notice, PeerReport, Report};
pub use settings::{Mobile, Role, Settings, Tuning};
