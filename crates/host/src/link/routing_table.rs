//! Routing table of the mobiles: the longest prefix that contains a destination. It also defines the source addresses
//! that a mobile may use, like WireGuard's allowed IPs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

/// Prefixes, each owned by one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct RoutingTable {
    /// Prefixes by length, longest first: a lookup checks each length once.
    by_length: Vec<(u8, BTreeMap<IpAddr, usize>)>,
}

impl RoutingTable {
    /// Assigns `prefix` to `peer`. If it has an owner, returns that as the error.
    pub(super) fn insert(&mut self, prefix: IpNet, peer: usize) -> Result<(), usize> {
        let prefix = prefix.trunc();
        let length = prefix.prefix_len();
        let at = match self.by_length.binary_search_by(|(l, _)| length.cmp(l)) {
            Ok(at) => at,
            Err(at) => {
                self.by_length.insert(at, (length, BTreeMap::new()));
                at
            }
        };
        let Some((_, owners)) = self.by_length.get_mut(at) else { return Ok(()) };
        match owners.insert(prefix.network(), peer) {
            Some(owner) if owner != peer => {
                owners.insert(prefix.network(), owner);
                Err(owner)
            }
            _ => Ok(()),
        }
    }

    /// The owner of `addr`.
    pub(super) fn get(&self, addr: IpAddr) -> Option<usize> {
        self.by_length.iter().find_map(|(length, owners)| {
            // A length above the family's address length matches nothing.
            let prefix = IpNet::new(addr, *length).ok()?;
            owners.get(&prefix.network()).copied()
        })
    }
}

/// Splits `prefix` into prefixes without the address `hole`, so that routes into a tunnel do not catch the tunnel's
/// own datagrams. Unlike an exception route, these routes all disappear with the device. The result has at most one
/// prefix for each bit of an address. The whole address space without the hole is at least two prefixes, because a
/// prefix of length 0 would be the default route.
pub(super) fn around(prefix: IpNet, hole: IpAddr) -> Vec<IpNet> {
    if !prefix.contains(&hole) {
        let halves = prefix.subnets(1).ok().filter(|_| prefix.prefix_len() == 0);
        return halves.map_or_else(|| vec![prefix.trunc()], Iterator::collect);
    }
    (prefix.prefix_len()..prefix.max_prefix_len())
        .filter_map(|length| {
            let halves = IpNet::new(hole, length).ok()?.trunc().subnets(length + 1).ok()?;
            halves.into_iter().find(|half| !half.contains(&hole))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn longest_prefix_wins() {
        let mut t = RoutingTable::default();
        for (prefix, peer) in
            [("10.0.0.0/8", 0), ("10.1.0.0/16", 1), ("10.1.2.3/32", 2), ("0.0.0.0/0", 3), ("fd00::/8", 4)]
        {
            t.insert(net(prefix), peer).unwrap();
        }
        for (addr, peer) in [
            ("10.9.9.9", Some(0)),
            ("10.1.9.9", Some(1)),
            ("10.1.2.3", Some(2)),
            ("11.0.0.1", Some(3)),
            ("fd00::1", Some(4)),
            ("2001:db8::1", None),
        ] {
            assert_eq!(t.get(ip(addr)), peer, "{addr}");
        }
    }

    #[test]
    fn prefix_has_one_owner() {
        let mut t = RoutingTable::default();
        t.insert(net("10.0.0.7/8"), 0).unwrap();
        assert_eq!(t.insert(net("10.0.0.0/8"), 1), Err(0));
        assert_eq!(t.insert(net("10.0.0.0/8"), 0), Ok(()));
        assert_eq!(t.get(ip("10.0.0.1")), Some(0));
    }

    #[test]
    fn around_excludes_hole() {
        assert_eq!(around(net("10.0.0.1/8"), ip("11.0.0.1")), [net("10.0.0.0/8")]);
        assert_eq!(around(net("10.0.0.0/30"), ip("10.0.0.1")), [net("10.0.0.2/31"), net("10.0.0.0/32")]);
        assert_eq!(around(net("10.0.0.1/32"), ip("10.0.0.1")), []);
        assert_eq!(around(net("0.0.0.0/0"), ip("192.0.2.1")).len(), 32);
        assert_eq!(around(net("::/0"), ip("2001:db8::1")).len(), 128);
        assert_eq!(around(net("::/0"), ip("192.0.2.1")), [net("::/1"), net("8000::/1")]);
        assert_eq!(around(net("0.0.0.0/0"), ip("2001:db8::1")), [net("0.0.0.0/1"), net("128.0.0.0/1")]);
    }

    proptest! {
        #[test]
        fn around_excludes_only_hole(hole: u32, other: u32, length in 0u8..=32) {
            let hole = IpAddr::V4(hole.into());
            let prefix = IpNet::new(hole, length).unwrap();
            let pieces = around(prefix, hole);
            prop_assert!(!pieces.iter().any(|p| p.contains(&hole)));
            let other = IpAddr::V4(other.into());
            if other != hole {
                prop_assert_eq!(pieces.iter().filter(|p| p.contains(&other)).count(), usize::from(prefix.contains(&other)));
            }
        }
    }
}
