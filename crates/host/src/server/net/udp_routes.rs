//! Which way datagrams go back to a client: the socket and local address they came by.
//!
//! A client that talks to two sockets from one port is answered on the later one; clients
//! use a port for each. Bounded by two generations: when the young one is full it becomes
//! the old one, and what was old and silent since is forgotten.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Most clients in a generation.
const GENERATION: usize = 8192;

/// How a client's last datagram came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    /// Index of the socket.
    pub(crate) socket: usize,
    /// The address of ours that it was sent to, where the system tells.
    pub(crate) local: Option<IpAddr>,
}

/// The last route of each client heard.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    young: HashMap<SocketAddr, Route>,
    old: HashMap<SocketAddr, Route>,
}

impl Routes {
    /// A datagram of `peer` came by `route`.
    pub(crate) fn heard(&mut self, peer: SocketAddr, route: Route) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&peer) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(peer, route);
    }

    /// The way back to `peer`; for one forgotten, the first socket.
    pub(crate) fn to(&self, peer: &SocketAddr) -> Route {
        let known = self.young.get(peer).or_else(|| self.old.get(peer));
        known.copied().unwrap_or(Route { socket: 0, local: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_recent_and_forgets_the_rest() {
        let peer = |n: usize| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 1000 + (n >> 16) as u16));
        let mut routes = Routes::default();
        for n in 0..3 * GENERATION {
            routes.heard(peer(n), Route { socket: n, local: None });
            assert!(routes.young.len() + routes.old.len() <= 2 * GENERATION);
        }
        let last = 3 * GENERATION - 1;
        assert_eq!(routes.to(&peer(last)).socket, last);
        assert_eq!(routes.to(&peer(last - GENERATION)).socket, last - GENERATION);
        assert_eq!(routes.to(&peer(0)).socket, 0);
        routes.heard(peer(last), Route { socket: 5, local: None });
        assert_eq!(routes.to(&peer(last)).socket, 5);
    }
}
