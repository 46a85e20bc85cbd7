//! How a handshake gets through a link that drops, stalls and goes away.
//!
//! In noq 1.4 the wait for a lost handshake packet grows with each attempt by one and a half
//! round trips or 2 s, without end, and a round trip that was measured across an outage is the
//! outage's length. A link that comes back after an hour would wait for minutes. So both ends
//! knock every 2 s: QUIC's own timer is brought forward. A server that has not heard of its
//! client since it last knocked waits for the client's knock, so it sends nothing at length to
//! somebody who is gone.
//!
//! A client may be up long before its server is: its last flight is under way, and its objects
//! with it. The server keeps such a half-open connection as long as it keeps any other, because
//! the client holds objects for it; but when places are short, one of several of one host or one that
//! has been half open for [`HANDSHAKE_MAX`] makes room for a newcomer (`places.rs`). The client's requests end as `Lost` then, as the
//! client cannot know how far it had come.

use std::time::Duration;

use remora_base::Time;

/// How long a handshake that gets no answer waits with its next attempt.
const KNOCK: Duration = Duration::from_secs(2);
/// How long somebody's handshake with us has its place for sure.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);

/// A handshake under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    since: Time,
    /// When it was last helped on.
    knocked: Time,
    /// Whether the next knock waits for the peer's.
    waits: bool,
    is_server: bool,
    /// Both ends are known to have the keys (RFC 9001, section 4.1.2): nothing of the handshake is
    /// to be sent again.
    confirmed: bool,
}

impl Handshake {
    pub(super) fn new(now: Time, is_server: bool) -> Handshake {
        Handshake { since: now, knocked: now, waits: false, is_server, confirmed: false }
    }

    /// It is over at both ends.
    pub(super) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Whether it is over at both ends.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// A datagram of the peer came in.
    pub(super) fn heard(&mut self) {
        self.waits = false;
    }

    /// When it is to be helped on, if it is under way.
    pub(super) fn next_knock(&self) -> Option<Time> {
        (!self.confirmed && !self.waits).then_some(self.knocked + KNOCK)
    }

    /// It is helped on now.
    pub(super) fn knock(&mut self, now: Time) {
        self.knocked = now;
        self.waits = self.is_server;
    }

    /// When it began.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// Whether it has had its time.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.since + HANDSHAKE_MAX <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_knocks_until_confirmed_and_a_server_once_for_each_word_it_hears() {
        let at = Time::from_secs;
        for is_server in [false, true] {
            let mut h = Handshake::new(at(1), is_server);
            assert_eq!(h.next_knock(), Some(at(3)));
            h.knock(at(3));
            assert_eq!(h.next_knock(), (!is_server).then_some(at(5)));
            h.heard();
            assert_eq!(h.next_knock(), Some(at(5)));
            assert!(!h.is_overdue(at(30)) && h.is_overdue(at(31)));
            h.confirm();
            assert_eq!(h.next_knock(), None);
        }
    }
}
