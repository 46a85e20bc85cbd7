//! How a handshake gets through a link that drops, stalls and goes away.
//!
//! In noq 1.4 the wait for a lost handshake packet grows with each attempt by one and a half
//! round trips or 2 s, without end, and a round trip that was measured across an outage is the
//! outage's length. A link that comes back after an hour would wait for minutes. So both ends
//! retry every 2 s: QUIC's own timer is brought forward. A server that has not heard of its
//! client since it last retried awaits_peer for the client's retry, so it sends nothing at length to
//! somebody who is gone.
//!
//! A client may be up long before its server is: its last flight is under way, and its objects
//! with it. The server keeps such a half-open connection as long as it keeps any other, because
//! the client holds objects for it; but when places are short, one of several of one host or one that
//! has been half open for [`HANDSHAKE_TIMEOUT`] makes room for a newcomer (`places.rs`). The client's requests end as `Lost` then, as the
//! client cannot know how far it had come.
//!
//! When a connection without objects is ended, and how one that has nothing to say stays alive.

use remora_base::Time;
use std::time::Duration;

/// How long a handshake that gets no answer awaits_peer with its next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long somebody's handshake with us has its place for sure.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// A handshake under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeTimer {
    since: Time,
    /// When it was last helped on.
    retried: Time,
    /// Whether the next retry awaits_peer for the peer's.
    awaits_peer: bool,
    is_server: bool,
    /// Both ends are known to have the keys (RFC 9001, section 4.1.2): nothing of the handshake is
    /// to be sent again.
    confirmed: bool,
}

impl HandshakeTimer {
    pub(crate) fn new(now: Time, is_server: bool) -> HandshakeTimer {
        HandshakeTimer { since: now, retried: now, awaits_peer: false, is_server, confirmed: false }
    }

    /// It is over at both ends.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Whether it is over at both ends.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// A datagram of the peer came in.
    pub(crate) fn received(&mut self) {
        self.awaits_peer = false;
    }

    /// When it is to be helped on, if it is under way.
    pub(crate) fn next_retry(&self) -> Option<Time> {
        (!self.confirmed && !self.awaits_peer).then_some(self.retried + RETRY_INTERVAL)
    }

    /// It is helped on now.
    pub(crate) fn retry(&mut self, now: Time) {
        self.retried = now;
        self.awaits_peer = self.is_server;
    }

    /// When it began.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// Whether it has had its time.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.since + HANDSHAKE_TIMEOUT <= now
    }
}

/// A later answer is one of a peer that was out of reach.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// When objects last moved, and how far the end of the connection is.
///
/// A peer that does not answer is not idle but out of reach, and may have objects for us: it is
/// held as all such are. So before an idle connection is ended, the peer is asked whether it is
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleTimer {
    active: Time,
    state: IdleState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdleState {
    Active,
    /// Asked whether it is there.
    Probed(Time),
    /// It is, and has nothing for us.
    Expired,
}

impl IdleTimer {
    pub(crate) fn new(now: Time) -> IdleTimer {
        IdleTimer { active: now, state: IdleState::Active }
    }

    /// An object moves.
    pub(crate) fn touch(&mut self, now: Time) {
        *self = IdleTimer::new(now);
    }

    /// When a connection that has no objects is to be asked for, after `timeout`.
    pub(crate) fn probe_at(&self, timeout: Duration) -> Option<Time> {
        (self.state == IdleState::Active).then_some(self.active + timeout)
    }

    /// The peer is asked whether it is there.
    pub(crate) fn probe(&mut self, now: Time) {
        self.state = IdleState::Probed(now);
    }

    /// The peer acknowledged something that left at `sent`. After an outage it may be about to send what waited for the
    /// end of it: then the connection is idle from now on.
    pub(crate) fn acknowledged(&mut self, now: Time, sent: Time) {
        match self.state {
            IdleState::Probed(at) if sent >= at && now > at + ANSWER_MAX => self.touch(now),
            IdleState::Probed(at) if sent >= at => self.state = IdleState::Expired,
            _ => {}
        }
    }

    /// Whether the peer was asked, and is there.
    pub(crate) fn is_expired(&self) -> bool {
        self.state == IdleState::Expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_knocks_until_confirmed_and_a_server_once_for_each_word_it_hears() {
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
    fn a_peer_is_asked_first_and_only_a_later_packet_s_acknowledgement_is_an_answer() {
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
