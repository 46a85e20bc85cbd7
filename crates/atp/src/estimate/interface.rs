//! What estimators are polled and what they say.

use std::time::Duration;

use remora_base::{Rate, Time};

/// How long a receiver may hold back an acknowledgement (RFC 9000, section 18.2, `max_ack_delay`).
pub(crate) const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// Which estimator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// ATP 02, Figure 3.
    Paper,
    /// Delivery rate from the receiver's timestamps.
    #[default]
    Rate,
}

/// How to estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Which estimator.
    pub kind: Kind,
    /// The largest IP packet, in bytes (used within 100..=65535).
    pub mtu: u64,
    /// Packets that may be under way before anything is known (used within 2..=64). More of them
    /// start a fast link sooner; on a slow one they stand in the way of what is urgent.
    pub initial_packets: u64,
}

impl Config {
    /// The defaults: packets of 1,280 bytes, four of them at first.
    pub const fn new(kind: Kind) -> Config {
        Config { kind, mtu: 1280, initial_packets: 4 }
    }

    /// With all values in their ranges.
    pub(super) fn checked(self) -> Config {
        Config { kind: self.kind, mtu: self.mtu.clamp(100, 65_535), initial_packets: self.initial_packets.clamp(2, 64) }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::new(Kind::default())
    }
}

/// A packet's arrival at the receiver, as it reported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it left here, by our clock.
    pub sent: Time,
    /// When it arrived, by the receiver's clock. Its origin does not matter.
    pub received: Time,
    /// Bytes that the receiver had got in all, with this packet. As it is a running total, reports
    /// that get lost only make the measurement coarser.
    pub total: u64,
}

/// Whether the next packet with objects' bytes may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// It may.
    Open,
    /// From then on.
    At(Time),
    /// Not before an acknowledgement, a report or a timeout changes something.
    Shut,
}

/// Something to send for the sake of the answer. It need not pass the [`Gate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// A small packet (about 70 bytes) that asks for an acknowledgement.
    Small,
    /// Two full packets back to back, filled up where no data wait.
    Pair,
    /// Four of them: asks again what a pair has shown.
    Train,
}

/// Which way an object moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the peer.
    Out,
    /// From the peer.
    In,
}

/// Who would like to know the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// Objects wait or are suspended, or an application asked to be polled of changes: if nothing is
    /// sent, the rate is to be found out by probes.
    pub waiting: bool,
    /// Objects refused for lack of bandwidth since the last time this was said.
    pub rejected: u32,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes acknowledged.
    pub acknowledged: u64,
    /// Bytes declared lost.
    pub lost: u64,
    /// Measurements of the rate that were used.
    pub samples: u64,
    /// Blackouts declared.
    pub blackouts: u64,
    /// Probes sent, of either sort.
    pub probes: u64,
}

/// The byte rate of `bytes` a second, at least one bit a second.
pub(super) fn byte_rate(bytes: f64) -> Option<Rate> {
    // The cast saturates; NaN becomes zero.
    Rate::from_bits(((bytes * 8.0) as u64).max(1))
}
