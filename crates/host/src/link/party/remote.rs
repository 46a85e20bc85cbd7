//! The state of a peer, with the times of the next handshake and keepalive.

use std::net::SocketAddr;
use std::time::Duration;

use remora_base::Time;

use super::super::handshake::INITIATION_LEN;
use super::super::sessions::Sessions;
use super::Known;

/// Age of keys at which rekeying starts.
const REKEY_AFTER: Duration = Duration::from_secs(3600);
/// Silence after which an end that sends requests a keepalive.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// Silence after a keepalive request at which a mobile calls the base again.
const CALL_AFTER: Duration = Duration::from_millis(2500);

/// A peer with a known key.
pub(super) struct Remote {
    pub(super) known: Known,
    /// This end's epoch towards the peer, incremented after each removal.
    pub(super) life: u64,
    pub(super) address: Option<SocketAddr>,
    pub(super) sessions: Sessions,
    /// Whether a mobile has had a session with the peer.
    pub(super) was_up: bool,
    /// When the peer was last heard.
    pub(super) heard: Time,
    /// When a message was last sent to the peer.
    pub(super) spoken: Time,
    /// When the first message since the peer was last heard was sent.
    pub(super) waiting: Option<Time>,
    /// When a keepalive was last requested.
    pub(super) probed: Time,
    /// The newest timestamp of a handshake by the peer.
    pub(super) newest: u64,
    /// The latest accepted initiation and the response to it.
    pub(super) answered: Option<([u8; INITIATION_LEN], Vec<u8>)>,
}

impl Remote {
    pub(super) fn new(known: Known, address: Option<SocketAddr>, life: u64, now: Time) -> Remote {
        let sessions = Sessions::default();
        let (waiting, newest, answered) = (None, 0, None);
        let (heard, spoken, probed) = (now, now, now);
        let was_up = false;
        Remote { known, life, address, sessions, was_up, heard, spoken, waiting, probed, newest, answered }
    }

    pub(super) fn is_up(&self) -> bool {
        self.sessions.current().is_some()
    }

    /// When rekeying is due.
    pub(super) fn keys_at(&self) -> Time {
        self.sessions.current().filter(|s| !s.is_worn()).map_or(Time::ZERO, |s| s.born + REKEY_AFTER)
    }

    /// When a mobile's next call is due.
    pub(super) fn call_at(&self) -> Time {
        self.waiting.map_or(self.keys_at(), |since| self.keys_at().min(since + CALL_AFTER))
    }

    /// When a mobile's next keepalive request is due.
    pub(super) fn probe_at(&self, keepalive: Duration) -> Time {
        let idle = self.spoken + keepalive;
        self.waiting.map_or(idle, |since| idle.min((since + PROBE_AFTER).max(self.probed + PROBE_AFTER)))
    }
}
