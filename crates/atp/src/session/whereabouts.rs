//! Where a server's peer is, and what an address that has not answered yet gets of it.
//!
//! A path follows the source of any packet, which may be forged, and QUIC asks the new address at
//! once with a challenge of 1200 bytes. RFC 9000 has three times what came from an unvalidated
//! address as the most that goes there (section 8.1, for moves in 9.3), which noq 1.4 keeps by path: who
//! says to be here and there in turn has a new path, and a new challenge, with every packet of 31
//! bytes. So it is kept here, by address, and one address at a time is heard out. A datagram a second goes
//! beyond it: a peer that only listens says so little that it would not be asked for minutes, if
//! the address has become another one on the way (NAT).

use std::net::SocketAddr;
use std::time::Duration;

use noq_proto::FrameStats;
use remora_base::Time;

/// So much for each byte that came (RFC 9000, section 8.1).
const FACTOR: u64 = 3;
/// How long one address is heard out before another, and how often one is asked regardless of what
/// came from it. A little less than a [`Detour`](super::detour::Detour) waits before it asks again.
const EVERY: Duration = Duration::from_millis(900);

/// Where a peer is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whereabouts {
    proven: SocketAddr,
    /// Where its latest packet came from.
    latest: SocketAddr,
    stray: Option<Stray>,
    /// When an address was asked regardless of what came from it.
    asked: Option<Time>,
}

/// The address that a peer has come from lately and has not answered at.
#[derive(Clone, Copy, Debug)]
struct Stray {
    addr: SocketAddr,
    since: Time,
    received: u64,
    sent: u64,
}

impl Whereabouts {
    /// It has answered at `proven`.
    pub(super) fn new(proven: SocketAddr) -> Whereabouts {
        Whereabouts { proven, latest: proven, stray: None, asked: None }
    }

    /// It has answered at `addr`.
    pub(super) fn proved(&mut self, addr: SocketAddr) {
        *self = Whereabouts { proven: addr, stray: self.stray.filter(|s| s.addr != addr), ..*self };
    }

    /// Whether it has answered at `addr`, more lately than elsewhere.
    pub(super) fn is_proven(&self, addr: SocketAddr) -> bool {
        self.proven == addr
    }

    /// Whether its latest packet came from `addr`.
    pub(super) fn is_latest(&self, addr: SocketAddr) -> bool {
        self.latest == addr
    }

    /// Whether nothing of the peer came from `from` lately.
    pub(super) fn is_strange(&self, from: SocketAddr) -> bool {
        !self.is_proven(from) && self.stray.is_none_or(|s| s.addr != from)
    }

    /// Whether a datagram from `from` is looked at. What is not comes again, if somebody is there.
    pub(super) fn admits(&self, now: Time, from: SocketAddr) -> bool {
        !self.is_strange(from) || self.stray.is_none_or(|s| s.since + EVERY <= now)
    }

    /// A datagram of so many bytes came from `from`, and is the peer's.
    pub(super) fn came(&mut self, now: Time, from: SocketAddr, bytes: u64) {
        self.latest = from;
        if self.is_strange(from) {
            self.stray = Some(Stray { addr: from, since: now, received: 0, sent: 0 });
        }
        if let Some(stray) = self.stray.as_mut().filter(|s| s.addr == from) {
            stray.received = stray.received.saturating_add(bytes);
        }
    }

    /// Whether a datagram of so many bytes may leave for `to`, which is where the path leads or is not.
    pub(super) fn lets(&mut self, now: Time, to: SocketAddr, bytes: u64, is_path: bool) -> bool {
        if self.is_proven(to) {
            return true;
        }
        let Some(stray) = self.stray.as_mut().filter(|s| s.addr == to) else { return false };
        let sent = stray.sent.saturating_add(bytes);
        let is_paid = sent <= stray.received.saturating_mul(FACTOR);
        let may_ask = is_path && self.asked.is_none_or(|asked| asked + EVERY <= now);
        if !is_paid && !may_ask {
            return false;
        }
        stray.sent = sent;
        if !is_paid {
            self.asked = Some(now);
        }
        true
    }
}

/// How many frames have been sent that go to a proven address only.
pub(super) fn proofs(sent: &FrameStats) -> u64 {
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
        let mut w = Whereabouts::new(home);
        assert!(w.lets(ms(0), home, 1 << 30, true) && !w.lets(ms(0), a, 1, true), "a has said nothing");
        assert!(w.is_strange(a) && w.admits(ms(0), a) && w.is_latest(home));
        w.came(ms(0), a, 500);
        assert!(w.is_latest(a) && !w.is_latest(home));
        w.came(ms(0), home, 500);
        assert!(w.is_latest(home) && !w.is_latest(a) && !w.is_strange(a));
        assert!(w.admits(ms(1), a) && w.admits(ms(1), home) && !w.admits(ms(899), b) && w.admits(ms(900), b));
        // 1500 bytes are paid for; the next are a question, and there is none but to where the path leads.
        assert!(w.lets(ms(1), a, 1200, true) && !w.lets(ms(1), a, 1200, false) && w.lets(ms(1), a, 1200, true));
        assert!(!w.lets(ms(900), a, 1200, true) && w.lets(ms(901), a, 1200, true));
        w.came(ms(1000), b, 31);
        assert!(!w.lets(ms(1000), b, 1200, true) && w.lets(ms(1801), b, 1200, true), "no more for two than for one");
        w.proved(b);
        assert!(w.lets(ms(1802), b, 1 << 30, true) && !w.lets(ms(1802), home, 1, false));
        assert!(w.admits(ms(1802), home), "a peer that has answered may move on at once");
    }
}
