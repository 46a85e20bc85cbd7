//! Addresses of the simulated nodes, and a client's stream to the server.
//!
//! The server is 10.0.0.1; client `n` is 10.1.x.y with `n` in the last two bytes; a stranger is
//! 10.2.0.1. On the radio hop the base station is 10.3.0.1 and mobile `m` is 10.4.x.y.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use remora_base::Peer;

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
