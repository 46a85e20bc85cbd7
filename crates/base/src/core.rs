//! The contract between a protocol core and its driver, and the peers it talks to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::Bytes;

use crate::Time;

/// A protocol as a pure state machine: no clock, socket, thread or randomness of its own.
///
/// **Mutate once, then drain.** After any call that takes `&mut self` and is not a `poll_` call,
/// drain [`poll_transmit`](Core::poll_transmit), then [`poll_event`](Core::poll_event), then call
/// [`handle_timeout`](Core::handle_timeout) at [`poll_timeout`](Core::poll_timeout). `now` never
/// goes backwards.
///
/// A core counts and drops bad input; a fatal loss is an event. No input makes a core panic.
pub trait Core {
    /// Event for the layer above.
    type Event;

    /// Handles one message: a datagram, or a record without its mark.
    fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes);

    /// Runs every timer that is due. Extra calls are harmless.
    fn handle_timeout(&mut self, now: Time);

    /// The next message to send.
    fn poll_transmit(&mut self, now: Time) -> Option<Transmit>;

    /// The next event for the layer above.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`handle_timeout`](Core::handle_timeout) is next due; `None` for never.
    fn poll_timeout(&self) -> Option<Time>;
}

/// The remote end of an association.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Peer {
    /// Socket address: real on the host, invented in the simulator.
    pub addr: SocketAddr,
    /// Transport of the messages.
    pub path: Path,
}

/// Transport of messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Path {
    /// Datagrams, as over UDP.
    Datagram,
    /// Records on a stream (TCP), with the number of the connection; later connections have higher
    /// numbers.
    Stream(u64),
}

impl Peer {
    /// The peer at `addr` over datagrams.
    pub const fn datagram(addr: SocketAddr) -> Peer {
        Peer { addr, path: Path::Datagram }
    }

    /// The peer at `addr` over connection `id`.
    pub const fn stream(addr: SocketAddr, id: u64) -> Peer {
        Peer { addr, path: Path::Stream(id) }
    }
}

/// A message to send: one datagram, or one record of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Destination of the message.
    pub to: Peer,
    /// The message, without a record mark.
    pub payload: Bytes,
}

/// The host of an address, for limits per host: an IPv4 address, or an IPv6 network of 64 bits, all
/// of whose addresses may belong to one machine.
pub fn host_of(addr: SocketAddr) -> IpAddr {
    match addr.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_ipv4_address_or_ipv6_network_of_64_bits() {
        let host = |text: &str| host_of(text.parse().unwrap());
        assert_eq!(host("10.0.0.1:1"), host("[::ffff:10.0.0.1]:2"));
        assert_ne!(host("10.0.0.1:1"), host("10.0.0.2:1"));
        assert_eq!(host("[2001:db8::1]:1"), host("[2001:db8:0:0:9::2]:1"));
        assert_ne!(host("[2001:db8::1]:1"), host("[2001:db8:0:1::1]:1"));
    }
}
