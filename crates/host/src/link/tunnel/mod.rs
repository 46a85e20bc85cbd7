//! The secure tunnel as a state machine: Noise handshakes, sessions, roaming, keepalives. It has no clock, socket or
//! thread: the [`Daemon`](super::Daemon) passes datagrams and the time.
//!
//! Read `endpoint` first, an end of the tunnel, with its inputs and outputs in `event`. It uses `handshake` (the
//! messages), `call` (their retransmission), `limiter` (their rate), and `sessions`, each a `session` with its
//! `replay` window. `key` loads and stores the keys.

mod endpoint;
mod event;
mod handshake;
mod key;
mod limiter;
mod pending_handshake;
mod replay;
mod session;
mod sessions;

#[cfg(test)]
mod endpoint_tests;

pub use endpoint::TunnelEndpoint;
pub(super) use endpoint::{DATAGRAM_MAX, TIMESTAMP_MAX};
pub use event::{DownReason, InvalidDatagrams, KnownPeer, OutgoingDatagram, TunnelEvent};
pub use key::{LinkIdentity, LinkPublicKey, PublicKeyError, SharedSecret};
pub(super) use session::OVERHEAD;
