//! The session: objects between two endpoints, in QUIC packets.
//!
//! An object is a stream: a head with its priority and size, its bytes, the end. It is delivered
//! when the receiver ends the other half of the stream, which says that it has taken all of it,
//! and reset when its request ends early.
//! What ATP 02 asks of its transport, and QUIC has anyway: reliable delivery with selective
//! acknowledgements, encryption and authentication, validated addresses, roaming. What QUIC
//! does not do is done here:
//!
//! * **Just in time.** [`Endpoint`] asks the scheduler which object gets the next packet when
//!   that packet may leave, writes this packet's worth, and takes one datagram. Nothing waits
//!   behind a send buffer, so an urgent object waits only for what is on the wire. From 24 Mbit/s
//!   on several packets of one object leave together, as many as the link carries in a millisecond
//!   and 32 KiB at most ([`Endpoint::poll_batch`]).
//! * **The estimator rules.** QUIC's congestion controller (`quic_cc.rs`) lets through what
//!   ATP's estimator allows; its samples come from stamps in DATAGRAM frames (RFC 9221), which
//!   the receiver reports with its arrival times.
//! * **Held, not lost.** A peer that falls silent keeps its objects, for a day by default. Small
//!   probes find out when it is back; what is urgent overtakes what was lost.
//! * **Keys, not names.** Both ends show raw public keys (RFC 7250); a client pins its server's,
//!   a server has a list of [`Guests`].
//! * **The first flight.** To a known peer, objects leave with the first packet (0-RTT). They
//!   still come at most once: session tickets work once only.
//!
//! The QUIC is `noq-proto`'s, a fork of `quinn-proto`, for two reasons: quinn's pacer lets ten
//! packets leave at once, which is 116 ms at 1 Mbit/s and so a built-in inversion of priorities,
//! where noq's follows the controller's rate; and quinn's probe timeout backs off to 2^16. (noq's
//! grows by 2 s with each probe, so ATP probes by itself.) Both take time as it is handed in.
//!
//! # Bounds
//!
//! For each endpoint: `peers` connections (about 20 KB each, without objects), `buffer_total`
//! bytes of received objects (512 for each beside its own), 64 stateless answers, 1,024 tickets. For each peer: `buffer_peer`
//! bytes of received objects (whole, in part, or announced), `streams` objects under way, `window`
//! bytes out of order (of one object 1 MiB), 8,192 remembered packets (24 bytes each), 80 arrivals not reported yet,
//! 8 KB of DATAGRAM frames either way. Objects to be sent are the scheduler's to bound (`objects_max`,
//! `bytes_max`): one takes its bytes and about 300 more. Events wait until they are polled; there
//! are as many as there are requests, received objects and changes of a peer's state.
//!
//! # Time
//!
//! The caller gives an `Instant` for [`Time::ZERO`](remora_base::Time::ZERO), and QUIC is told
//! that much later: no clock is read. All randomness comes from the seed, but for TLS's key
//! material, which is the cipher library's own and shows in no size and no timing.

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
