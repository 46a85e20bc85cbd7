//! Events that the link reports to the layer above.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Peer;

use crate::{GaveUp, PeerState};

/// An event for the layer above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A packet has arrived.
    Deliver {
        /// The peer that sent it.
        from: Peer,
        /// The packet as the peer enqueued it.
        packet: Bytes,
    },
    /// The channel state of a destination has changed.
    State {
        /// The destination whose state changed.
        peer: Peer,
        /// The new state.
        state: PeerState,
    },
    /// A handoff of a peer begins or ends. It also ends when it is overdue, and when the peer is removed or restarts.
    HandOff {
        /// The peer that switches cells.
        peer: Peer,
        /// Whether the handoff begins or ends.
        phase: HandOffPhase,
    },
    /// Packets were abandoned.
    GaveUp {
        /// The destination of the packets.
        peer: Peer,
        /// The counts since the previous such event.
        counts: GaveUp,
    },
}

/// The phases of a handoff.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandOffPhase {
    /// The handoff is imminent.
    Begin {
        /// The expected duration (at most one minute is accepted).
        expected: Duration,
    },
    /// The handoff is complete.
    End,
}
