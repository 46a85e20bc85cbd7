use std::time::Duration;

use remora_base::{Peer, Time};

use super::addr::{TCP_PORT, client_addr, server_addr};
use crate::trace::NodeId;

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
