//! What a link counts, for people and programs.

use std::time::Duration;

use remora_base::{Peer, Rate};

/// What is known of the channel to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It answers.
    Good,
    /// An acknowledgement is missing; only probes go there.
    Suspect,
    /// A cell switch is going on; nothing goes there.
    HandOff,
}

/// Packets that will not be delivered, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GaveUp {
    /// Sent as often as allowed.
    pub attempts: u64,
    /// Sent, and then too old.
    pub lifetime: u64,
    /// Too old before they were ever sent.
    pub unsent: u64,
    /// Sent to a life of the other end that is over, which may have delivered them.
    pub restart: u64,
}

impl GaveUp {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.attempts + self.lifetime + self.unsent + self.restart
    }
}

/// The counters of one destination, since it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerStats {
    /// Packets handed over for it.
    pub offered: u64,
    /// Packets dropped: larger than the frames that one may take.
    pub too_long: u64,
    /// Packets dropped: no room in the queue.
    pub overflow: u64,
    /// Packets dropped by CoDel.
    pub codel_drops: u64,
    /// Packets given up.
    pub gave_up: GaveUp,
    /// DATA frames sent, retransmissions included.
    pub data_frames: u64,
    /// Packet bytes in them.
    pub data_bytes: u64,
    /// Retransmissions among them.
    pub retransmitted: u64,
    /// Answers in a row that told of long frames lost and of none that arrived: those that some hops do not carry,
    /// of more than 1280 bytes with all that is below.
    pub long_lost: u64,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Their bytes.
    pub acknowledged_bytes: u64,
    /// ACK frames sent.
    pub acks: u64,
    /// Acknowledgements that rode on DATA.
    pub riding_acks: u64,
    /// Probes sent.
    pub rts: u64,
    /// Answers to probes sent.
    pub cts: u64,
    /// Bytes sent in all frames, with what the host adds.
    pub airtime_bytes: u64,
    /// The time that they took of the medium, each at the rate of its moment; those that left before a rate was known are
    /// not in it.
    pub airtime: Duration,
    /// How often it became suspect.
    pub suspicions: u64,
    /// Time spent suspect, up to the last time it was heard again.
    pub suspect_time: Duration,
    /// Packets delivered from it.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Frames from it that had come before.
    pub duplicates: u64,
    /// Frames from it beyond the window or of a past life.
    pub refused: u64,
    /// Times a packet was released though an earlier one of its flow might still have come.
    pub hold_timeouts: u64,
}

/// A destination as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerView {
    /// Who it is.
    pub peer: Peer,
    /// Its channel.
    pub state: State,
    /// Packets waiting to be sent for the first time.
    pub queue_packets: usize,
    /// Their bytes.
    pub queue_bytes: usize,
    /// Packets sent, or begun, and not acknowledged.
    pub unacknowledged: usize,
    /// Packets from it that wait for an earlier one of their flow.
    pub held: usize,
    /// The smoothed time from a frame's last bit to its acknowledgement.
    pub round_trip: Option<Duration>,
    /// Its counters.
    pub stats: PeerStats,
}

/// The whole link as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The rate: as configured, or as learned.
    pub rate: Option<Rate>,
    /// Frames that were no frames, or came from nobody known.
    pub bad_frames: u64,
    /// Packets for destinations not known.
    pub no_such_peer: u64,
    /// Each destination, in order of address.
    pub peers: Vec<PeerView>,
}
