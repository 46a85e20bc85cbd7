//! Events of a world and their records.
//!
//! `event_queue` orders future events; `trace` records past ones as a hash and a text log, with
//! messages rendered by `message_text`; `packet_log` has a client's packets for plots.

mod event_queue;
pub(crate) mod message_text;
mod packet_log;
mod trace;

pub use event_queue::EventQueue;
pub(crate) use packet_log::PacketLog;
pub use packet_log::{Packet, PacketKind};
pub use trace::{NodeId, Trace};
