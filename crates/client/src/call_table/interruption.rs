//! Interruptions of the traffic: broken and silent connections, silent servers, and hand-offs.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Time};

use super::client::{Client, ClientEvent};
use super::state::{BulkLoad, ConnectionState, Hold};
use crate::call::{PendingCall, Transmission};
use crate::request::CallFailure;
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

/// Connections over TCP: when to reconnect, and when to try a second connection.
///
/// TCP doubles its retransmission timeout with each loss (RFC 6298, section 5.5). After an outage of half a minute the
/// next segment may go out half a minute after the link is back. So when a reply is long overdue, the driver of this
/// core tries a second connection beside the first and moves there if the server answers on it ([`Client::doubt_at`]).
///
/// A server may be slow at one request and answer others at once. That is no reason to move. So a NULL goes out on the
/// present connection first ([`Client::ask_at`]); a connection that waits for a retransmission cannot bring the reply.
/// Where a server answers nothing on a busy connection, a move does not help either; the next silence then lasts longer
/// before it is doubted.
///
/// ATP needs none of this: its session finds the link without long backoff.
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
    /// After 2 s of silence, four smoothed RTTs, or twice the airtime of the data in flight, whichever is longest. The
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

/// Largest reply to NULL: 24 bytes and a verifier.
const NULL_REPLY_MAX: usize = 256;

/// Giving up: how long the server may be silent.
///
/// Any message of the server shows that the link is there. But a server may answer probes for ever and a request never,
/// if its disk hangs or long messages are dropped. So of the probes between two replies only the first restarts the
/// time: it may have ended an outage.
impl Client {
    /// A reply to a request, or a part of one, arrived.
    pub fn heard(&mut self, now: Time) {
        self.tick(now);
        self.judge_stream(now);
        self.last_contact.note(now);
    }

    /// The first `bytes` bytes of a message arrived. A few may be the reply to [`ask`](Client::ask).
    pub fn heard_part(&mut self, now: Time, bytes: usize) {
        self.tick(now);
        if bytes > NULL_REPLY_MAX { self.heard(now) } else { self.heard_probe(now) }
    }

    /// A reply to NULL arrived.
    pub(super) fn heard_probe(&mut self, now: Time) {
        self.last_contact.note_probe(now);
    }

    /// How long the server has owed a reply: since the last one, or the first reply to a probe after that.
    pub fn silence(&self, now: Time) -> Duration {
        if self.is_idle() { Duration::ZERO } else { now.since(self.last_contact.patient_since) }
    }

    /// How long nothing at all has arrived while requests were unanswered.
    pub fn quiet(&self, now: Time) -> Duration {
        if self.is_idle() { Duration::ZERO } else { now.since(self.last_contact.last) }
    }

    /// When all requests fail unless the server answers before ([`ClientConfig::give_up`]); `None` for never.
    ///
    /// [`ClientConfig::give_up`]: crate::ClientConfig::give_up
    pub fn give_up_at(&self) -> Option<Time> {
        let patience = self.config.give_up?;
        let waiting = self.waiting.all().into_iter().filter_map(|q| q.front()).map(|c| c.submitted);
        let oldest = self.in_flight.values().map(|c| c.submitted).chain(waiting).min()?;
        Some(oldest.max(self.last_contact.patient_since) + patience)
    }

    pub(super) fn give_up(&mut self, now: Time) {
        if self.give_up_at().is_none_or(|t| t > now) {
            return;
        }
        let in_flight = std::mem::take(&mut self.in_flight).into_values();
        let all = in_flight.chain(self.waiting.all_mut().into_iter().flat_map(|queue| queue.drain(..)));
        self.events.extend(all.map(|c| ClientEvent::Done { id: c.id, result: Err(CallFailure::TimedOut) }));
        (self.bulk_in_flight, self.bulk_waiting) = (BulkLoad::default(), BulkLoad::default());
        self.timers.clear();
        self.resend.clear();
    }
}

pub(crate) const HOLD_MAX: Duration = Duration::from_secs(60);

/// Hand-off: a hold during which nothing is sent.
///
/// A link that is about to hand over to another cell loses what is sent meanwhile, and announces it (the hand-off
/// signal of NFS/W 95 and 97). During a hold the client sends nothing and no timer runs, so nothing is lost and no
/// policy backs off. Then everything unanswered is retransmitted at once, users' requests first. It fits the window.
///
/// A link that retransmits (NFS/W 97, section 5.1) still has all that was in flight and delivers it. Retransmissions
/// would cross that link twice. Where the announcer says that the link keeps what is in flight, the client restarts its
/// timers and probes before it retransmits.
impl Client {
    /// Starts a hold, until [`resume`](Client::resume) or `until`, at most a minute. Requests may be submitted and
    /// replies are taken. A later call replaces an earlier one.
    pub fn hold(&mut self, now: Time, until: Time) {
        self.hold_as(now, Hold { until, kept: false });
    }

    /// Starts a hold of a link that keeps what is in flight.
    pub fn hold_kept(&mut self, now: Time, until: Time) {
        self.hold_as(now, Hold { until, kept: true });
    }

    fn hold_as(&mut self, now: Time, hold: Hold) {
        self.tick(now);
        let until = hold.until.min(now + HOLD_MAX);
        self.held = Some(Hold { until, ..hold }).filter(|h| h.until > now).or(self.held);
    }

    /// Ends a hold. Over UDP everything unanswered is retransmitted at once, unless the link kept it.
    pub fn resume(&mut self, now: Time) {
        self.tick(now);
        let Some(hold) = self.held.take() else { return };
        // The silence was not the server's.
        self.last_contact.note(now);
        if self.config.transport == Transport::Udp {
            self.detector.on_resume(now, hold.kept);
            if hold.kept { self.wait_anew(now) } else { self.resend_all() }
        }
    }

    /// This machine has another address, and replies go to the old one: over UDP everything unanswered is retransmitted
    /// at once, unless a hold is on.
    pub fn moved(&mut self, now: Time) {
        self.tick(now);
        if self.held.is_none() && self.config.transport == Transport::Udp {
            self.detector.on_resume(now, false);
            self.resend_all();
        }
    }

    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn end_hold(&mut self, now: Time) {
        if self.held.is_some_and(|h| h.until <= now) {
            self.resume(now);
        }
    }
}
