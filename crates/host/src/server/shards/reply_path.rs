//! Reply paths: connections and sockets as the cores see them.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use remora_base::{Peer, Time};
use remora_server::cache::Ends;

use crate::server::admission::eviction::Occupant;
use crate::server::admission::permits::{ConnectionShare, Permit};

/// A reply, and the permit that it is sent under.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) payload: Bytes,
    pub(crate) permit: Option<Permit>,
}

/// A connection on which replies are sent: over TCP or ATP.
pub(crate) trait ReplyPath: Debug + Send + Sync {
    fn id(&self) -> u64;

    fn peer(&self) -> Peer;

    fn share(&self) -> &ConnectionShare;

    /// Announces replies that leave the core, whose lock the caller holds. [`send`](ReplyPath::send) must follow.
    fn expect(&self);

    /// Sends or queues the replies that were announced together.
    fn send(&self, replies: Vec<Reply>);

    /// Whether the client has probably received all that was given to the socket. Says nothing of replies that are still
    /// queued. False if it cannot be known.
    fn seems_delivered(&self) -> bool;

    /// Whether the client has reset the connection or is known to be gone.
    fn is_broken(&self) -> bool;

    /// Ends the connection once its requests are answered.
    fn stop(&self);

    /// Ends the connection because another client needs its descriptor.
    fn evict(&self);

    /// What the connection occupies. `None` if it holds no descriptor or is about to end. `owed`: the peers that wait for
    /// replies.
    fn occupant(&self, now: Time, owed: &BTreeSet<Peer>) -> Option<Occupant>;
}

/// A shard's connections, for a core that asks what became of them.
pub(crate) struct ConnectionFates<'a>(pub(crate) &'a HashMap<u64, Arc<dyn ReplyPath>>);

impl Ends for ConnectionFates<'_> {
    fn has_arrived(&self, connection: u64) -> bool {
        self.0.get(&connection).is_some_and(|path| path.seems_delivered())
    }

    fn is_broken(&self, connection: u64) -> bool {
        self.0.get(&connection).is_some_and(|path| path.is_broken())
    }
}

/// A socket that sends datagrams.
pub(crate) trait DatagramSender: Debug + Send + Sync {
    /// Sends a datagram, from the local address if it is given. A full buffer is an error.
    fn send(&self, to: SocketAddr, local: Option<IpAddr>, payload: &[u8]) -> io::Result<()>;
}

/// Where the last datagram of a client arrived.
#[derive(Clone, Debug)]
pub(crate) struct DatagramPath {
    pub(crate) socket: Arc<dyn DatagramSender>,
    /// The local address that the datagram was sent to, if it is known.
    pub(crate) local: Option<IpAddr>,
}

/// Most clients in a generation.
const GENERATION: usize = 8192;

/// The last datagram path of each recent client. Clients use one port for each server socket, so the last path is the
/// right one. Bounded by two generations: a full young generation replaces the old one.
#[derive(Debug, Default)]
pub(crate) struct DatagramPaths {
    young: HashMap<SocketAddr, DatagramPath>,
    old: HashMap<SocketAddr, DatagramPath>,
}

impl DatagramPaths {
    /// Notes the path of a datagram from `peer`.
    pub(crate) fn insert(&mut self, peer: SocketAddr, path: DatagramPath) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&peer) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(peer, path);
    }

    /// The path to `peer`, unless it is forgotten.
    pub(crate) fn get(&self, peer: &SocketAddr) -> Option<&DatagramPath> {
        self.young.get(peer).or_else(|| self.old.get(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct NoSocket;

    impl DatagramSender for NoSocket {
        fn send(&self, _: SocketAddr, _: Option<IpAddr>, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn recent_paths_are_kept_and_old_ones_forgotten() {
        let peer = |n: usize| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 1000 + (n >> 16) as u16));
        let local = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        let socket: Arc<dyn DatagramSender> = Arc::new(NoSocket);
        let mut paths = DatagramPaths::default();
        for n in 0..3 * GENERATION {
            paths.insert(peer(n), DatagramPath { socket: socket.clone(), local: Some(local(n)) });
            assert!(paths.young.len() + paths.old.len() <= 2 * GENERATION);
        }
        let found = |paths: &DatagramPaths, n| paths.get(&peer(n)).map(|path| path.local);
        let last = 3 * GENERATION - 1;
        assert_eq!(found(&paths, last), Some(Some(local(last))));
        assert_eq!(found(&paths, last - GENERATION), Some(Some(local(last - GENERATION))));
        assert_eq!(found(&paths, 0), None);
        paths.insert(peer(last), DatagramPath { socket, local: None });
        assert_eq!(found(&paths, last), Some(None), "the last path counts");
    }
}
