//! The link layer on real networks: `remora link`. An end has a TUN device for IP packets above, the link core
//! (`remora_link`) in the middle and encrypted UDP datagrams below.
//!
//! ```text
//! any IP traffic -> device -> classifier, table -> remora_link -> tunnel -> UDP
//! ```
//!
//! [`Daemon`] is a running end; [`LinkSettings`] configures it. Read [`tunnel`] (encryption and peers, without clock or
//! socket), `device` (IP packets), `diagnostics` and [`control`], then `worker`, the event loop that joins them.

mod check;
pub mod control;
mod daemon;
mod device;
mod diagnostics;
mod error;
mod routing_table;
mod settings;
pub mod tunnel;
mod worker;

pub use control::LinkControl;
pub use daemon::Daemon;
pub use diagnostics::{ChannelState, Drops, LinkNotice, LinkReport, PeerFigures, PeerReport};
pub use error::LinkError;
pub use settings::{LinkRole, LinkSettings, LinkTuning, MobileSettings};
pub use tunnel::{LinkIdentity, LinkPublicKey, PublicKeyError, SharedSecret};
