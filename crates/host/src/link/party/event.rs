//! What goes into an end of the tunnel and what comes out of it.

use std::net::SocketAddr;

use bytes::Bytes;

use super::super::key::{PublicKey, SharedSecret};
use super::super::sessions::Change;

/// What an end knows of another before they meet.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its key.
    pub key: PublicKey,
    /// A secret shared with it.
    pub secret: Option<SharedSecret>,
}

/// A datagram to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Where to.
    pub to: SocketAddr,
    /// The whole datagram.
    pub bytes: Vec<u8>,
}

/// What happened. Other ends are numbered in the order they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Frames can be sent from now on.
    Up {
        /// To whom.
        peer: usize,
    },
    /// Keys were renewed.
    Renewed {
        /// With whom.
        peer: usize,
    },
    /// The same, with an end that has lost all it knew and begun anew.
    Restarted {
        /// With whom.
        peer: usize,
    },
    /// Frames can no longer be sent.
    Down {
        /// To whom.
        peer: usize,
        /// For what reason.
        why: Down,
    },
    /// It has another address now.
    Moved {
        /// Who.
        peer: usize,
        /// Where it is.
        to: SocketAddr,
    },
    /// It sent a frame.
    Frame {
        /// Who.
        peer: usize,
        /// What: genuine, and not seen before.
        frame: Bytes,
    },
    /// The base does not answer.
    NoAnswer {
        /// It did, earlier.
        was_up: bool,
    },
    /// The base's answer does not open: the secret shared with it is another one there.
    OtherSecret,
    /// Somebody whose key is not known called.
    Stranger {
        /// Proven to be theirs.
        key: PublicKey,
        /// Where the call came from, which is not.
        from: SocketAddr,
    },
    /// Somebody called who does not know this base's key. (Or it is no call at all, but as long as one.)
    OtherBase {
        /// Where the call came from.
        from: SocketAddr,
    },
}

impl Event {
    pub(super) fn of(change: Change, peer: usize) -> Event {
        match change {
            Change::Up => Event::Up { peer },
            Change::Renewed => Event::Renewed { peer },
            Change::Restarted => Event::Restarted { peer },
        }
    }
}

/// Why an end is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Down {
    /// It said good-bye.
    Left,
    /// Nothing was heard of it.
    Silent,
}

/// Datagrams that were not what they should be.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Not a message, of no session, or with a broken seal.
    pub forged: u64,
    /// Seen before.
    pub replayed: u64,
    /// Handshakes for another base, or damaged.
    pub refused: u64,
    /// Handshakes of keys that are not known.
    pub strangers: u64,
    /// Handshakes beyond what the base looks at.
    pub limited: u64,
}
