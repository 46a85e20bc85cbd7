//! What an end of the tunnel knows of another one, and when it is due to call it or to ask it for a
//! sign of life.

use std::net::SocketAddr;
use std::time::Duration;

use remora_base::Time;

use super::super::handshake::INITIATION_LEN;
use super::super::sessions::Sessions;
use super::Known;

/// New keys are asked for when the present ones are so old.
const REKEY_AFTER: Duration = Duration::from_secs(3600);
/// An end that speaks and hears nothing asks for a sign of life after this.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// A mobile that hears nothing for so long, though it asked, calls the base anew.
const CALL_AFTER: Duration = Duration::from_millis(2500);

/// Another end, whose key is known.
pub(super) struct Remote {
    pub(super) known: Known,
    /// The number of our life, as it is told: another one after each time it was forgotten.
    pub(super) life: u64,
    pub(super) address: Option<SocketAddr>,
    pub(super) sessions: Sessions,
    /// A mobile has had a session with it.
    pub(super) was_up: bool,
    /// When it was last heard.
    pub(super) heard: Time,
    /// When it was last spoken to.
    pub(super) spoken: Time,
    /// Since when it was spoken to without being heard.
    pub(super) waiting: Option<Time>,
    /// When it was last asked for a sign of life.
    pub(super) probed: Time,
    /// The newest timestamp in a handshake of its.
    pub(super) newest: u64,
    /// Its last question that was welcome, and the datagram that answers it.
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

    /// From when on new keys are needed, whatever is heard.
    pub(super) fn keys_at(&self) -> Time {
        self.sessions.current().filter(|s| !s.is_worn()).map_or(Time::ZERO, |s| s.born + REKEY_AFTER)
    }

    /// When a mobile calls, as things are.
    pub(super) fn call_at(&self) -> Time {
        self.waiting.map_or(self.keys_at(), |since| self.keys_at().min(since + CALL_AFTER))
    }

    /// When a mobile asks for a sign of life, as things are.
    pub(super) fn probe_at(&self, keepalive: Duration) -> Time {
        let idle = self.spoken + keepalive;
        self.waiting.map_or(idle, |since| idle.min((since + PROBE_AFTER).max(self.probed + PROBE_AFTER)))
    }
}
