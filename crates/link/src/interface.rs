//! What the link exchanges with the layer above: packets, events, and its counters and state.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Rate};
use remora_wire::urgency::PROBE_DSCP;

/// An IP packet with its flow and class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The flow. Packets of one flow arrive in order and do not wait for other flows.
    pub flow: u64,
    pub class: Class,
    /// Whether the sender reacts to drops as congestion and repairs them soon, as TCP does. A dropped datagram costs a
    /// request-reply protocol a timeout, a dropped fragment the whole datagram, so these are dropped only at a much
    /// longer delay. They are kept in order only at acknowledgement delays of up to 100 ms.
    pub responsive: bool,
    /// The whole IP packet.
    pub bytes: Bytes,
}

/// Urgency of a packet, from its differentiated services code point (RFC 4594).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Class {
    /// Voice, control, network management: useless when late.
    Interactive,
    /// Packets without a special code point.
    #[default]
    Default,
    /// Background traffic that tolerates delay.
    Bulk,
    /// Reachability probes of an application. They are scheduled as [`Class::Default`] but expire sooner. Otherwise
    /// the probes repeated during an outage would all precede the data after it.
    Probe,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Class; 4] = [Class::Interactive, Class::Default, Class::Bulk, Class::Probe];

    /// The class of a packet with this code point (0 to 63; higher bits are ignored).
    pub const fn from_dscp(dscp: u8) -> Class {
        match dscp & 0x3f {
            // CS4 to CS7, AF41 to AF43, VOICE-ADMIT, EF.
            32 | 34 | 36 | 38 | 40 | 44 | 46 | 48 | 56 => Class::Interactive,
            // LE (RFC 8622), CS1, AF11 to AF13.
            1 | 8 | 10 | 12 | 14 => Class::Bulk,
            PROBE_DSCP => Class::Probe,
            _ => Class::Default,
        }
    }
}

/// An event for the layer above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A packet has arrived.
    Deliver {
        from: Peer,
        /// The packet as the peer enqueued it.
        packet: Bytes,
    },
    /// The channel state of a destination has changed.
    State { peer: Peer, state: PeerState },
    /// A handoff of a peer begins or ends. It also ends when it is overdue, and when the peer is removed or restarts.
    HandOff {
        peer: Peer,
        /// Whether the handoff begins or ends.
        phase: HandOffPhase,
    },
    /// Packets were abandoned.
    GaveUp {
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

/// Channel state of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerState {
    /// The destination acknowledges.
    Good,
    /// An acknowledgement was missed; only probes are sent.
    Suspect,
    /// A handoff is in progress; no DATA is sent.
    HandOff,
}

/// Abandoned packets by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GaveUp {
    /// Reached the limit of attempts.
    pub attempts: u64,
    /// Sent, then exceeded the lifetime.
    pub lifetime: u64,
    /// Exceeded the lifetime before the first transmission.
    pub unsent: u64,
    /// Sent before a restart of the peer, which may have delivered them.
    pub restart: u64,
}

impl GaveUp {
    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        self.attempts + self.lifetime + self.unsent + self.restart
    }
}

/// Counters of one destination since it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerStats {
    /// Packets enqueued for it.
    pub offered: u64,
    /// Packets dropped because they exceed the largest packet.
    pub too_long: u64,
    /// Packets dropped because the queue was full.
    pub overflow: u64,
    /// Packets dropped by CoDel.
    pub codel_drops: u64,
    /// Packets abandoned, by reason.
    pub gave_up: GaveUp,
    /// DATA frames sent, including retransmissions.
    pub data_frames: u64,
    /// Packet bytes in them.
    pub data_bytes: u64,
    /// DATA frames that were retransmissions.
    pub retransmitted: u64,
    /// Consecutive acknowledgements that report only losses of long frames: over 1280 bytes with all lower headers,
    /// which some hops do not carry.
    pub long_lost: u64,
    /// Packets that the peer acknowledged.
    pub acknowledged: u64,
    /// Bytes that the peer acknowledged.
    pub acknowledged_bytes: u64,
    /// ACK frames sent.
    pub acks: u64,
    /// Acknowledgements carried by DATA.
    pub riding_acks: u64,
    /// Probes (RTS) sent.
    pub rts: u64,
    /// Replies to probes (CTS) sent.
    pub cts: u64,
    /// Bytes sent in all frames, with the host's overhead.
    pub airtime_bytes: u64,
    /// Airtime of these frames, each at the rate known at that time. Frames sent before the first estimate are not
    /// included.
    pub airtime: Duration,
    /// Times it became suspect.
    pub suspicions: u64,
    /// Time spent suspect, up to the end of the latest outage.
    pub suspect_time: Duration,
    /// Packets delivered from it.
    pub delivered: u64,
    /// Bytes delivered from it.
    pub delivered_bytes: u64,
    /// Duplicate frames from it.
    pub duplicates: u64,
    /// Frames from it beyond the window, of a past epoch, or with unknown headers.
    pub refused: u64,
    /// Times a gap was skipped because packets behind it reached the hold time.
    pub hold_timeouts: u64,
}

/// The current state of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerView {
    pub peer: Peer,
    pub state: PeerState,
    /// Packets queued for their first transmission.
    pub queue_packets: usize,
    /// Bytes queued for their first transmission.
    pub queue_bytes: usize,
    /// Packets sent, at least in part, and not acknowledged.
    pub unacknowledged: usize,
    /// Packets from it held for an earlier one of their flow.
    pub held: usize,
    /// The smoothed acknowledgement delay, from a frame's departure.
    pub round_trip: Option<Duration>,
    pub stats: PeerStats,
}

/// The current state of the link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkSnapshot {
    /// The rate, configured or learned.
    pub rate: Option<Rate>,
    /// Malformed frames and frames from unknown peers.
    pub bad_frames: u64,
    /// Packets for unknown destinations.
    pub no_such_peer: u64,
    /// Each destination, in order of address.
    pub peers: Vec<PeerView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_maps_to_class_of_its_service() {
        for (dscp, class) in [
            (46, Class::Interactive),
            (34, Class::Interactive),
            (48, Class::Interactive),
            (0, Class::Default),
            (18, Class::Default), // AF21: what ssh sends; losing it late helps nobody
            (63, Class::Default),
            (3, Class::Probe),
            (8, Class::Bulk),
            (1, Class::Bulk),
            (10, Class::Bulk),
            (46 | 0xc0, Class::Interactive),
        ] {
            assert_eq!(Class::from_dscp(dscp), class, "{dscp}");
        }
    }
}
