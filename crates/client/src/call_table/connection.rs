//! Connections (TCP): one is made again when it breaks, or when it has been silent for so long
//! that the kernel's own retransmission may be waiting for something that is over.
//!
//! TCP doubles its timeout with each loss (RFC 6298, section 5.5). After an outage of half a
//! minute the next segment may go out half a minute later although the link is back. So when
//! an answer is overdue by far, whoever runs this core tries a second connection beside the
//! first, and moves there if the server answers on it ([`Client::doubt_at`]).
//!
//! But a server may be slow at one request, for a disk, and answer others at once. That is no reason
//! to move, and to ask it for everything a second time. So before a stream is doubted a NULL goes
//! out on the stream itself ([`Client::ask_at`]): one that waits for a retransmission cannot bring its answer.
//! Where a server answers nothing on a connection on which it is busy, a move is of no use, and has
//! been: that is remembered, and the next silence doubted later.
//!
//! Objects (ATP) need no such doubt: their session looks for the link by itself, without backing
//! off for long. A connection of theirs ends when the other end says so, or has forgotten it.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Time};

use super::client::Client;
use super::liveness::ConnectionState;
use crate::call::{PendingCall, Transmission};
use crate::transport::Transport;

/// The shortest silence that is doubted.
const DOUBT_MIN: Duration = Duration::from_secs(2);
/// The longest that is not.
const DOUBT_MAX: Duration = Duration::from_secs(60);
/// How many usual round trips a silence lasts before it is doubted.
const DOUBT_TRIPS: u32 = 4;
/// Bytes a second of a path on which nothing was measured yet: a slow modem's.
const UNKNOWN_RATE: u32 = 4_000;
/// How long a request may go unanswered on a stream that brings the answers to NULL, until it is asked for
/// again there; Linux's client waits as long. A server may have dropped it: Linux's does with one that comes
/// again, over the next connection, while it is still being executed.
const OVERDUE: Duration = Duration::from_secs(60);

impl Client {
    /// The stream stands: everything unanswered goes out again, with the xids it had.
    pub fn connected(&mut self, now: Time, server: Peer) {
        self.tick(now);
        self.server = server;
        let in_vain = self.stream.in_vain.saturating_add(u32::from(self.stream.is_untried));
        self.stream = ConnectionState { connected: true, since: now, is_untried: true, in_vain, asked: None };
        self.resend_all();
    }

    /// The stream broke: nothing is sent until [`connected`](Client::connected).
    pub fn disconnected(&mut self, now: Time) {
        self.tick(now);
        self.stream.connected = false;
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
    /// connection that was no better than the one before, so that a slow link is not kept from ever
    /// finishing anything, nor a slow server asked for the same again and again.
    pub fn doubt_at(&self) -> Option<Time> {
        let patience = || self.stream_patience() * (1 << self.stream.in_vain.min(8));
        self.is_stream_due().then(|| self.silent_since() + patience().min(DOUBT_MAX))
    }

    /// When it is time to [`ask`](Client::ask) whether the server answers on this connection: halfway to the first
    /// doubt, so that there is time for the answer. `None` while no answer is due, or this one has not come.
    pub fn ask_at(&self) -> Option<Time> {
        let is_due = self.is_stream_due() && self.stream.asked.is_none();
        is_due.then(|| self.silent_since() + self.stream_patience() / 2)
    }

    /// A NULL call for the present connection, to be sent at once.
    pub fn ask(&mut self, now: Time) -> Bytes {
        self.tick(now);
        self.stats.probes += 1;
        let xid = self.take_xid();
        self.stream.asked = Some((xid, now));
        self.null_call(xid)
    }

    fn is_stream_due(&self) -> bool {
        let is_stream = self.config.transport == Transport::Tcp && self.stream.connected;
        is_stream && !self.is_held() && !self.flying.is_empty()
    }

    /// Since when nothing has come over the present connection.
    fn silent_since(&self) -> Time {
        self.signs.last.max(self.stream.since)
    }

    /// How long a silence is that is doubted, if no connection was made in vain.
    fn stream_patience(&self) -> Duration {
        let bytes = self.flying.values().map(PendingCall::bytes).fold(0, u32::saturating_add);
        let usual = self.detector.path().longest_smoothed_rtt().unwrap_or_default() * DOUBT_TRIPS;
        let unknown = Duration::from_secs(1) * bytes / UNKNOWN_RATE;
        let carry = self.detector.path().airtime(bytes).map_or(unknown, |t| t * 2);
        DOUBT_MIN.max(usual).max(carry).min(DOUBT_MAX)
    }

    /// Something comes over the present connection. If it is the first, and soon, the connection is worth having
    /// been made; if it took its time it is the server that is slow.
    pub(super) fn judge_stream(&mut self, now: Time) {
        if std::mem::take(&mut self.stream.is_untried) {
            let is_soon = now < self.silent_since() + self.stream_patience() / 2;
            self.stream.in_vain = if is_soon { 0 } else { self.stream.in_vain.saturating_add(1) };
        }
    }

    /// The server answers the NULL that was sent at `asked`, so all that was sent before has come to it: what it
    /// owed for too long by then goes out again, on the same connection, by which it knows a repeated request.
    pub(super) fn repeat_overdue(&mut self, asked: Time) {
        let is_overdue = |sent: Transmission| !sent.resending && asked.since(sent.at) >= OVERDUE;
        let overdue = self.flying.values().filter(|call| call.sent.is_some_and(is_overdue));
        for xid in overdue.map(|call| call.xid).collect::<Vec<_>>() {
            self.queue_resend(xid);
        }
    }
}
