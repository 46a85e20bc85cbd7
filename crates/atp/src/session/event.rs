//! Events, status and counters of an endpoint.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use remora_base::Time;

use crate::session::crypto::PublicKey;
use crate::{Dest, Priority, Upcall};

/// Identifies a peer's connection; reused only after 2^32 others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// The peer's destination in upcalls.
    pub const fn dest(self) -> Dest {
        Dest(self.0)
    }
}

impl From<Dest> for PeerId {
    fn from(dest: Dest) -> PeerId {
        PeerId(dest.0)
    }
}

/// An event of an endpoint.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request has changed.
    Upcall(Upcall),
    /// An object was received.
    Received {
        /// The sending peer.
        peer: PeerId,
        /// The priority when its first byte was sent.
        priority: Priority,
        /// The bytes of the object.
        object: Bytes,
    },
    /// The connection is established: each end has accepted the other's key.
    Up {
        /// The id that `connect` returned, or a new one for an incoming connection.
        peer: PeerId,
        /// The peer's key.
        key: PublicKey,
        /// The peer's address.
        addr: SocketAddr,
    },
    /// An expected answer did not come for about a round-trip time. The peer's objects are held; no action is
    /// needed.
    Silent {
        /// The silent peer.
        peer: PeerId,
        /// Time of its last packet.
        since: Time,
    },
    /// A silent peer answers again; its objects resume.
    Heard {
        /// The peer that answers.
        peer: PeerId,
    },
    /// The peer's packets come from another address.
    Moved {
        /// The peer that moved.
        peer: PeerId,
        /// The new address.
        addr: SocketAddr,
    },
    /// The connection ended; its requests are lost. No event about the peer follows.
    Down {
        /// The disconnected peer.
        peer: PeerId,
        /// Why it ended.
        why: Ending,
    },
    /// An outgoing connection was not established. No event about the peer follows.
    Refused {
        /// The id that `connect` returned.
        peer: PeerId,
        /// Why it failed.
        why: Refusal,
    },
}

/// Reason for the end of a connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Ending {
    /// No objects for the configured time.
    #[error("nothing was sent for a while")]
    Idle,
    /// Closed by this endpoint.
    #[error("closed here")]
    Closed,
    /// Closed by the peer.
    #[error("closed by the peer")]
    ClosedByPeer,
    /// The peer has restarted and lost the connection.
    #[error("the peer has restarted")]
    Restarted,
    /// No packet of the peer for the configured time.
    #[error("the peer was silent for too long")]
    Silent,
    /// All connections are in use, here or at the peer, and this one was evicted.
    #[error("all places are taken")]
    Full,
    /// Protocol violation, by the peer or reported by it.
    #[error("{0}")]
    Protocol(String),
}

/// Reason why an outgoing connection was not established.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The peer has another key than the pinned one.
    #[error("the peer has another key than expected")]
    WrongKey,
    /// The peer does not admit this endpoint's key.
    #[error("the peer does not admit our key")]
    NotAdmitted,
    /// The peer has no free connection.
    #[error("the peer takes no more connections")]
    Full,
    /// No answer for the configured time.
    #[error("nobody answers")]
    Silent,
    /// The interface's MTU is too small for the first packets of a connection.
    #[error("a packet of {mtu} bytes does not fit the interface: ATP needs an MTU of {mtu} or more")]
    Mtu {
        /// Bytes of such a packet, including IP and UDP headers.
        mtu: u64,
    },
    /// The peer speaks another protocol.
    #[error("{0}")]
    Protocol(String),
}

/// Status of a peer, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Source of the peer's latest packets. It is not validated: sources can be forged, and QUIC follows them
    /// before the new address has answered.
    pub addr: SocketAddr,
    /// Address at which the handshake ended; validated and constant. Use this one for access decisions. `None`
    /// before the handshake is confirmed.
    pub came_from: Option<SocketAddr>,
    /// The key, once authenticated.
    pub key: Option<PublicKey>,
    /// Whether the connection is established.
    pub up: bool,
    /// The estimator's forecast.
    pub forecast: crate::estimate::Forecast,
    /// The smoothed round-trip time.
    pub round_trip: Option<std::time::Duration>,
    /// Bytes in flight (whole IP packets).
    pub in_flight: u64,
    /// Requests that have not ended.
    pub requests: usize,
    /// UDP payload bytes sent.
    pub sent: u64,
    /// UDP payload bytes received.
    pub received: u64,
}

/// Counters of rejected input, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections refused: no free connection, or a key that is not admitted.
    pub turned_away: u64,
    /// Received objects that were refused: too large, no room, malformed.
    pub stopped: u64,
    /// Malformed DATAGRAM frames.
    pub nonsense: u64,
}

/// Resources in use, to compare with the configured bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Connections, including closed ones that are not forgotten yet.
    pub peers: usize,
    /// Requests that have not ended.
    pub requests: usize,
    /// Bytes of received objects, partial or not yet taken, and 512 for each.
    pub received_bytes: u64,
    /// Events that wait.
    pub events: usize,
}

/// Events that wait, in order. A caller without room for objects can poll the others first. The end of a connection
/// stays behind its objects.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    next: u64,
    objects: VecDeque<(u64, Event)>,
    others: VecDeque<(u64, Event)>,
}

impl EventQueue {
    pub(crate) fn push_back(&mut self, event: Event) {
        let queue = match event {
            Event::Received { .. } | Event::Down { .. } => &mut self.objects,
            _ => &mut self.others,
        };
        queue.push_back((self.next, event));
        self.next += 1;
    }

    /// Returns the oldest event.
    pub(crate) fn pop_front(&mut self) -> Option<Event> {
        let object = self.objects.front().map_or(u64::MAX, |(n, _)| *n);
        let other = self.others.front().map_or(u64::MAX, |(n, _)| *n);
        let queue = if object < other { &mut self.objects } else { &mut self.others };
        queue.pop_front().map(|(_, event)| event)
    }

    /// Returns the oldest event that is not behind an object.
    pub(crate) fn pop_except_objects(&mut self) -> Option<Event> {
        self.others.pop_front().map(|(_, event)| event)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len() + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Priority;
    use bytes::Bytes;

    #[test]
    fn objects_can_be_left_waiting_and_keep_their_place() {
        let mut queue = EventQueue::default();
        let (heard, peer) = (|n| Event::Heard { peer: PeerId(n) }, PeerId(9));
        queue.push_back(heard(0));
        queue.push_back(Event::Received { peer, priority: Priority::LOW, object: Bytes::new() });
        queue.push_back(heard(1));
        queue.push_back(heard(2));
        let is_heard = |event: Option<Event>, n| matches!(event, Some(Event::Heard { peer }) if peer == PeerId(n));
        assert!(is_heard(queue.pop_except_objects(), 0) && is_heard(queue.pop_except_objects(), 1));
        assert!(matches!(queue.pop_front(), Some(Event::Received { .. })));
        assert!(is_heard(queue.pop_front(), 2) && queue.pop_front().is_none() && queue.len() == 0);
    }
}
