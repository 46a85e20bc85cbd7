//! Connections (TCP): one is made again when it breaks, or when it has been silent for so long
//! that the kernel's own retransmission may be waiting for something that is over.
//!
//! TCP doubles its timeout with each loss (RFC 6298, section 5.5). After an outage of half a
//! minute the next segment may go out half a minute later although the link is back. So when
//! an answer is overdue by far, whoever runs this core tries a second connection beside the
//! first, and moves there if the server answers on it ([`Client::doubt_at`]).
//!
//! Objects (ATP) need no such doubt: their session looks for the link by itself, without backing
//! off for long. A connection of theirs ends when the other end says so, or has forgotten it.

use std::time::Duration;

use remora_base::{Peer, Time};

use super::Client;
use crate::config::Transport;
use crate::pending::Pending;

/// The shortest silence that is doubted.
const DOUBT_MIN: Duration = Duration::from_secs(2);
/// The longest that is not.
const DOUBT_MAX: Duration = Duration::from_secs(60);
/// How many usual round trips a silence lasts before it is doubted.
const DOUBT_TRIPS: u32 = 4;
/// Bytes a second of a path on which nothing was measured yet: a slow modem's.
const UNKNOWN_RATE: u32 = 4_000;

impl Client {
    /// The stream stands: everything unanswered goes out again, with the xids it had.
    pub fn connected(&mut self, now: Time, server: Peer) {
        self.tick(now);
        self.server = server;
        self.connected = true;
        self.stream_since = now;
        self.silent_streams = self.silent_streams.saturating_add(1);
        self.resend_all();
    }

    /// The stream broke: nothing is sent until [`connected`](Client::connected).
    pub fn disconnected(&mut self, now: Time) {
        self.tick(now);
        self.connected = false;
    }

    /// The transport gave up the message of request `xid` while the connection lives: it goes out
    /// again in its turn. Harmless if it has been answered meanwhile.
    pub fn undelivered(&mut self, now: Time, xid: u32) {
        self.tick(now);
        if self.flying.get(&xid).is_some_and(|call| call.sent.is_some_and(|sent| !sent.resending)) {
            self.queue_resend(xid);
        }
    }

    /// Whether request `xid` has been sent and is still waited for.
    pub fn is_awaited(&self, xid: u32) -> bool {
        self.flying.contains_key(&xid)
    }

    /// When it is time to see whether the server answers on another connection; `None` while
    /// no answer is due, or over UDP.
    ///
    /// That is after 2 s of silence, four usual round trips, or twice the time that what is on
    /// its way takes at the rate last seen, whichever is latest; after twice as long with each
    /// connection on which nothing came at all, so that a slow link is not kept from ever
    /// finishing anything.
    pub fn doubt_at(&self) -> Option<Time> {
        let is_stream = self.config.transport == Transport::Tcp && self.connected;
        if !is_stream || self.is_held() || self.flying.is_empty() {
            return None;
        }
        let bytes = self.flying.values().map(Pending::bytes).fold(0, u32::saturating_add);
        let usual = self.adaptive.usual_trip().unwrap_or_default() * DOUBT_TRIPS;
        let unknown = Duration::from_secs(1) * bytes / UNKNOWN_RATE;
        let carry = self.adaptive.airtime(bytes).map_or(unknown, |t| t * 2);
        let patience = DOUBT_MIN.max(usual).max(carry).min(DOUBT_MAX);
        let again = self.silent_streams.saturating_sub(1).min(8);
        Some(self.signs.last.max(self.stream_since) + (patience * (1 << again)).min(DOUBT_MAX))
    }
}
