//! The words of ATP (ATP 02, section 2 and its Figure 2): what is asked of a request, and what
//! is told about it.
//!
//! Every request ends in exactly one [`Upcall::Final`]. Everything else told about it before
//! that is advice.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use remora_base::{Rate, Time};

/// How urgent an object is: 0 to 15, higher is more urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The least urgent.
    pub const MIN: Priority = Priority(0);
    /// What may wait: prefetching, background writes.
    pub const LOW: Priority = Priority(4);
    /// The default.
    pub const MEDIUM: Priority = Priority(8);
    /// What somebody waits for.
    pub const HIGH: Priority = Priority(12);
    /// The most urgent.
    pub const MAX: Priority = Priority(15);
    /// How many levels there are.
    pub const LEVELS: usize = 16;

    /// Level `level`; `None` above 15.
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

/// The named levels print as their names, the others as numbers.
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

/// An object queue: an application has one or more, and bandwidth is shared among them by the
/// priorities at their heads (ATP 02, section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct QueueId(pub u32);

/// A destination behind the bottleneck that one scheduler serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Dest(pub u32);

/// What becomes of an object when the forecast says that it cannot be sent in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnShortage {
    /// The scheduler decides: it ends the object ([`Outcome::Evicted`]) when it has no hope left.
    #[default]
    Drop,
    /// The application decides: it is told at once ([`Upcall::InsufficientBandwidth`]) and the
    /// object is suspended.
    Suspend,
}

/// What the application asks for an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// How urgent it is.
    pub priority: Priority,
    /// How long after acceptance the protocol stops trying; `None` for no limit. Enforced at the
    /// sender only.
    pub deadline: Option<Duration>,
    /// The queue it waits in.
    pub queue: QueueId,
    /// What to do when the bandwidth will not do.
    pub on_shortage: OnShortage,
}

/// Names a request; unique within a scheduler, never reused, in order of submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RequestId(pub u64);

/// What can be asked of a request that has not ended (the paper's `reqctl`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Only tell how far it is.
    Inspect,
    /// End it; its final upcall says [`Outcome::Cancelled`].
    Cancel,
    /// Send no more of it for now. Its deadline keeps running.
    Suspend,
    /// Go on where it stopped, whoever suspended it.
    Restart,
    /// Change its priority.
    Prioritise(Priority),
    /// Change its deadline: so long from now, or none.
    Deadline(Option<Duration>),
}

/// How far a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Its size, in bytes.
    pub size: u64,
    /// Bytes of it that went into packets at least once.
    pub written: u64,
    /// Bytes of it the peer has acknowledged.
    pub acknowledged: u64,
    /// What happens to it now.
    pub state: State,
    /// Where it goes.
    pub dest: Dest,
    /// Its priority now.
    pub priority: Priority,
    /// When the protocol stops trying; `None` for never.
    pub deadline: Option<Time>,
}

/// What happens to a request now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing of it is sent yet.
    Waiting,
    /// Part of it is sent; more will be when its turn comes.
    Sending,
    /// No more of it is sent for now.
    Suspended(Why),
    /// All of it is sent, not all of it acknowledged.
    Finishing,
}

/// Why a request is suspended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The application asked for it.
    Asked,
    /// The bandwidth does not suffice for its deadline.
    InsufficientBandwidth,
    /// Its destination is away; it resumes without the application's help.
    Disconnected,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The peer said before its deadline that it had taken all of it.
    Delivered,
    /// It was never accepted; nothing of it was sent.
    Rejected(Rejection),
    /// Its deadline passed before it was acknowledged in whole. The last of it may have arrived
    /// just in time, with the acknowledgement on the way.
    Expired,
    /// Ended before its deadline, because it could not be met any more.
    Evicted,
    /// The application cancelled it.
    Cancelled,
    /// Its destination is gone for good.
    Lost,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// Its deadline asks for more bandwidth than there is.
    InsufficientBandwidth {
        /// What it would have needed.
        needed: Rate,
        /// What the forecast says there is.
        available: Rate,
    },
    /// Another of the same priority and a later deadline would have had to go (`paper` only).
    WouldDisplace(RequestId),
    /// It is larger than the configured greatest object.
    TooLarge,
    /// Too many objects wait already.
    TooMany,
    /// Too many bytes wait already.
    TooManyBytes,
    /// Too many queues are in use already.
    TooManyQueues,
}

/// On which side of its bounds the bandwidth is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Below the lower one.
    Below,
    /// Above the upper one.
    Above,
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Final {
    /// The request.
    pub request: RequestId,
    /// Where it was to go.
    pub dest: Dest,
    /// How it ended.
    pub outcome: Outcome,
    /// When.
    pub at: Time,
    /// Bytes of it that went into packets.
    pub written: u64,
    /// Its size, in bytes.
    pub size: u64,
}

/// What the application is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upcall {
    /// The request has ended; the last word about it.
    Final(Final),
    /// The bandwidth does not suffice for the request's deadline: it is suspended. The
    /// application may cancel it, wait, or change its deadline or priority.
    InsufficientBandwidth {
        /// The request.
        request: RequestId,
        /// What it would need.
        needed: Rate,
        /// What the forecast says there is.
        available: Rate,
    },
    /// A request that was suspended for lack of bandwidth goes on: the bandwidth suffices again.
    Resumed {
        /// The request.
        request: RequestId,
    },
    /// The bandwidth left the registered bounds, which are registered no more.
    Bandwidth {
        /// The estimate; `None` while nothing gets through.
        rate: Option<Rate>,
        /// Which bound it crossed.
        side: Side,
    },
}

/// The request named is not known, or has ended.
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
