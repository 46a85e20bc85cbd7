//! Handshake and idle timers.
//!
//! **Handshake.** In noq 1.4 the probe timeout of the handshake grows with each attempt, and a round-trip time
//! measured across an outage has the length of the outage; after an hour's outage the next attempt would take
//! minutes. So both ends retry every 2 s by bringing QUIC's timer forward. A server that has not heard of its
//! client since its last retry waits for the client's, so that it does not send to an absent host.
//!
//! A client may be up before its server: its last flight, with its objects, is in flight. The server keeps such a
//! half-open connection, because the client holds objects for it. When slots are scarce, one of several of a host,
//! or one older than [`HANDSHAKE_TIMEOUT`], may be evicted (`endpoint/admission.rs`). The client's requests then
//! end as `Lost`.
//!
//! **Idle.** A peer that does not answer may be unreachable and have objects to send. So before an idle connection
//! is closed, the peer is probed.

use std::time::Duration;

use remora_base::Time;

/// Retry interval of an unanswered handshake.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Age up to which the only half-open connection of a host is not evicted.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// State of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeTimer {
    since: Time,
    /// Time of the last retry.
    retried: Time,
    /// The next retry waits for a packet of the peer.
    awaits_peer: bool,
    is_server: bool,
    /// The handshake is confirmed (RFC 9001, section 4.1.2): none of it is sent again.
    confirmed: bool,
}

impl HandshakeTimer {
    pub(crate) fn new(now: Time, is_server: bool) -> HandshakeTimer {
        HandshakeTimer { since: now, retried: now, awaits_peer: false, is_server, confirmed: false }
    }

    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Records a datagram of the peer.
    pub(crate) fn received(&mut self) {
        self.awaits_peer = false;
    }

    /// When the next retry is due, unless the handshake is confirmed.
    pub(crate) fn next_retry(&self) -> Option<Time> {
        (!self.confirmed && !self.awaits_peer).then_some(self.retried + RETRY_INTERVAL)
    }

    /// Records a retry.
    pub(crate) fn retry(&mut self, now: Time) {
        self.retried = now;
        self.awaits_peer = self.is_server;
    }

    /// Start of the handshake.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// Whether the handshake has timed out.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.since + HANDSHAKE_TIMEOUT <= now
    }
}

/// An acknowledgement after a longer time came from a peer that was unreachable.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Time of the last object, and progress towards closing the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleTimer {
    active: Time,
    state: IdleState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdleState {
    Active,
    /// The peer was probed at this time.
    Probed(Time),
    /// The peer has answered and has no objects.
    Expired,
}

impl IdleTimer {
    pub(crate) fn new(now: Time) -> IdleTimer {
        IdleTimer { active: now, state: IdleState::Active }
    }

    /// Restarts the timer: an object made progress.
    pub(crate) fn touch(&mut self, now: Time) {
        *self = IdleTimer::new(now);
    }

    /// When to probe a connection without objects.
    pub(crate) fn probe_at(&self, timeout: Duration) -> Option<Time> {
        (self.state == IdleState::Active).then_some(self.active + timeout)
    }

    /// Records the probe.
    pub(crate) fn probe(&mut self, now: Time) {
        self.state = IdleState::Probed(now);
    }

    /// Records the acknowledgement of a packet sent at `sent`. After an outage the peer may be about to send
    /// objects, so the timer restarts.
    pub(crate) fn acknowledged(&mut self, now: Time, sent: Time) {
        match self.state {
            IdleState::Probed(at) if sent >= at && now > at + ANSWER_MAX => self.touch(now),
            IdleState::Probed(at) if sent >= at => self.state = IdleState::Expired,
            _ => {}
        }
    }

    /// Whether the peer has answered the probe and the connection may be closed.
    pub(crate) fn is_expired(&self) -> bool {
        self.state == IdleState::Expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_retries_until_confirmed_and_server_once_per_datagram() {
        let at = Time::from_secs;
        for is_server in [false, true] {
            let mut h = HandshakeTimer::new(at(1), is_server);
            assert_eq!(h.next_retry(), Some(at(3)));
            h.retry(at(3));
            assert_eq!(h.next_retry(), (!is_server).then_some(at(5)));
            h.received();
            assert_eq!(h.next_retry(), Some(at(5)));
            assert!(!h.is_overdue(at(30)) && h.is_overdue(at(31)));
            h.confirm();
            assert_eq!(h.next_retry(), None);
        }
    }

    #[test]
    fn idle_peer_is_probed_and_only_a_later_packet_answers() {
        let at = Time::from_secs;
        let mut idle = IdleTimer::new(at(1));
        assert_eq!(idle.probe_at(Duration::from_secs(9)), Some(at(10)));
        idle.acknowledged(at(10), at(10));
        idle.probe(at(10));
        assert_eq!(idle.probe_at(Duration::from_secs(9)), None);
        idle.acknowledged(at(11), at(9));
        assert!(!idle.is_expired());
        idle.acknowledged(at(11), at(10));
        assert!(idle.is_expired());
        idle.touch(at(11));
        assert_eq!((idle.is_expired(), idle.probe_at(Duration::from_secs(9))), (false, Some(at(20))));
    }

    #[test]
    fn peer_that_answers_after_an_outage_is_not_idle_yet() {
        let at = Time::from_secs;
        let mut idle = IdleTimer::new(at(0));
        idle.probe(at(10));
        idle.acknowledged(at(3600), at(3590));
        assert_eq!((idle.is_expired(), idle.probe_at(Duration::from_secs(9))), (false, Some(at(3609))));
    }
}
