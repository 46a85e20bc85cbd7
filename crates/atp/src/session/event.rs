//! What an endpoint tells the layer above.
//!
//! What waits to be queue, in its order; but objects stand apart, so that whoever has no room for
//! them still hears the rest, the ends of its requests above all. The end of a connection stays
//! behind the objects that came over it.

use crate::session::crypto::PublicKey;
use crate::{Dest, Priority, Upcall};
use bytes::Bytes;
use remora_base::Time;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A peer, from its connection's first packet to its last; not reused within an endpoint before four thousand
/// million others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// The peer as the scheduler's upcalls name it.
    pub const fn dest(self) -> Dest {
        Dest(self.0)
    }
}

impl From<Dest> for PeerId {
    fn from(dest: Dest) -> PeerId {
        PeerId(dest.0)
    }
}

/// What an endpoint tells the layer above.
#[derive(Clone, Debug)]
pub enum Event {
    /// About a request.
    Upcall(Upcall),
    /// An object came in whole.
    Received {
        /// From whom.
        peer: PeerId,
        /// As the sender had it when its first byte left.
        priority: Priority,
        /// Its bytes.
        object: Bytes,
    },
    /// The peer is there, has shown its key and has taken ours.
    Up {
        /// Who: the one `connect` returned, or a new one that connected to us.
        peer: PeerId,
        /// Its key.
        key: PublicKey,
        /// Where it is.
        addr: SocketAddr,
    },
    /// Nothing has been heard of the peer for about a round trip though it should have answered.
    /// Its objects are held; nothing needs to be done.
    Silent {
        /// Who.
        peer: PeerId,
        /// When it was last heard.
        since: Time,
    },
    /// A silent peer is heard again; its objects go on.
    Heard {
        /// Who.
        peer: PeerId,
    },
    /// The peer's packets come from another address now.
    Moved {
        /// Who.
        peer: PeerId,
        /// Where it is.
        addr: SocketAddr,
    },
    /// The connection is over; requests that had not ended are lost. The last word about the peer.
    Down {
        /// Who.
        peer: PeerId,
        /// Why.
        why: Ending,
    },
    /// A connection we asked for did not come about. The last word about the peer.
    Refused {
        /// Who: the one `connect` returned.
        peer: PeerId,
        /// Why.
        why: Refusal,
    },
}

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Ending {
    /// No objects for the configured time.
    #[error("nothing was sent for a while")]
    Idle,
    /// We closed it.
    #[error("closed here")]
    Closed,
    /// The peer closed it.
    #[error("closed by the peer")]
    ClosedByPeer,
    /// The peer knows nothing of it any more: it restarted.
    #[error("the peer has restarted")]
    Restarted,
    /// Nothing was heard of the peer for the configured time.
    #[error("the peer was silent for too long")]
    Silent,
    /// All places are taken, here or at the peer, and others have a better claim to them.
    #[error("all places are taken")]
    Full,
    /// The peer broke the protocol, or says we did.
    #[error("{0}")]
    Protocol(String),
}

/// Why a connection we asked for did not come about.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Who answers has another key than the one we were queue.
    #[error("the peer has another key than expected")]
    WrongKey,
    /// The peer does not let our key in.
    #[error("the peer does not admit our key")]
    NotAdmitted,
    /// All places of the peer are taken.
    #[error("the peer takes no more connections")]
    Full,
    /// Nobody answered for the configured time.
    #[error("nobody answers")]
    Silent,
    /// The interface does not carry the smallest packets that a connection begins with.
    #[error("a packet of {mtu} bytes does not fit the interface: ATP needs an MTU of {mtu} or more")]
    Mtu {
        /// Bytes of such a packet, IP's and UDP's headers included.
        mtu: u64,
    },
    /// The peer speaks something else.
    #[error("{0}")]
    Protocol(String),
}

/// How a peer is doing, for people and reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Where its packets come from now. It need not be there: a packet's source is easily forged, and
    /// QUIC goes after it before the new address has answered.
    pub addr: SocketAddr,
    /// Where it was when it proved that it was there: the address that the handshake ended with, which never
    /// changes. What rests on an address rests on this one. `None` before, early objects or not.
    pub came_from: Option<SocketAddr>,
    /// Its key, once shown.
    pub key: Option<PublicKey>,
    /// Whether each end has taken the other.
    pub up: bool,
    /// What the estimator expects.
    pub forecast: crate::estimate::Forecast,
    /// The smoothed round trip.
    pub round_trip: Option<std::time::Duration>,
    /// Bytes under way, by the estimator's count (whole IP packets).
    pub in_flight: u64,
    /// Requests that have not ended.
    pub requests: usize,
    /// UDP payload bytes sent, of all kinds.
    pub sent: u64,
    /// UDP payload bytes received, of all kinds.
    pub received: u64,
}

/// Counts of what was dropped, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections turned away: no room, or a key that is not admitted.
    pub turned_away: u64,
    /// Objects of peers that were stopped: too large, no room, malformed.
    pub stopped: u64,
    /// DATAGRAM frames that made no sense.
    pub nonsense: u64,
}

/// What an endpoint holds, to be seen against its configured bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Connections, those included that are over but not forgotten yet.
    pub peers: usize,
    /// Requests that have not ended.
    pub requests: usize,
    /// Bytes of objects received in part, or whole and not taken yet, and 512 for each.
    pub received_bytes: u64,
    /// Events not taken yet.
    pub events: usize,
}

/// Events that wait.
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

    /// The oldest.
    pub(crate) fn pop_front(&mut self) -> Option<Event> {
        let object = self.objects.front().map_or(u64::MAX, |(n, _)| *n);
        let other = self.others.front().map_or(u64::MAX, |(n, _)| *n);
        let queue = if object < other { &mut self.objects } else { &mut self.others };
        queue.pop_front().map(|(_, event)| event)
    }

    /// The oldest that waits for no object.
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
