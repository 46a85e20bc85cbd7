//! Which stream connections are still there.

use std::collections::BTreeSet;

use remora_base::{Path, Peer};

/// The streams that have brought a message and have not been reported gone: as many as the
/// host keeps open, so it is the host that bounds them.
#[derive(Default, Debug)]
pub struct Connections(BTreeSet<u64>);

impl Connections {
    /// A message came in from `peer`.
    pub fn heard(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path {
            self.0.insert(id);
        }
    }

    /// The connection to `peer` is gone.
    pub fn gone(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path {
            self.0.remove(&id);
        }
    }

    /// Whether something sent to `peer` has a way to get there. Datagrams always have one.
    pub fn reaches(&self, peer: &Peer) -> bool {
        match peer.path {
            Path::Datagram => true,
            Path::Stream(id) => self.0.contains(&id),
        }
    }
}
