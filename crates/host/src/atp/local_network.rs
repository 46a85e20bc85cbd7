//! Local addresses and interfaces: the source address of datagrams to each peer, whose change means a move to
//! another network or a new route; and the largest datagram that the interfaces carry.
//!
//! Larger datagrams cost less per byte: several times faster on jumbo frames or within a machine. Sizes beyond an
//! interface's MTU are not probed, because a lost probe counts as in flight. The path beyond is probed (RFC 8899).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound::{Excluded, Unbounded};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// Maximum number of peers checked in one round; the others follow in turn. Each takes some system calls.
const ROUND_MAX: usize = 64;

/// The last known source address for each peer.
#[derive(Default)]
pub(super) struct SourceAddresses {
    known: BTreeMap<SocketAddr, IpAddr>,
    /// The last peer that was checked.
    last: Option<SocketAddr>,
}

impl SourceAddresses {
    /// Checks some of `peers`; returns whether the source address for one of them has changed. `towards` returns
    /// the current one, if there is a route.
    pub(super) fn check(
        &mut self,
        peers: &BTreeSet<SocketAddr>,
        mut towards: impl FnMut(SocketAddr) -> Option<IpAddr>,
    ) -> bool {
        self.known.retain(|peer, _| peers.contains(peer));
        let later = peers.range((self.last.map_or(Unbounded, Excluded), Unbounded));
        let round: Vec<SocketAddr> = later.chain(peers).take(ROUND_MAX.min(peers.len())).copied().collect();
        self.last = round.last().copied();
        let found: Vec<_> = round.iter().filter_map(|peer| Some((*peer, towards(*peer)?))).collect();
        let is_changed = found.iter().any(|(peer, ours)| self.known.get(peer).is_some_and(|before| before != ours));
        if is_changed {
            // Changes for later peers are reported together with this one.
            self.known.retain(|peer, _| round.contains(peer));
        }
        self.known.extend(found);
        is_changed
    }
}

/// Bytes of an IPv6 and a UDP header.
const HEADERS: u32 = 48;
/// Datagram size for Ethernet, the default.
const DATAGRAM_DEFAULT: u16 = 1452;
/// Datagram size for jumbo frames of 9000 bytes. Larger ones gain little, and urgent objects wait for them.
const DATAGRAM_MAX: u16 = 8952;

/// The largest datagram for an endpoint that listens on `addr`: by the MTU of its interface, or of all interfaces
/// but the loopback for a wildcard address.
pub(super) fn datagram_max(addr: IpAddr) -> u16 {
    let Ok(all) = getifaddrs() else { return DATAGRAM_DEFAULT };
    let all: Vec<InterfaceAddress> = all.filter(|i| i.flags.contains(InterfaceFlags::IFF_UP)).collect();
    let concerns = |i: &&InterfaceAddress| match addr.is_unspecified() {
        true => !i.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        // All of 127.0.0.0/8 belongs to the loopback.
        false if addr.is_loopback() => i.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        false => address_of(i) == Some(addr.to_canonical()),
    };
    let carried = all.iter().filter(concerns).map(|i| mtu(&i.interface_name)).min();
    carried.flatten().map_or(DATAGRAM_DEFAULT, largest)
}

fn address_of(interface: &InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address.as_ref()?;
    let four = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

fn mtu(interface: &str) -> Option<u32> {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

fn largest(mtu: u32) -> u16 {
    u16::try_from(mtu.saturating_sub(HEADERS)).unwrap_or(u16::MAX).clamp(DATAGRAM_DEFAULT, DATAGRAM_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(count: u16) -> BTreeSet<SocketAddr> {
        (0..count).map(|n| SocketAddr::from(([127, 0, 0, 1], 1000 + n))).collect()
    }

    fn ours(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    #[test]
    fn changed_route_to_any_peer_is_noticed_once() {
        for moved in peers(3) {
            let mut sources = SourceAddresses::default();
            assert!(!sources.check(&peers(3), |_| Some(ours(1))), "nothing was known");
            assert!(!sources.check(&peers(3), |_| Some(ours(1))));
            let after = |peer| Some(ours(if peer == moved { 2 } else { 1 }));
            assert!(!sources.check(&peers(3), |peer| after(peer).filter(|_| peer != moved)), "no way to {moved}");
            assert!(sources.check(&peers(3), after), "another way to {moved}");
            assert!(!sources.check(&peers(3), after));
        }
    }

    #[test]
    fn interfaces_take_turns_and_gone_ones_are_forgotten() {
        let (many, mut sources) = (peers(150), SourceAddresses::default());
        let mut looks = 0;
        let rounds: Vec<bool> = (0..6)
            .map(|round| {
                sources.check(&many, |peer| {
                    looks += 1;
                    let is_moved = round >= 3 && peer.port() >= 1010;
                    Some(ours(if is_moved { 2 } else { 1 }))
                })
            })
            .collect();
        assert_eq!((looks, rounds.iter().filter(|changed| **changed).count()), (6 * ROUND_MAX, 1), "{rounds:?}");
        assert_eq!(sources.known.len(), 150, "each had its turn");
        assert!(!sources.check(&peers(1), |_| Some(ours(1))));
        assert_eq!(sources.known.len(), 1);
        assert!(!sources.check(&peers(0), |_| panic!("there is nobody")));
    }

    #[test]
    fn datagram_size_follows_interface_mtu() {
        for (mtu, datagram) in [(0, 1452), (1280, 1452), (1500, 1452), (4000, 3952), (9000, 8952), (65_536, 8952)] {
            assert_eq!(largest(mtu), datagram, "{mtu}");
        }
        assert_eq!(datagram_max("192.0.2.1".parse().unwrap()), DATAGRAM_DEFAULT, "nobody's address");
        let loopback = mtu("lo").map_or(DATAGRAM_DEFAULT, largest);
        assert_eq!(datagram_max("127.0.0.1".parse().unwrap()), loopback);
        assert!(datagram_max("0.0.0.0".parse().unwrap()) <= DATAGRAM_MAX);
    }
}
