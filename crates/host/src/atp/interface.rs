//! How large a datagram may be so that the interfaces it can leave from carry it in one piece.
//!
//! Larger datagrams cost less for each byte: on a network of jumbo frames, or within a machine, an
//! endpoint is several times as fast with them. Datagrams that are too large for an interface are
//! not even tried, for while a probe is missing it counts as under way. What routers further on
//! carry is found out by probes (RFC 8899).

use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// Bytes an IPv6 and a UDP header take.
const HEADERS: u32 = 48;
/// Fits Ethernet: what is taken if nothing else is known.
const USUAL: u16 = 1452;
/// Fits jumbo frames of 9000 bytes. Larger ones bring little, and an urgent object waits for one.
const LARGEST: u16 = 8952;

/// The largest datagram for an endpoint that listens on `addr`: what the address's interface
/// carries; of a wildcard address, what all interfaces but the loopback do.
pub(super) fn datagram_max(addr: IpAddr) -> u16 {
    let Ok(all) = getifaddrs() else { return USUAL };
    let all: Vec<InterfaceAddress> = all.filter(|i| i.flags.contains(InterfaceFlags::IFF_UP)).collect();
    let concerns = |i: &&InterfaceAddress| match addr.is_unspecified() {
        true => !i.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        // All of 127.0.0.0/8 is the loopback's, whichever of it is named.
        false if addr.is_loopback() => i.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        false => address_of(i) == Some(addr.to_canonical()),
    };
    let carried = all.iter().filter(concerns).map(|i| mtu(&i.interface_name)).min();
    carried.flatten().map_or(USUAL, largest)
}

fn address_of(interface: &InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address.as_ref()?;
    let four = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// Bytes of IP that the interface carries in one piece.
fn mtu(interface: &str) -> Option<u32> {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

fn largest(mtu: u32) -> u16 {
    u16::try_from(mtu.saturating_sub(HEADERS)).unwrap_or(u16::MAX).clamp(USUAL, LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_says_what_it_carries() {
        for (mtu, datagram) in [(0, 1452), (1280, 1452), (1500, 1452), (4000, 3952), (9000, 8952), (65_536, 8952)] {
            assert_eq!(largest(mtu), datagram, "{mtu}");
        }
        assert_eq!(datagram_max("192.0.2.1".parse().unwrap()), USUAL, "nobody's address");
        let loopback = mtu("lo").map_or(USUAL, largest);
        assert_eq!(datagram_max("127.0.0.1".parse().unwrap()), loopback);
        assert!(datagram_max("0.0.0.0".parse().unwrap()) <= LARGEST);
    }
}
