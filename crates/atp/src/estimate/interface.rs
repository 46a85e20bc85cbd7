//! Input and output types of the estimators.

use std::time::Duration;

use remora_base::{Rate, Time};

/// Maximum time that a receiver delays an acknowledgement (`max_ack_delay`, RFC 9000, section 18.2).
pub(crate) const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// The algorithm of an estimator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// ATP 02, Figure 3.
    Paper,
    /// Delivery rate, from the receiver's timestamps.
    #[default]
    Rate,
}

/// Settings of an estimator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Which algorithm to use.
    pub kind: Kind,
    /// Size of the largest IP packet, in bytes; clamped to 100..=65535.
    pub mtu: u64,
    /// Packets in flight before the first measurement; clamped to 2..=64. More of them start faster on a fast link,
    /// and delay urgent objects on a slow one.
    pub initial_packets: u64,
}

impl Config {
    /// The defaults: packets of 1,280 bytes, four initial packets.
    pub const fn new(kind: Kind) -> Config {
        Config { kind, mtu: 1280, initial_packets: 4 }
    }

    /// Clamps all values to their ranges.
    pub(super) fn checked(self) -> Config {
        Config { kind: self.kind, mtu: self.mtu.clamp(100, 65_535), initial_packets: self.initial_packets.clamp(2, 64) }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::new(Kind::default())
    }
}

/// Arrival of a packet, as the receiver reported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Departure time, by the sender's clock.
    pub sent: Time,
    /// Arrival time, by the receiver's clock. Only differences are used.
    pub received: Time,
    /// Total bytes received up to and including this packet. A lost report therefore makes the measurement coarser,
    /// not wrong.
    pub total: u64,
}

/// Whether the next packet of objects may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// It may be sent now.
    Open,
    /// At this time.
    At(Time),
    /// Not before an acknowledgement, a report or a timeout.
    Shut,
}

/// Packets sent to elicit an answer. They are exempt from the [`Gate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// One packet of about 70 bytes that elicits an acknowledgement.
    Small,
    /// Two full packets back to back, padded where there is no data.
    Pair,
    /// Four full packets: repeats the measurement of a pair.
    Train,
}

/// Direction of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the peer.
    Out,
    /// From the peer.
    In,
}

/// Need for a bandwidth estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// Objects are waiting or suspended, or the application has registered bandwidth bounds: the estimator sends
    /// probes if there is no traffic.
    pub waiting: bool,
    /// Objects rejected for lack of bandwidth since the last call.
    pub rejected: u32,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that were acknowledged.
    pub acknowledged: u64,
    /// Bytes declared lost.
    pub lost: u64,
    /// Rate measurements used.
    pub samples: u64,
    /// Blackouts that were detected.
    pub blackouts: u64,
    /// Probes sent, of all kinds.
    pub probes: u64,
}

/// Converts bytes per second to a rate of at least one bit per second.
pub(super) fn byte_rate(bytes: f64) -> Option<Rate> {
    // The cast saturates; NaN becomes 0.
    Rate::from_bits(((bytes * 8.0) as u64).max(1))
}
