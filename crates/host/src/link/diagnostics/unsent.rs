//! Tracks the peers to which the kernel currently rejects datagrams: a mobile between two networks, or one mobile of a
//! base whose others are reachable.

use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Most peers remembered; of more, only the existence is known.
const MAX: usize = 1024;

/// Peers to which sending fails.
#[derive(Debug, Default)]
pub(in crate::link) struct Unsent {
    to: BTreeSet<SocketAddr>,
    /// Whether a failure is currently reported.
    is_told: bool,
}

impl Unsent {
    /// Records that a datagram to `to` was rejected; true if sending worked for all peers before.
    pub(in crate::link) fn failed(&mut self, to: SocketAddr) -> bool {
        if self.to.len() < MAX {
            self.to.insert(to);
        }
        !std::mem::replace(&mut self.is_told, true)
    }

    /// Records that a datagram to `to` was sent; true if no current peer address (`is_end`) remains unreachable.
    pub(in crate::link) fn left(&mut self, to: SocketAddr, is_end: impl Fn(&SocketAddr) -> bool) -> bool {
        if !self.is_told {
            return false;
        }
        self.to.retain(|at| *at != to && is_end(at));
        self.is_told = !self.to.is_empty();
        !self.is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_peer_is_reported_once() {
        let [a, b, c] = [1, 2, 3].map(|n| SocketAddr::from(([10, 0, 0, n], 7)));
        let mut unsent = Unsent::default();
        assert!(!unsent.left(a, |_| true), "nothing was amiss");
        assert!(unsent.failed(b));
        for _ in 0..9 {
            assert!(!unsent.left(a, |_| true) && !unsent.failed(b));
        }
        assert!(!unsent.failed(c) && !unsent.left(b, |_| true), "there is another");
        assert!(unsent.left(c, |_| true) && !unsent.left(c, |_| true));
        assert!(unsent.failed(b));
        assert!(unsent.left(a, |at| *at != b), "nobody is there any more");
        for n in 0..5000 {
            unsent.failed(SocketAddr::from(([10, 1, 0, 1], n)));
        }
        assert_eq!(unsent.to.len(), MAX);
    }
}
