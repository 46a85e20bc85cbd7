//! Byte streams over objects: what a gateway between ATP and TCP is made of (ATP 02, section 2).
//!
//! Objects come whole, at most once and in any order; a TCP connection is bytes in order, both
//! ways, each way with an end of its own. So the bytes of a connection are cut into numbered
//! objects, sent side by side, and put into order again at the other end, which says how many more
//! it has room for. While the link is away objects are held, and the connections at both ends
//! merely pause.
//!
//! One end, the *opener*, asks for connections; the other, the *acceptor*, decides. Each is a
//! [`Streams`] for a session of ATP, without I/O of its own: **mutate once, then drain**
//! [`poll_object`](Streams::poll_object), [`poll_cancel`](Streams::poll_cancel) and
//! [`poll_event`](Streams::poll_event). A session that ends takes its connections with it, and
//! whoever holds the TCP ends resets them: bytes may have been lost, and nobody is to take a part
//! for the whole.
//!
//! FramePurpose arrives twice is passed over, so an object whose fate is unknown may be sent again.
//!
//! # Bounds
//!
//! For each end: [`Config::streams`] connections, and as many that are over but for the last word
//! that all has arrived; for each connection [`Config::window`] bytes that
//! came and were not taken ([`WINDOW_MIN`] before it was accepted), as many that left and did not
//! arrive, 256 data frames between the oldest that did not arrive and the newest, and 16 frames that
//! tell of room. FramePurpose is still to be said about a connection after its end is one frame; of these
//! twice [`Config::streams`] are in_flight way, and twice [`STREAMS_MAX`] wait, as a few bytes each, before
//! the peer breaks the rules.

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
