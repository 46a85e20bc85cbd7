//! Anti-amplification limit of a server by address (RFC 9000, section 8.1; for migrations, 9.3).
//!
//! QUIC follows the source of any authenticated packet, which may be forged or replayed, and challenges the new
//! address with 1200 bytes. The limit is three times the bytes received from an unvalidated address. noq 1.4 counts
//! them by path, and a peer that alternates between two addresses gets a new path, and a new challenge, for each
//! packet of 31 bytes. So they are counted here by address, one unvalidated address at a time. One datagram per
//! interval is exempt: a peer that sends little, behind an address translator that changed its address, would
//! otherwise not be challenged for minutes.

use std::net::SocketAddr;
use std::time::Duration;

use noq_proto::FrameStats;
use remora_base::Time;

/// Bytes allowed for each byte received (RFC 9000, section 8.1).
const FACTOR: u64 = 3;
/// Time until another unvalidated address replaces the current one, and interval of exempt datagrams. Slightly less
/// than the first retry of [`PathRevalidation`](crate::session::path::PathRevalidation).
const INTERVAL: Duration = Duration::from_millis(900);

/// Validated and unvalidated address of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmplificationLimit {
    validated: SocketAddr,
    /// Source of the latest packet.
    latest: SocketAddr,
    unvalidated: Option<UnvalidatedAddress>,
    /// Time of the last exempt datagram.
    exempted: Option<Time>,
}

/// The current unvalidated address.
#[derive(Clone, Copy, Debug)]
struct UnvalidatedAddress {
    addr: SocketAddr,
    since: Time,
    received: u64,
    sent: u64,
}

impl AmplificationLimit {
    /// Starts with a validated address.
    pub(crate) fn new(validated: SocketAddr) -> AmplificationLimit {
        AmplificationLimit { validated, latest: validated, unvalidated: None, exempted: None }
    }

    /// Records that `addr` was validated.
    pub(crate) fn validated(&mut self, addr: SocketAddr) {
        *self =
            AmplificationLimit { validated: addr, unvalidated: self.unvalidated.filter(|s| s.addr != addr), ..*self };
    }

    /// Whether `addr` is the latest validated address.
    pub(crate) fn is_validated(&self, addr: SocketAddr) -> bool {
        self.validated == addr
    }

    /// Whether the latest packet came from `addr`.
    pub(crate) fn is_latest(&self, addr: SocketAddr) -> bool {
        self.latest == addr
    }

    /// Whether `from` is neither the validated nor the current unvalidated address.
    pub(crate) fn is_unknown(&self, from: SocketAddr) -> bool {
        !self.is_validated(from) && self.unvalidated.is_none_or(|s| s.addr != from)
    }

    /// Whether to process a datagram from `from`. A legitimate peer retransmits what is not.
    pub(crate) fn admits(&self, now: Time, from: SocketAddr) -> bool {
        !self.is_unknown(from) || self.unvalidated.is_none_or(|s| s.since + INTERVAL <= now)
    }

    /// Records an authenticated datagram from `from`.
    pub(crate) fn received(&mut self, now: Time, from: SocketAddr, bytes: u64) {
        self.latest = from;
        if self.is_unknown(from) {
            self.unvalidated = Some(UnvalidatedAddress { addr: from, since: now, received: 0, sent: 0 });
        }
        if let Some(unvalidated) = self.unvalidated.as_mut().filter(|s| s.addr == from) {
            unvalidated.received = unvalidated.received.saturating_add(bytes);
        }
    }

    /// Whether a datagram of `bytes` may be sent to `to`; `is_path` if QUIC's path leads there.
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

/// Number of frames sent that QUIC sends only to a validated address.
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
    fn unvalidated_address_gets_three_times_its_bytes() {
        let (home, a, b, ms) = (at(1), at(2), at(3), Time::from_millis);
        let mut w = AmplificationLimit::new(home);
        assert!(w.allows(ms(0), home, 1 << 30, true) && !w.allows(ms(0), a, 1, true), "a has said nothing");
        assert!(w.is_unknown(a) && w.admits(ms(0), a) && w.is_latest(home));
        w.received(ms(0), a, 500);
        assert!(w.is_latest(a) && !w.is_latest(home));
        w.received(ms(0), home, 500);
        assert!(w.is_latest(home) && !w.is_latest(a) && !w.is_unknown(a));
        assert!(w.admits(ms(1), a) && w.admits(ms(1), home) && !w.admits(ms(899), b) && w.admits(ms(900), b));
        // 1500 bytes are within the limit. The next ones are exempt, and only on the path.
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
