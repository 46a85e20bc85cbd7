//! The session: transfers objects between two endpoints in QUIC packets.
//!
//! An object is a bidirectional stream: a head with priority and size, the bytes, FIN. The receiver confirms the
//! object by ending its direction of the stream. A request that ends early resets the stream. QUIC provides what
//! ATP 02 needs of its transport: reliable delivery with selective acknowledgements, encryption, authentication,
//! address validation and migration. This module adds:
//!
//! * **Late binding.** [`Endpoint`] asks the scheduler for the next object when a packet may be sent, writes one
//!   packet of it, and polls one datagram. No send buffer delays an urgent object. From 24 Mbit/s on, several
//!   packets of one object are sent together: as many as the link carries in a millisecond, at most 32 KiB
//!   ([`Endpoint::poll_batch`]).
//! * **Congestion control by the estimator.** QUIC's congestion controller (`quic_cc.rs`) applies the window of
//!   [`Estimator`](crate::estimate::Estimator). Its samples come from stamps in DATAGRAM frames (RFC 9221), which
//!   the receiver reports with arrival times.
//! * **Outages.** A silent peer keeps its objects, by default for a day. Small probes detect its return; urgent
//!   objects precede retransmissions.
//! * **Keys.** Both ends authenticate with raw public keys (RFC 7250). A client pins its server's key, a server has
//!   a list of [`Guests`].
//! * **0-RTT.** To a known peer, objects leave with the first packet, and still arrive at most once, because each
//!   session ticket is valid once.
//!
//! The QUIC library is `noq-proto`, a fork of `quinn-proto`, for two reasons. quinn's pacer sends bursts of ten
//! packets, 116 ms at 1 Mbit/s, which is a priority inversion; noq's follows the controller's rate. quinn's probe
//! timeout backs off by up to 2^16; noq's grows by 2 s with each probe, and ATP probes by itself. Both are sans
//! I/O.
//!
//! # Bounds
//!
//! For each endpoint: `peers` connections (about 20 KB each, without objects), `buffer_total` bytes of received
//! objects (plus 512 bytes each), 64 stateless answers, 1,024 tickets. For each peer: `buffer_peer` bytes of
//! received objects (complete, partial or announced), `streams` objects in flight, `window` bytes out of order (1
//! MiB of one object), 8,192 sent packets (24 bytes each), 80 arrivals to report, 8 KB of DATAGRAM frames in each
//! direction. The scheduler bounds objects to be sent (`objects_max`, `bytes_max`); each takes its bytes and about
//! 300 more. Events wait until they are polled; their number is bounded by the requests, the received objects and
//! the state changes of peers.
//!
//! # Time
//!
//! The caller passes an `Instant` for [`Time::ZERO`](remora_base::Time::ZERO), from which QUIC's times are
//! computed; no clock is read. All randomness comes from the seed, except TLS key material, which affects no size
//! and no timing.

mod config;
mod crypto;
mod endpoint;
mod event;
mod path;
mod peer;
mod quic;

#[cfg(test)]
mod tests;

pub use config::{Bottleneck, Config};
pub use crypto::raw_keys;
pub use crypto::{Guests, Identity, KEY_LEN, KeyError, PublicKey};
pub use endpoint::{Batch, ConnectError, Endpoint};
#[cfg(feature = "fuzzing")]
pub use endpoint::{Forged, ForgedEnd};
pub use event::{Counters, Ending, Event, PeerId, Refusal, Status, Usage};
pub use peer::OBJECT_COST;
pub use quic::SetupError;
