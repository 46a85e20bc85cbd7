//! Connections over TCP: when to reconnect, and when to try a second connection.
//!
//! TCP doubles its retransmission timeout with each loss (RFC 6298, section 5.5). After an outage of half a minute the
//! next segment may go out half a minute after the link is back. So when a reply is long overdue, the driver of this
//! core tries a second connection beside the first and moves there if the server answers on it ([`Client::doubt_at`]).
//!
//! A server may be slow at one request and answer others at once. That is no reason to move. So a NULL goes out on the
//! present connection first ([`Client::ask_at`]); a connection that waits for a retransmission cannot bring the reply.
//! Where a server answers nothing on a busy connection, a move does not help either; the next silence then lasts longer
//! before it is doubted.
//!
//! ATP needs none of this: its session finds the link without long backoff.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Time};

use super::client::Client;
use super::liveness::ConnectionState;
use crate::call::{PendingCall, Transmission};
use crate::transport::Transport;

/// Shortest silence before a second connection.
const DOUBT_MIN: Duration = Duration::from_secs(2);
/// Longest silence before a second connection.
const DOUBT_MAX: Duration = Duration::from_secs(60);
/// The same in smoothed RTTs.
const DOUBT_TRIPS: u32 = 4;
/// Assumed rate in bytes per second before anything was measured: a slow modem.
const UNKNOWN_RATE: u32 = 4_000;
/// Time after which an unanswered request is sent again on a connection that answers NULL; Linux's client waits as
/// long. A server may have dropped it: Linux's server drops a duplicate of a request in progress that comes on the next
/// connection.
const OVERDUE: Duration = Duration::from_secs(60);

impl Client {
    /// The connection stands: retransmits everything unanswered with the same xids.
    pub fn connected(&mut self, now: Time, server: Peer) {
        self.tick(now);
        self.server = server;
        let in_vain = self.stream.in_vain.saturating_add(u32::from(self.stream.is_untried));
        self.stream = ConnectionState { connected: true, since: now, is_untried: true, in_vain, asked: None };
        self.resend_all();
    }

    /// The connection broke. Nothing is sent until [`connected`](Client::connected).
    pub fn disconnected(&mut self, now: Time) {
        self.tick(now);
        self.stream.connected = false;
    }

    /// The transport gave up the message of request `xid` while the connection lives: queues it again, if it is
    /// unanswered.
    pub fn undelivered(&mut self, now: Time, xid: u32) {
        self.tick(now);
        if self.in_flight.get(&xid).is_some_and(|call| call.sent.is_some_and(|sent| !sent.resending)) {
            self.queue_resend(xid);
        }
    }

    /// Whether request `xid` is in flight.
    pub fn is_awaited(&self, xid: u32) -> bool {
        self.in_flight.contains_key(&xid)
    }

    /// When to try a second connection; `None` while no reply is due, or over UDP.
    ///
    /// After 2 s of silence, four smoothed RTTs, or twice the airtime of what is in flight, whichever is longest. The
    /// time doubles with each connection that was no better than the one before, so that a slow link makes progress and
    /// a slow server is not sent the same again and again.
    pub fn doubt_at(&self) -> Option<Time> {
        let patience = || self.stream_patience() * (1 << self.stream.in_vain.min(8));
        self.is_stream_due().then(|| self.silent_since() + patience().min(DOUBT_MAX))
    }

    /// When to send a NULL on this connection ([`ask`](Client::ask)): halfway to the first doubt. `None` while no reply
    /// is due, or this one is outstanding.
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
        is_stream && !self.is_held() && !self.in_flight.is_empty()
    }

    /// When something last came over the present connection.
    fn silent_since(&self) -> Time {
        self.last_contact.last.max(self.stream.since)
    }

    /// Silence before a second connection, if the last one was of use.
    fn stream_patience(&self) -> Duration {
        let bytes = self.in_flight.values().map(PendingCall::bytes).fold(0, u32::saturating_add);
        let usual = self.detector.path().longest_smoothed_rtt().unwrap_or_default() * DOUBT_TRIPS;
        let unknown = Duration::from_secs(1) * bytes / UNKNOWN_RATE;
        let carry = self.detector.path().airtime(bytes).map_or(unknown, |t| t * 2);
        DOUBT_MIN.max(usual).max(carry).min(DOUBT_MAX)
    }

    /// Something came over the present connection. If it is the first and soon, the connection was of use; else the
    /// server is slow.
    pub(super) fn judge_stream(&mut self, now: Time) {
        if std::mem::take(&mut self.stream.is_untried) {
            let is_soon = now < self.silent_since() + self.stream_patience() / 2;
            self.stream.in_vain = if is_soon { 0 } else { self.stream.in_vain.saturating_add(1) };
        }
    }

    /// The server answered the NULL that was sent at `asked`, so it has got all that was sent before: retransmits what
    /// is overdue by then, on the same connection, by which the server recognises duplicates.
    pub(super) fn repeat_overdue(&mut self, asked: Time) {
        let is_overdue = |sent: Transmission| !sent.resending && asked.since(sent.at) >= OVERDUE;
        let overdue = self.in_flight.values().filter(|call| call.sent.is_some_and(is_overdue));
        for xid in overdue.map(|call| call.xid).collect::<Vec<_>>() {
            self.queue_resend(xid);
        }
    }
}
