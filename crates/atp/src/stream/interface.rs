//! Settings, events, results and errors of streams.

use std::time::Duration;

use bytes::Bytes;

use super::target::Target;
use crate::{Options, Priority};

/// Minimum window: bytes that an opener may send before the answer.
pub const WINDOW_MIN: u32 = 64 << 10;

/// Identifies a connection within a session; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct StreamId(pub(super) u32);

/// Settings of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Maximum number of connections, 1 to [`STREAMS_MAX`].
    pub streams: usize,
    /// Window of a connection in bytes, for data received and not taken, and for data sent and not delivered; at
    /// least [`WINDOW_MIN`].
    pub window: u32,
}

/// Maximum number of connections of a session.
pub const STREAMS_MAX: usize = 4096;

impl Default for Config {
    fn default() -> Config {
        Config { streams: 128, window: 512 << 10 }
    }
}

/// Priority and deadline of a connection, for both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// Urgency of the connection.
    pub priority: Priority,
    /// Maximum delivery time of its bytes, at most 49 days; the connection is reset when it is exceeded. `None` for
    /// no limit.
    pub deadline: Option<Duration>,
}

/// Identifies an object until its fate is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ObjectId(pub(super) u64);

/// An object to send.
#[derive(Clone, Debug)]
pub struct Object {
    /// Id for [`Streams::ended`](super::Streams::ended).
    pub id: ObjectId,
    /// The bytes of the object.
    pub bytes: Bytes,
    /// Priority and deadline.
    pub options: Options,
}

/// Result of sending an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It was delivered.
    Delivered,
    /// Refused for lack of room. `poll_object` returns it again at once, so the caller should wait a little.
    Again,
    /// Not delivered by its deadline.
    Missed,
}

/// An event of streams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// At an acceptor: a connection is requested. Answer with [`Streams::accept`](super::Streams::accept) or
    /// [`Streams::refuse`](super::Streams::refuse).
    Asked {
        /// The requested connection.
        id: StreamId,
        /// Where it leads.
        target: Target,
        /// Its priority and deadline.
        terms: Terms,
    },
    /// At an opener: the connection was accepted.
    Opened(StreamId),
    /// Bytes may be sent, after [`Streams::room`](super::Streams::room) returned 0.
    Room(StreamId),
    /// Bytes can be taken, after [`Streams::take`](super::Streams::take) returned nothing.
    Readable(StreamId),
    /// The connection ended. No event about it follows.
    Ended(StreamId, End),
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All bytes and the end of both directions were delivered.
    Done,
    /// The acceptor refused it.
    Refused(Refused),
    /// One end reset it.
    Reset(Reset),
}

/// Why no connection can be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The maximum is reached.
    #[error("too many connections")]
    TooMany,
    /// All connection numbers of the session are used.
    #[error("this session has no numbers left")]
    NoNumbers,
}

/// Counters of an end, over all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Connections that were requested.
    pub asked: u64,
    /// Requested connections that were refused.
    pub refused: u64,
    /// Connections that ended regularly.
    pub done: u64,
    /// Connections that were reset.
    pub reset: u64,
    /// Bytes submitted for sending.
    pub sent: u64,
    /// Bytes taken by the caller.
    pub received: u64,
}

/// A protocol violation of the peer; the session must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// An object is not a frame.
    #[error("an object makes no sense")]
    Nonsense,
    /// A frame that only the other role may send.
    #[error("a frame came from the wrong end")]
    Role,
    /// More bytes than the window.
    #[error("more bytes than were allowed")]
    Credit,
    /// Frame or connection numbers out of range.
    #[error("numbers out of range")]
    Order,
    /// The peer opens connections without end and accepts no answers.
    #[error("it does not take what it is told")]
    Deaf,
}

/// Why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The acceptor does not allow this target.
    #[error("the gateway does not allow this target")]
    NotAllowed,
    /// The target's name cannot be resolved.
    #[error("the gateway cannot find the target's address")]
    Unknown,
    /// The target refuses connections.
    #[error("nobody listens at the target")]
    Closed,
    /// The target does not answer.
    #[error("the target does not answer")]
    Silent,
    /// The acceptor's maximum of connections is reached.
    #[error("the gateway has no room for more connections")]
    Full,
    /// Any other reason.
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

    /// Unknown codes become [`Refused::Failed`], so that codes can be added.
    pub(super) fn from_code(code: u8) -> Refused {
        let known = [Refused::NotAllowed, Refused::Unknown, Refused::Closed, Refused::Silent, Refused::Full];
        known.into_iter().find(|r| r.code() == code).unwrap_or(Refused::Failed)
    }
}

/// Why a connection is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reset {
    /// The TCP connection failed.
    #[error("the connection was reset")]
    Broken,
    /// Bytes missed their deadline.
    #[error("the link could not carry it in time")]
    Deadline,
    /// The acceptor's maximum of connections is reached.
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

    /// Unknown codes become [`Reset::Broken`], so that codes can be added.
    pub(super) fn from_code(code: u8) -> Reset {
        [Reset::Deadline, Reset::Full].into_iter().find(|r| r.code() == code).unwrap_or(Reset::Broken)
    }
}
