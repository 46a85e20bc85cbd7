//! The link-level retransmission core: what NFS/W 95, section 5, and NFS/W 97 planned for the
//! driver, run over an unreliable frame service.
//!
//! [`Link`] is a pure state machine ([`remora_base::Core`]). A base station has one destination
//! for each mobile, a mobile has one, the base. Each destination has a queue of its own, a
//! window of numbered frames with selective repeat, and a channel state: a missed
//! acknowledgement makes it *suspect*, and then nothing but short probes goes to it until it
//! is heard again (channel-state-dependent scheduling). Packets leave the other end in order
//! within their flow (on long ways only those of senders that need it), and no flow waits for
//! another.
//!
//! docs/internals/link.md says how it works and why the limits are what they are.

mod arq;
mod compression;
mod config;
mod destination;
mod event;
mod handoff;
mod link;
mod pacing;
mod packet;
mod queueing;
mod stats;

pub use config::{Codel, Config, Duplex, Limits, Mode, PerClass, Scheduler};
pub use event::{Event, HandOffPhase};
pub use link::Link;
pub use packet::{Class, Packet};
pub use stats::{GaveUp, PeerStats, PeerView, Snapshot, State};
