//! Counters and state of a link.

use std::time::Duration;

use remora_base::{Peer, Rate};

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
    /// The address of the destination.
    pub peer: Peer,
    /// Its channel state.
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
    /// The counters of the destination.
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
