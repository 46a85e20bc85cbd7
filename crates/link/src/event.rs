//! What the link tells the layer above.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Peer;

use crate::{GaveUp, State};

/// What the link tells the layer above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A packet has arrived.
    Deliver {
        /// From whom.
        from: Peer,
        /// As it was enqueued there.
        packet: Bytes,
    },
    /// The channel to a destination has changed.
    State {
        /// To whom.
        peer: Peer,
        /// What it is now.
        state: State,
    },
    /// A peer announces a cell switch or its end, or its end is overdue, or the peer is gone before that.
    HandOff {
        /// Who switches.
        peer: Peer,
        /// What it does.
        phase: HandOffPhase,
    },
    /// Packets were given up.
    GaveUp {
        /// For whom they were.
        peer: Peer,
        /// How many since the last such event.
        counts: GaveUp,
    },
}

/// The two ends of a cell switch in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandOffPhase {
    /// It is imminent.
    Begin {
        /// How long it is expected to take (at most a minute is believed).
        expected: Duration,
    },
    /// It is over.
    End,
}
