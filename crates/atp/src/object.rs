//! Requests, commands and upcalls of ATP (ATP 02, section 2 and Figure 2).
//!
//! Each request ends in exactly one [`Upcall::Final`]. All earlier upcalls about it are advice.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use remora_base::{Rate, Time};

/// Urgency of an object: 0 to 15; higher is more urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The least urgent.
    pub const MIN: Priority = Priority(0);
    /// Prefetching and background writes.
    pub const LOW: Priority = Priority(4);
    /// The default priority.
    pub const MEDIUM: Priority = Priority(8);
    /// Objects that a person waits for.
    pub const HIGH: Priority = Priority(12);
    /// The most urgent.
    pub const MAX: Priority = Priority(15);
    /// The number of priority levels.
    pub const LEVELS: usize = 16;

    /// The priority of `level`; `None` above 15.
    pub const fn new(level: u8) -> Option<Priority> {
        if level <= Priority::MAX.0 { Some(Priority(level)) } else { None }
    }

    /// The level, 0 to 15.
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Priority {
        Priority::MEDIUM
    }
}

/// Prints named levels as their names, others as numbers.
impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Priority::LOW => f.write_str("low"),
            Priority::MEDIUM => f.write_str("medium"),
            Priority::HIGH => f.write_str("high"),
            Priority(level) => write!(f, "{level}"),
        }
    }
}

/// Reads `low`, `medium`, `high` or a number from 0 to 15.
impl FromStr for Priority {
    type Err = String;

    fn from_str(s: &str) -> Result<Priority, String> {
        match s {
            "low" => Ok(Priority::LOW),
            "medium" => Ok(Priority::MEDIUM),
            "high" => Ok(Priority::HIGH),
            _ => {
                s.parse().ok().and_then(Priority::new).ok_or_else(|| {
                    format!("'{s}' is not a priority: expected low, medium, high or a number from 0 to 15")
                })
            }
        }
    }
}

/// An object queue. An application has one or more; they share the bandwidth by the priorities of their first
/// objects (ATP 02, section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct QueueId(pub u32);

/// A destination behind the bottleneck that one scheduler serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Dest(pub u32);

/// What the scheduler does with an object whose deadline it cannot meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnShortage {
    /// The scheduler decides: it evicts the object ([`Outcome::Evicted`]) when the deadline has become impossible.
    #[default]
    Drop,
    /// The application decides: the scheduler suspends the object and sends [`Upcall::InsufficientBandwidth`].
    Suspend,
}

/// Priority, deadline and queue of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Urgency of the object.
    pub priority: Priority,
    /// Time from submission to the deadline; `None` for no deadline. Only the sender enforces it.
    pub deadline: Option<Duration>,
    /// The queue that the object joins.
    pub queue: QueueId,
    /// The action when the bandwidth does not suffice for the deadline.
    pub on_shortage: OnShortage,
}

/// Identifies a request. Ascending by submission, unique within a scheduler, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RequestId(pub u64);

/// Commands on a request that has not ended (`reqctl` in ATP 02).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Returns the progress only.
    Inspect,
    /// Ends the request with [`Outcome::Cancelled`].
    Cancel,
    /// Pauses sending. The deadline continues to run.
    Suspend,
    /// Resumes a request that the application or the scheduler suspended.
    Restart,
    /// Change its priority.
    Prioritise(Priority),
    /// Sets the deadline to this time from now, or removes it.
    Deadline(Option<Duration>),
}

/// Progress of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Its size, in bytes.
    pub size: u64,
    /// Bytes sent at least once.
    pub written: u64,
    /// Bytes that the peer acknowledged.
    pub acknowledged: u64,
    /// The current state.
    pub state: State,
    /// Where it is sent.
    pub dest: Dest,
    /// The current priority.
    pub priority: Priority,
    /// The deadline; `None` for none.
    pub deadline: Option<Time>,
}

/// State of a request that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No byte was sent yet.
    Waiting,
    /// Some bytes were sent, and more will be.
    Sending,
    /// Sending is paused.
    Suspended(Why),
    /// All bytes were sent; some are not acknowledged.
    Finishing,
}

/// Reason for a suspension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The application suspended it.
    Asked,
    /// The bandwidth does not suffice for the deadline.
    InsufficientBandwidth,
    /// The destination is unreachable. The request resumes by itself.
    Disconnected,
}

/// A probability, in steps of a thousandth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Probability(u16);

impl Probability {
    /// That of a deadline that cannot be met.
    pub const ZERO: Probability = Probability(0);

    /// The probability `p`, clamped to 0..=1; 0 if it is not a number.
    pub fn new(p: f64) -> Probability {
        // The cast saturates; NaN becomes 0.
        Probability(((p * 1000.0).round() as u16).min(1000))
    }

    /// The probability, 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

/// Result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The peer confirmed before the deadline that it received the whole object.
    Delivered,
    /// The request was not accepted; nothing was sent.
    Rejected(Rejection),
    /// The deadline passed before the peer confirmed the whole object. The object may still have arrived in time,
    /// with its acknowledgement in flight.
    Expired,
    /// The scheduler ended it before its deadline because the deadline could not be met.
    Evicted,
    /// The application cancelled it.
    Cancelled,
    /// The connection to the destination ended.
    Lost,
}

/// Reason for rejecting a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The deadline needs more bandwidth than is available.
    InsufficientBandwidth {
        /// The bandwidth that the deadline needs.
        needed: Rate,
        /// The forecast of the bandwidth.
        available: Rate,
    },
    /// It would displace this request of the same priority with a later deadline (policy `paper` only).
    WouldDisplace(RequestId),
    /// The object exceeds the configured maximum size.
    TooLarge,
    /// The maximum number of objects is waiting.
    TooMany,
    /// The maximum number of bytes is waiting.
    TooManyBytes,
    /// The maximum number of queues is in use.
    TooManyQueues,
}

/// The bound that the bandwidth crossed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The lower bound.
    Below,
    /// The upper bound.
    Above,
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Final {
    /// The request that ended.
    pub request: RequestId,
    /// Where it was sent.
    pub dest: Dest,
    /// How it ended.
    pub outcome: Outcome,
    /// The time of the end.
    pub at: Time,
    /// Bytes sent at least once.
    pub written: u64,
    /// Its size, in bytes.
    pub size: u64,
}

/// An event for the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upcall {
    /// The request ended. No upcall about it follows.
    Final(Final),
    /// The bandwidth does not suffice for the request's deadline; the scheduler suspended it. The application may
    /// cancel it, wait, or change its deadline or priority.
    InsufficientBandwidth {
        /// The suspended request.
        request: RequestId,
        /// The bandwidth that the deadline needs.
        needed: Rate,
        /// The forecast of the bandwidth.
        available: Rate,
    },
    /// The forecast is unknown, so the request may miss its deadline: an outage has begun, or the request was
    /// submitted, or its deadline changed, during an outage or before the first measurement. Sent at once, and
    /// once for each of these. The request stays, and is sent as soon as packets pass.
    Uncertain {
        /// The request at risk.
        request: RequestId,
        /// The probability that it meets its deadline.
        probability: Probability,
    },
    /// The bandwidth suffices again for a suspended request; it resumes.
    Resumed {
        /// The resumed request.
        request: RequestId,
    },
    /// The bandwidth crossed a registered bound. The bounds are removed.
    Bandwidth {
        /// The estimate; `None` during a blackout.
        rate: Option<Rate>,
        /// The bound that it crossed.
        side: Side,
    },
}

/// The request is unknown or has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the request has ended or never was")]
pub struct Gone;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_read_and_print() {
        for text in ["low", "medium", "high", "0", "15"] {
            assert_eq!(text.parse::<Priority>().unwrap().to_string(), text);
        }
        assert_eq!("12".parse::<Priority>().unwrap(), Priority::HIGH);
        for bad in ["", "16", "-1", "urgent", "High"] {
            assert!(bad.parse::<Priority>().is_err(), "{bad}");
        }
    }
}
