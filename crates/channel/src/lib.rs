//! The emulated channel: a base station, one or more mobiles, slow and bursty links between
//! them (NFS/W 95 §3.2, NFS/W 97). It stands in for the papers' wireless testbed, and for any
//! other poor hop.
//!
//! A [`Channel`] is a pure state machine on virtual time. Whoever owns the clock drives it:
//! the simulator, or a driver of real sockets and devices. **[`send`](Channel::send) datagrams
//! in, or IP packets by [`send_packet`](Channel::send_packet), take
//! [`poll_delivery`](Channel::poll_delivery) until it is empty, then come back at
//! [`poll_timeout`](Channel::poll_timeout).** Its timeline is computed from logical times, so
//! coming back late delays what is handed over, but changes neither which frames live nor the
//! times they carry.
//!
//! [`Weather`] is a mobile's timeline of good and bad periods. It depends on the seed and the
//! time alone, never on traffic, so reports can draw it and [`floor`] can say what the best
//! sender could have done on the same seed.
//!
//! Duplication, reordering and corruption are the simulator's business, not the channel's.

mod burst;
mod bus;
mod channel;
mod config;
pub mod csma;
mod floor;
mod fragment;
mod lane;
mod medium;
mod opportunities;
mod receiver;
mod stats;
mod weather;

pub use burst::Distribution;
pub use channel::Channel;
pub use config::{Access, Config, ConfigError, Duplex, ErrorModel, MOBILES_MAX, Outage, Receiver};
pub use floor::floor;
pub use fragment::DATAGRAM_MAX;
pub use lane::{Delivery, Lane, PerSide, Side};
pub use opportunities::{Opportunities, TraceError};
pub use stats::{DATA_FRAME_MIN, Fate, FrameRecord, SideStats};
pub use weather::{BadPeriods, Period, Weather};
