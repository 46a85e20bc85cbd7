//! The words of streams: what is told about connections, and the fates of objects.

use std::time::Duration;

use bytes::Bytes;

use super::target::Target;
use crate::{Options, Priority};

/// The least window: what an opener may send before it has heard from the acceptor.
pub const WINDOW_MIN: u32 = 64 << 10;

/// A connection within a session; never used again in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct StreamId(pub(super) u32);

/// An end's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Connections at once; more are refused. 1 to [`STREAMS_MAX`].
    pub streams: usize,
    /// Bytes of a connection that came and were not taken, and that left and did not arrive; at least
    /// [`WINDOW_MIN`].
    pub window: u32,
}

/// The most connections a session may have.
pub const STREAMS_MAX: usize = 4096;

impl Default for Config {
    fn default() -> Config {
        Config { streams: 128, window: 512 << 10 }
    }
}

/// How a connection is to be carried, both ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// How urgent it is.
    pub priority: Priority,
    /// How long its bytes may take, at most 49 days; when some take longer it is reset. `None` for
    /// ever.
    pub deadline: Option<Duration>,
}

/// An object that was given out, until its fate is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ObjectId(pub(super) u64);

/// An object to be sent.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its name in [`Streams::ended`](super::Streams::ended).
    pub id: ObjectId,
    /// Its bytes.
    pub bytes: Bytes,
    /// How it is to be sent.
    pub options: Options,
}

/// FramePurpose became of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has arrived.
    Delivered,
    /// It was not taken for want of room; it is given out again at once, so wait a little.
    Again,
    /// It did not, or will not, arrive by its deadline.
    Missed,
}

/// FramePurpose the layer above is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// To an acceptor: a connection is asked for; answer with
    /// [`Streams::accept`](super::Streams::accept) or [`Streams::refuse`](super::Streams::refuse).
    Asked {
        /// Which.
        id: StreamId,
        /// Where to.
        target: Target,
        /// How it is carried.
        terms: Terms,
    },
    /// To an opener: the connection stands.
    Opened(StreamId),
    /// There is room to send, after [`Streams::room`](super::Streams::room) said there was none.
    Room(StreamId),
    /// There is something to take, after [`Streams::take`](super::Streams::take)
    /// said there was nothing.
    Readable(StreamId),
    /// The connection is over; the last word about it.
    Ended(StreamId, End),
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All bytes and both ends have arrived.
    Done,
    /// It did not come about.
    Refused(Refused),
    /// It was cut off, here or there.
    Reset(Reset),
}

/// Why no connection can be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// There are as many as may be.
    #[error("too many connections")]
    TooMany,
    /// The session's numbers are used up.
    #[error("this session has no numbers left")]
    NoNumbers,
}

/// FramePurpose an end has done, all connections together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Connections asked for.
    pub asked: u64,
    /// Of those: that did not come about, that came to their end, that were cut off.
    pub refused: u64,
    /// See [`refused`](Stats::refused).
    pub done: u64,
    /// See [`refused`](Stats::refused).
    pub reset: u64,
    /// Bytes of connections given to be sent.
    pub sent: u64,
    /// Bytes of connections that were taken.
    pub received: u64,
}

/// The peer broke the rules; the session is of no more use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// An object that is no frame.
    #[error("an object makes no sense")]
    Nonsense,
    /// A frame that only the other end may send.
    #[error("a frame came from the wrong end")]
    Role,
    /// More bytes than there was room for.
    #[error("more bytes than were allowed")]
    Credit,
    /// UsedNumbers that no honest peer uses.
    #[error("numbers out of range")]
    Order,
    /// Connections without end, and it takes no word about any.
    #[error("it does not take what it is told")]
    Deaf,
}

/// Why a connection does not come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The acceptor does not connect to this target.
    #[error("the gateway does not allow this target")]
    NotAllowed,
    /// The target's name means nothing.
    #[error("the gateway cannot find the target's address")]
    Unknown,
    /// Nobody listens there.
    #[error("nobody listens at the target")]
    Closed,
    /// It does not answer.
    #[error("the target does not answer")]
    Silent,
    /// The acceptor has as many connections as it takes.
    #[error("the gateway has no room for more connections")]
    Full,
    /// Anything else.
    #[error("the gateway cannot connect to the target")]
    Failed,
}

impl Refused {
    pub(super) fn code(self) -> u8 {
        match self {
            Refused::NotAllowed => 1,
            Refused::Unknown => 2,
            Refused::Closed => 3,
            Refused::Silent => 4,
            Refused::Full => 5,
            Refused::Failed => 0,
        }
    }

    /// Unknown codes are failures, so that there can be more one day.
    pub(super) fn from_code(code: u8) -> Refused {
        let known = [Refused::NotAllowed, Refused::Unknown, Refused::Closed, Refused::Silent, Refused::Full];
        known.into_iter().find(|r| r.code() == code).unwrap_or(Refused::Failed)
    }
}

/// Why a connection is over before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reset {
    /// TCP's end of it broke.
    #[error("the connection was reset")]
    Broken,
    /// Bytes of it did not arrive by their deadline.
    #[error("the link could not carry it in time")]
    Deadline,
    /// The acceptor has as many connections as it takes.
    #[error("the gateway has no room for more connections")]
    Full,
}

impl Reset {
    pub(super) fn code(self) -> u8 {
        match self {
            Reset::Broken => 0,
            Reset::Deadline => 1,
            Reset::Full => 2,
        }
    }

    /// Unknown codes are breaks, so that there can be more one day.
    pub(super) fn from_code(code: u8) -> Reset {
        [Reset::Deadline, Reset::Full].into_iter().find(|r| r.code() == code).unwrap_or(Reset::Broken)
    }
}
