//! Where a server's peer is, and what an address that has not answered yet gets of it.
//!
//! A path follows the source of any packet, which may be forged, and QUIC asks the new address at
//! once with a challenge of 1200 bytes. RFC 9000 has three times what came from an unvalidated
//! address as the most that goes there (section 8.1, for moves in 9.3), which noq 1.4 keeps by path: who
//! says to be here and there in turn has a new path, and a new challenge, with every packet of 31
//! bytes. So it is kept here, by address, and one address at a time is heard out. A datagram a second goes
//! beyond it: a peer that only listens says so little that it would not be exempted for minutes, if
//! the address has become another one on the way (NAT).

use std::net::SocketAddr;
use std::time::Duration;

use noq_proto::FrameStats;
use remora_base::Time;

/// So much for each byte that came (RFC 9000, section 8.1).
const FACTOR: u64 = 3;
/// How long one address is heard out before another, and how often one is exempted regardless of what
/// came from it. A little less than a [`PathRevalidation`](crate::session::path::PathRevalidation) waits before it asks again.
const INTERVAL: Duration = Duration::from_millis(900);

/// Where a peer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmplificationLimit {
    validated: SocketAddr,
    /// Where its latest packet came from.
    latest: SocketAddr,
    unvalidated: Option<UnvalidatedAddress>,
    /// When an address was exempted regardless of what came from it.
    exempted: Option<Time>,
}

/// The address that a peer has come from lately and has not answered at.
#[derive(Clone, Copy, Debug)]
struct UnvalidatedAddress {
    addr: SocketAddr,
    since: Time,
    received: u64,
    sent: u64,
}

impl AmplificationLimit {
    /// It has answered at `validated`.
    pub(crate) fn new(validated: SocketAddr) -> AmplificationLimit {
        AmplificationLimit { validated, latest: validated, unvalidated: None, exempted: None }
    }

    /// It has answered at `addr`.
    pub(crate) fn validated(&mut self, addr: SocketAddr) {
        *self =
            AmplificationLimit { validated: addr, unvalidated: self.unvalidated.filter(|s| s.addr != addr), ..*self };
    }

    /// Whether it has answered at `addr`, more lately than elsewhere.
    pub(crate) fn is_validated(&self, addr: SocketAddr) -> bool {
        self.validated == addr
    }

    /// Whether its latest packet came from `addr`.
    pub(crate) fn is_latest(&self, addr: SocketAddr) -> bool {
        self.latest == addr
    }

    /// Whether nothing of the peer came from `from` lately.
    pub(crate) fn is_unknown(&self, from: SocketAddr) -> bool {
        !self.is_validated(from) && self.unvalidated.is_none_or(|s| s.addr != from)
    }

    /// Whether a datagram from `from` is looked at. What is not comes again, if somebody is there.
    pub(crate) fn admits(&self, now: Time, from: SocketAddr) -> bool {
        !self.is_unknown(from) || self.unvalidated.is_none_or(|s| s.since + INTERVAL <= now)
    }

    /// A datagram of so many bytes came from `from`, and is the peer's.
    pub(crate) fn received(&mut self, now: Time, from: SocketAddr, bytes: u64) {
        self.latest = from;
        if self.is_unknown(from) {
            self.unvalidated = Some(UnvalidatedAddress { addr: from, since: now, received: 0, sent: 0 });
        }
        if let Some(unvalidated) = self.unvalidated.as_mut().filter(|s| s.addr == from) {
            unvalidated.received = unvalidated.received.saturating_add(bytes);
        }
    }

    /// Whether a datagram of so many bytes may leave for `to`, which is where the path leads or is not.
    pub(crate) fn allows(&mut self, now: Time, to: SocketAddr, bytes: u64, is_path: bool) -> bool {
        if self.is_validated(to) {
            return true;
        }
        let Some(unvalidated) = self.unvalidated.as_mut().filter(|s| s.addr == to) else { return false };
        let sent = unvalidated.sent.saturating_add(bytes);
        let is_within_limit = sent <= unvalidated.received.saturating_mul(FACTOR);
        let is_exempt = is_path && self.exempted.is_none_or(|exempted| exempted + INTERVAL <= now);
        if !is_within_limit && !is_exempt {
            return false;
        }
        unvalidated.sent = sent;
        if !is_within_limit {
            self.exempted = Some(now);
        }
        true
    }
}

/// How many frames have been sent that go to a validated address only.
pub(crate) fn validated_frames(sent: &FrameStats) -> u64 {
    sent.acks + sent.stream + sent.datagram
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u8) -> SocketAddr {
        ([10, 0, 0, n], 7).into()
    }

    #[test]
    fn one_address_at_a_time_is_heard_out_and_gets_three_times_its_bytes_and_a_question_a_second() {
        let (home, a, b, ms) = (at(1), at(2), at(3), Time::from_millis);
        let mut w = AmplificationLimit::new(home);
        assert!(w.allows(ms(0), home, 1 << 30, true) && !w.allows(ms(0), a, 1, true), "a has said nothing");
        assert!(w.is_unknown(a) && w.admits(ms(0), a) && w.is_latest(home));
        w.received(ms(0), a, 500);
        assert!(w.is_latest(a) && !w.is_latest(home));
        w.received(ms(0), home, 500);
        assert!(w.is_latest(home) && !w.is_latest(a) && !w.is_unknown(a));
        assert!(w.admits(ms(1), a) && w.admits(ms(1), home) && !w.admits(ms(899), b) && w.admits(ms(900), b));
        // 1500 bytes are paid for; the next are a question, and there is none but to where the path leads.
        assert!(w.allows(ms(1), a, 1200, true) && !w.allows(ms(1), a, 1200, false) && w.allows(ms(1), a, 1200, true));
        assert!(!w.allows(ms(900), a, 1200, true) && w.allows(ms(901), a, 1200, true));
        w.received(ms(1000), b, 31);
        assert!(
            !w.allows(ms(1000), b, 1200, true) && w.allows(ms(1801), b, 1200, true),
            "no more for two than for one"
        );
        w.validated(b);
        assert!(w.allows(ms(1802), b, 1 << 30, true) && !w.allows(ms(1802), home, 1, false));
        assert!(w.admits(ms(1802), home), "a peer that has answered may move on at once");
    }
}
