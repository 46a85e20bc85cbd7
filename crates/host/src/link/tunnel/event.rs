//! Inputs and outputs of an end of the tunnel.

use std::net::SocketAddr;

use bytes::Bytes;

use super::key::{LinkPublicKey, SharedSecret};
use super::sessions::SessionChange;

/// The configuration of a peer.
#[derive(Clone, Debug)]
pub struct KnownPeer {
    pub key: LinkPublicKey,
    pub secret: Option<SharedSecret>,
}

/// A datagram to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingDatagram {
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

/// An event. Peers are numbered in the order of configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TunnelEvent {
    /// The session is established; frames can be sent.
    Up { peer: usize },
    /// The session has new keys.
    Renewed { peer: usize },
    /// The session has new keys, and the peer has restarted.
    Restarted { peer: usize },
    /// The session has ended; frames cannot be sent.
    Down { peer: usize, why: DownReason },
    /// The peer has a new address.
    Moved { peer: usize, to: SocketAddr },
    /// A frame was received.
    Frame {
        peer: usize,
        /// The frame, authentic and not replayed.
        frame: Bytes,
    },
    /// The base does not answer.
    NoAnswer { was_up: bool },
    /// The base's response cannot be decrypted: its preshared key differs.
    OtherSecret,
    /// A handshake with an unknown key was received. The key is authenticated, the address is not.
    Stranger { key: LinkPublicKey, from: SocketAddr },
    /// A handshake without the base's public key was received, or another datagram of that length.
    OtherBase { from: SocketAddr },
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
