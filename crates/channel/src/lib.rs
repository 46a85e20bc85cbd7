//! The emulated channel: a base station, one or more mobiles, and slow, bursty links between them
//! (NFS/W 95 §3.2, NFS/W 97). It replaces the papers' wireless testbed and models any other poor
//! hop.
//!
//! A [`Channel`] is a pure state machine on virtual time; the simulator, or a driver of real
//! sockets and devices, owns the clock. **[`send`](Channel::send) datagrams, or IP packets by
//! [`send_packet`](Channel::send_packet), drain [`poll_delivery`](Channel::poll_delivery), then
//! call again at [`poll_timeout`](Channel::poll_timeout).** Events carry logical times: a late call
//! delays a delivery, but changes neither its time nor the fate of a frame.
//!
//! [`ErrorProcess`] is a mobile's timeline of good and bad periods. It depends on the seed and the
//! time alone, never on traffic, so reports can draw it and [`floor`] can compute the best sender's
//! time for the same seed.
//!
//! The channel neither duplicates nor corrupts; the simulator adds these faults.
//!
//! Read `config`, `lane`, `error_process`, `medium`, `traffic`, then `channel`.

#![allow(missing_docs, reason = "used inside the workspace only")]

mod channel;
mod config;
pub mod csma;
mod error_process;
mod floor;
mod lane;
mod medium;
mod opportunities;
mod traffic;

pub use channel::Channel;
pub use config::{Access, Config, ConfigError, Distribution, Duplex, ErrorModel, MOBILES_MAX, Outage, Receiver};
pub use error_process::{BadPeriods, ErrorProcess, Period};
pub use floor::floor;
pub use lane::{DATA_FRAME_MIN, Delivery, Fate, FrameRecord, Lane, PerSide, Side, SideStats};
pub use opportunities::{Opportunities, TraceError};
pub use traffic::DATAGRAM_MAX;
