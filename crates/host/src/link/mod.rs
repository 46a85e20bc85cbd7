//! The link layer on real networks: `remora link`. An end has a TUN device for IP packets above, the link core
//! (`remora_link`) in the middle and encrypted UDP datagrams below.
//!
//! ```text
//! any IP traffic -> device -> classify, table -> remora_link -> party -> UDP
//! ```
//!
//! [`Daemon`] is a running end; [`Settings`] configures it. [`party`] is the secure tunnel as a state machine (Noise,
//! sessions, roaming), without clock or socket.

mod advice;
mod caller;
mod channel_notices;
mod check;
mod classify;
mod commands;
pub mod control;
mod daemon;
mod device;
mod duplicate_key;
mod error;
mod forward;
mod handshake;
pub(crate) mod key;
mod limiter;
mod link_monitor;
mod noise;
pub mod party;
mod replay;
mod report;
mod session;
mod sessions;
mod settings;
mod strangers;
mod table;
mod unsent;
mod worker;

#[cfg(test)]
mod party_tests;

pub use commands::Control;
pub use daemon::Daemon;
pub use error::LinkError;
pub use key::{Identity, KeyError, PublicKey, SharedSecret};
pub use report::{ChannelState, Drops, Figures, Notice, PeerReport, Report};
pub use settings::{Mobile, Role, Settings, Tuning};
