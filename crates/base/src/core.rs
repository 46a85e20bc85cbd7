//! The contract between a protocol core and the world it runs in.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::Time;

/// A protocol as a pure state machine: no clock, socket, thread or randomness of its own.
///
/// The one law: **mutate once, then drain.** After any call that takes `&mut self` and is not
/// a `poll_` call, take every [`poll_transmit`](Core::poll_transmit), then every
/// [`poll_event`](Core::poll_event), then ask [`poll_timeout`](Core::poll_timeout) when to
/// call [`handle_timeout`](Core::handle_timeout). `now` never goes backwards.
///
/// Bad input is counted and dropped; a fatal loss is an event. No input makes a core panic.
pub trait Core {
    /// What the core tells the layer above.
    type Event;

    /// Takes one whole message: a datagram, or a record already cut out of a stream.
    fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes);

    /// Acts on every timer that is due. Calling it early or twice is harmless.
    fn handle_timeout(&mut self, now: Time);

    /// The next message to send, if there is one.
    fn poll_transmit(&mut self, now: Time) -> Option<Transmit>;

    /// The next thing to tell the layer above.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`handle_timeout`](Core::handle_timeout) is next due; `None` for never.
    fn poll_timeout(&self) -> Option<Time>;
}

/// The other end of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Peer {
    /// Its address: real on the host, made up in the simulator.
    pub addr: SocketAddr,
    /// The way messages travel to it.
    pub path: Path,
}

/// The way messages travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Path {
    /// As datagrams (UDP).
    Datagram,
    /// As records on a stream (TCP); the number tells connections apart, and a later connection
    /// has a higher one.
    Stream(u64),
}

impl Peer {
    /// The peer at `addr`, reached by datagrams.
    pub const fn datagram(addr: SocketAddr) -> Peer {
        Peer { addr, path: Path::Datagram }
    }

    /// The peer at `addr`, at the far end of connection `id`.
    pub const fn stream(addr: SocketAddr, id: u64) -> Peer {
        Peer { addr, path: Path::Stream(id) }
    }
}

/// A message to be sent: one datagram, or one record for the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to.
    pub to: Peer,
    /// The whole message, without record marking.
    pub payload: Bytes,
}
