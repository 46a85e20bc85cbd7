//! The secure tunnel as a state machine: Noise handshakes, sessions, roaming, keepalives. It has no clock, socket or
//! thread: the [`Daemon`](super::Daemon) passes datagrams and the time.
//!
//! Read `party` first, an end of the tunnel, with its inputs and outputs in `event`. It uses `handshake` (the
//! messages), `call` (their retransmission), `limiter` (their rate), and `sessions`, each a `session` with its
//! `replay` window. `key` loads and stores the keys.

mod call;
mod event;
mod handshake;
pub(crate) mod key;
mod limiter;
mod party;
mod replay;
mod session;
mod sessions;

#[cfg(test)]
mod party_tests;

pub use event::{Counters, Down, Event, Known, Outgoing};
pub use key::{Identity, KeyError, PublicKey, SharedSecret};
pub use party::Party;
pub(super) use party::{DATAGRAM_MAX, TIMESTAMP_MAX};
pub(super) use session::OVERHEAD;
