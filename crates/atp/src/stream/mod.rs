//! TCP byte streams over objects, for gateways between ATP and TCP (ATP 02, section 2).
//!
//! Objects arrive complete, at most once and in any order; a TCP connection is two ordered byte streams with
//! separate ends. So the bytes of a connection are cut into numbered objects, sent in parallel, and reordered by
//! the receiver, which grants credit. During an outage objects are held, and the connections pause.
//!
//! The *opener* requests connections, the *acceptor* decides. Each is a [`Streams`] for one ATP session, sans I/O:
//! mutate once, then drain [`poll_object`](Streams::poll_object), [`poll_cancel`](Streams::poll_cancel) and
//! [`poll_event`](Streams::poll_event). When a session ends, its connections end, and the caller must reset their
//! TCP connections: bytes may be lost, and a truncated stream must not look complete.
//!
//! Duplicates are dropped, so an object with an unknown fate may be sent again.
//!
//! # Bounds
//!
//! For each end: [`Config::streams`] connections, and as many closing ones. For each connection: [`Config::window`]
//! bytes received and not taken ([`WINDOW_MIN`] before it is accepted), as many sent and not delivered, a span of
//! 256 undelivered data frames, and 16 credit frames. The last frame of a closed connection is one object; twice
//! [`Config::streams`] of them are in flight, and twice [`STREAMS_MAX`] wait, a few bytes each, before the peer is
//! in violation.

mod frame;
mod interface;
mod parts;
mod streams;
mod target;

#[cfg(test)]
mod tests;

pub use interface::{
    Config, End, Event, Fate, Object, ObjectId, OpenError, Refused, Reset, STREAMS_MAX, Stats, StreamId, Terms,
    Violation, WINDOW_MIN,
};
pub use parts::Taken;
pub use streams::Streams;
pub use target::{Target, TargetError};
