//! Addresses of the simulated nodes, and a client's stream to the server.
//!
//! The server is 10.0.0.1; client `n` is 10.1.x.y with `n` in the last two bytes; a stranger is
//! 10.2.0.1. On the radio hop the base station is 10.3.0.1 and mobile `m` is 10.4.x.y.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use remora_base::{Peer, Time};

use crate::events::NodeId;

/// Source port of clients' datagrams.
pub(super) const UDP_PORT: u16 = 800;
/// First source port of clients' streams.
pub(super) const TCP_PORT: u16 = 801;

pub const fn server_addr() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), remora_wire::nfs3::PORT)
}

pub const fn client_addr(n: usize, port: u16) -> SocketAddr {
    let [high, low] = (n as u16).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, high, low)), port)
}

/// The source of noise, which is no client.
pub(super) const fn stranger() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1)), 9)
}

/// The base station, as a link's peer.
pub(crate) const fn base_peer() -> Peer {
    Peer::datagram(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 3, 0, 1)), 0))
}

/// Mobile `m`, as a link's peer.
pub(crate) const fn mobile_peer(m: usize) -> Peer {
    let [high, low] = (m as u16).to_be_bytes();
    Peer::datagram(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 4, high, low)), 0))
}

/// The mobile of a link's peer.
pub(crate) fn mobile_of(peer: Peer) -> Option<usize> {
    number_in(peer.addr, 4)
}

pub fn client_of(addr: SocketAddr) -> Option<usize> {
    number_in(addr, 1)
}

/// The number in the last two bytes of an address in 10.`net`.
fn number_in(addr: SocketAddr, net: u8) -> Option<usize> {
    match addr.ip() {
        IpAddr::V4(ip) => match ip.octets() {
            [10, n, high, low] if n == net => Some(usize::from(u16::from_be_bytes([high, low]))),
            _ => None,
        },
        IpAddr::V6(_) => None,
    }
}

/// A client's stream to the server: records in order, until it breaks. Each connection has a new
/// number; the client chooses whether it keeps its port (Linux does, a NAT may not).
#[derive(Clone, Debug)]
pub struct StreamState {
    up: bool,
    id: u64,
    port: u16,
    /// Arrival of the last record sent to the server, and to the client.
    last: [Time; 2],
}

impl StreamState {
    pub(super) fn new() -> StreamState {
        StreamState { up: false, id: 0, port: TCP_PORT, last: [Time::ZERO; 2] }
    }

    /// The number of the connection, if connected.
    pub fn id(&self) -> Option<u64> {
        self.up.then_some(self.id)
    }

    /// Connects; with `keep_port` from the same port as before.
    pub fn connect(&mut self, client: usize, keep_port: bool) -> Peer {
        self.up = true;
        // Numbers are unique, also among clients.
        self.id = (self.id & 0xffff_ffff) + 1 + ((client as u64) << 32);
        if !keep_port {
            self.port = self.port.checked_add(1).unwrap_or(TCP_PORT);
        }
        self.last = [Time::ZERO; 2];
        Peer::stream(server_addr(), self.id)
    }

    /// Breaks the connection; returns the client's endpoint, as the server knew it.
    pub fn cut(&mut self, client: usize) -> Option<Peer> {
        let was_up = std::mem::replace(&mut self.up, false);
        was_up.then(|| self.peer(NodeId::Client(client), client))
    }

    /// The endpoint at `node`, as its peer sees it.
    pub(super) fn peer(&self, node: NodeId, client: usize) -> Peer {
        let addr = if node == NodeId::Server { server_addr() } else { client_addr(client, self.port) };
        Peer::stream(addr, self.id)
    }

    /// Arrival of a record sent now on connection `id`, not before the one sent earlier. `None` if
    /// the connection is broken.
    pub(super) fn arrival(&mut self, now: Time, delay: Duration, from: NodeId, id: u64) -> Option<Time> {
        if self.id() != Some(id) {
            return None;
        }
        let last = &mut self.last[usize::from(from == NodeId::Server)];
        *last = (*last).max(now + delay);
        Some(*last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_found_by_its_address() {
        for n in [0, 1, 255, 256, 65_535] {
            assert_eq!(client_of(client_addr(n, 5)), Some(n));
        }
        assert_eq!([mobile_of(mobile_peer(300)), mobile_of(base_peer())], [Some(300), None]);
        assert_eq!([client_of(server_addr()), client_of(stranger())], [None, None]);
    }
}
