//! A link layer with retransmission over an unreliable frame service. NFS/W 95 (section 5) and NFS/W 97 planned such a
//! layer in the driver of the wireless device.
//!
//! [`Link`] is a pure state machine ([`remora_base::Core`]). A base station has one destination for each mobile; a
//! mobile has one, the base station. Each destination has its own queue, a window of numbered frames (selective repeat
//! ARQ), and a channel state. A missed acknowledgement makes the destination *suspect*: only short probes go to it
//! until it is heard again (channel-state-dependent scheduling). The receiver releases the packets of a flow in order
//! (over long RTTs only those of senders that take reordering for loss, as TCP does), and no flow waits for another.
//!
//! docs/internals/link.md explains the mechanisms and the limits.

#![allow(missing_docs, reason = "used inside the workspace only")]

mod arq;
mod compression;
mod config;
mod destination;
mod handoff;
mod interface;
mod link;
mod pacing;
mod queueing;

pub use config::{ArqMode, Codel, Duplex, LinkConfig, MediumScheduler, PerClass, RetransmissionLimits};
pub use interface::{Class, GaveUp, HandOffPhase, LinkEvent, LinkSnapshot, Packet, PeerState, PeerStats, PeerView};
pub use link::Link;
