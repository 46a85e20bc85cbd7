//! An end of the secure tunnel as a state machine: handshakes, sessions, roaming, keepalives. It has no clock, socket
//! or thread: the [`Daemon`](super::Daemon) passes datagrams and the time.
//!
//! A mobile begins each handshake (a *call*). The base knows its mobiles by their keys and learns their addresses from
//! the newest authentic message. It counts and does not answer forged and replayed messages, and those of mobiles whose
//! keys it does not know (*strangers*).

mod calls;
mod event;
mod remote;
mod state;

pub(super) use calls::TIMESTAMP_MAX;
pub use event::{Counters, Down, Event, Known, Outgoing};
pub(super) use state::DATAGRAM_MAX;
#[cfg(test)]
pub(super) use state::GONE_AFTER;
pub use state::Party;
