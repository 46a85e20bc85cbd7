//! From which of our addresses datagrams to each peer leave: when that changes for any of them, a
//! laptop has moved from one network to another, or a route has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound::{Excluded, Unbounded};

/// Peers looked at in one round; of more, each has its turn. A look takes some system calls.
const ROUND_MAX: usize = 64;

/// Where datagrams came from when we last looked, for each peer there is.
#[derive(Default)]
pub(super) struct Sources {
    known: BTreeMap<SocketAddr, IpAddr>,
    /// The last that was looked at.
    last: Option<SocketAddr>,
}

impl Sources {
    /// Looks at some of `peers`, all that there are; whether datagrams to one of them leave from another
    /// address than before. `towards` tells from which, if there is a way.
    pub(super) fn look(
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
            // What has changed for those whose turn is later is told with it.
            self.known.retain(|peer, _| round.contains(peer));
        }
        self.known.extend(found);
        is_changed
    }
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
    fn another_way_to_any_peer_is_noticed_once() {
        for moved in peers(3) {
            let mut sources = Sources::default();
            assert!(!sources.look(&peers(3), |_| Some(ours(1))), "nothing was known");
            assert!(!sources.look(&peers(3), |_| Some(ours(1))));
            let after = |peer| Some(ours(if peer == moved { 2 } else { 1 }));
            assert!(!sources.look(&peers(3), |peer| after(peer).filter(|_| peer != moved)), "no way to {moved}");
            assert!(sources.look(&peers(3), after), "another way to {moved}");
            assert!(!sources.look(&peers(3), after));
        }
    }

    #[test]
    fn of_many_each_has_its_turn_and_those_gone_are_forgotten() {
        let (many, mut sources) = (peers(150), Sources::default());
        let mut looks = 0;
        let rounds: Vec<bool> = (0..6)
            .map(|round| {
                sources.look(&many, |peer| {
                    looks += 1;
                    let is_moved = round >= 3 && peer.port() >= 1010;
                    Some(ours(if is_moved { 2 } else { 1 }))
                })
            })
            .collect();
        assert_eq!((looks, rounds.iter().filter(|changed| **changed).count()), (6 * ROUND_MAX, 1), "{rounds:?}");
        assert_eq!(sources.known.len(), 150, "each had its turn");
        assert!(!sources.look(&peers(1), |_| Some(ours(1))));
        assert_eq!(sources.known.len(), 1);
        assert!(!sources.look(&peers(0), |_| panic!("there is nobody")));
    }
}
