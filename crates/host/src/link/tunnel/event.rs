//! Inputs and outputs of an end of the tunnel.

use std::net::SocketAddr;

use bytes::Bytes;

use super::key::{LinkPublicKey, SharedSecret};
use super::sessions::SessionChange;

/// The configuration of a peer.
#[derive(Clone, Debug)]
pub struct KnownPeer {
    /// The peer's public key.
    pub key: LinkPublicKey,
    /// The preshared key.
    pub secret: Option<SharedSecret>,
}

/// A datagram to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingDatagram {
    /// The destination address.
    pub to: SocketAddr,
    /// The whole datagram.
    pub bytes: Vec<u8>,
}

/// An event. Peers are numbered in the order of configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TunnelEvent {
    /// The session is established; frames can be sent.
    Up {
        /// The index of the peer.
        peer: usize,
    },
    /// The session has new keys.
    Renewed {
        /// The index of the peer.
        peer: usize,
    },
    /// The session has new keys, and the peer has restarted.
    Restarted {
        /// The index of the peer.
        peer: usize,
    },
    /// The session has ended; frames cannot be sent.
    Down {
        /// The index of the peer.
        peer: usize,
        /// The reason for the end.
        why: DownReason,
    },
    /// The peer has a new address.
    Moved {
        /// The index of the peer.
        peer: usize,
        /// The new address.
        to: SocketAddr,
    },
    /// A frame was received.
    Frame {
        /// The index of the sender.
        peer: usize,
        /// The frame, authentic and not replayed.
        frame: Bytes,
    },
    /// The base does not answer.
    NoAnswer {
        /// Whether a session existed before.
        was_up: bool,
    },
    /// The base's response cannot be decrypted: its preshared key differs.
    OtherSecret,
    /// A handshake with an unknown key was received.
    Stranger {
        /// The caller's key, authenticated.
        key: LinkPublicKey,
        /// The source address, not authenticated.
        from: SocketAddr,
    },
    /// A handshake without the base's public key was received, or another datagram of that length.
    OtherBase {
        /// The source address of the call.
        from: SocketAddr,
    },
}

impl TunnelEvent {
    pub(super) fn of(change: SessionChange, peer: usize) -> TunnelEvent {
        match change {
            SessionChange::Up => TunnelEvent::Up { peer },
            SessionChange::Renewed => TunnelEvent::Renewed { peer },
            SessionChange::Restarted => TunnelEvent::Restarted { peer },
        }
    }
}

/// Why a peer is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// The peer sent a goodbye.
    Left,
    /// No message was received for 660 s.
    Silent,
}

/// Counts of invalid datagrams.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct InvalidDatagrams {
    /// Invalid, without a session, or not authentic.
    pub forged: u64,
    /// Datagrams received more than once.
    pub replayed: u64,
    /// Handshakes for another base, or damaged.
    pub refused: u64,
    /// Handshakes with unknown keys.
    pub strangers: u64,
    /// Handshakes above the rate limit.
    pub limited: u64,
}
