//! A way around a dead end of noq 1.4: after a client's address changed, the server has to see the
//! new one answer a PATH_CHALLENGE (RFC 9000, section 8.2) before it sends anything else there.
//! noq tries for three probe timeouts and then never again, for as long as the client's packets
//! keep coming from that address: it neither asks once more nor goes back to the old path. A
//! blackout right after a move, which is when they happen, would so silence the server for ever.
//!
//! A packet from yet another address makes it ask again. So while a new address has not been
//! proven for a while, one of the client's packets is passed on as if it came from the address next
//! to the true one: noq goes there, and comes back with the next packet, asking anew. Nothing is
//! sent to the decoy. Whose packet it is the connection id tells, and not the address: another
//! connection may come from the same one, and its handshake would be answered at the decoy.
//!
//! Who goes away may miss the answer that is under way. So no packet is sent round that may be one,
//! the next one always comes back, and each time there is more patience: packets may come as seldom
//! as every few seconds, and an answer may take longer than the first patience lasts.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::Time;

/// How long an address may take to be proven before it is asked again. Longer than noq tries
/// itself, unless the round trip is beyond 300 ms, when asking again early does little harm.
const PATIENCE: Duration = Duration::from_secs(1);
/// So much longer it may take each time.
const MORE_PATIENCE: Duration = Duration::from_millis(500);
/// So many times.
const TIMES_MAX: u32 = 8;
/// A datagram with the answer to a challenge has at least so many bytes (RFC 9000, section 8.2.2).
const ANSWER: usize = 1200;

/// A server's peer whose address is not proven since it changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detour {
    doubt: Option<Doubt>,
    decoy: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    addr: SocketAddr,
    /// When it was last asked.
    asked: Time,
    /// How often it was asked again.
    again: u32,
    /// How many frames had been sent before the move that go to a proven address only.
    proofs: u64,
}

impl Detour {
    /// The peer's packets come from `addr` now; so many frames that go to a proven address only
    /// were sent before.
    pub(super) fn moved(&mut self, now: Time, addr: SocketAddr, proofs: u64) {
        self.doubt = Some(Doubt { addr, asked: now, again: 0, proofs });
        self.decoy = None;
    }

    /// So many frames have been sent that go to a proven address only, and whatever a peer asks for
    /// needs one: so if one more was sent, the address is proven. Says so once.
    pub(super) fn sent(&mut self, proofs: u64) -> Option<SocketAddr> {
        self.doubt.take_if(|doubt| proofs > doubt.proofs).map(|doubt| doubt.addr)
    }

    /// Whether an address is in doubt.
    pub(super) fn is_unproven(&self) -> bool {
        self.doubt.is_some()
    }

    /// Whether the path, which leads to `path`, leads elsewhere than to the address in doubt. Nothing is asked
    /// there, so no timer of noq's is of use: one of them would go back without a packet to ask anew for.
    pub(super) fn is_away(&self, path: Option<SocketAddr>) -> bool {
        self.doubt.is_some_and(|doubt| path != Some(doubt.addr))
    }

    /// Whether the peer's packet of so many bytes from `from` is to be passed on as if it came from
    /// elsewhere, while the path leads to `path`.
    pub(super) fn is_due(&self, now: Time, from: SocketAddr, bytes: usize, path: Option<SocketAddr>) -> bool {
        let has_waited = |doubt: Doubt| {
            let patience = PATIENCE + MORE_PATIENCE * doubt.again.min(TIMES_MAX);
            doubt.addr == from && doubt.asked + patience <= now
        };
        bytes < ANSWER && !self.is_away(path) && self.doubt.is_some_and(has_waited)
    }

    /// Where to say that such a packet came from: another host, for of the same one noq expects round trips as
    /// before, and gives up the path there and back after three of those.
    pub(super) fn begin(&mut self, from: SocketAddr) -> SocketAddr {
        let ip = match from.ip() {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ 1).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ 1).into()),
        };
        *self.decoy.insert(SocketAddr::new(ip, from.port()))
    }

    /// The path led to `before` and leads to `path` now: where it comes back it is asked anew.
    pub(super) fn led(&mut self, now: Time, before: Option<SocketAddr>, path: Option<SocketAddr>) {
        if self.is_away(before)
            && let Some(doubt) = self.doubt.as_mut().filter(|doubt| Some(doubt.addr) == path)
        {
            doubt.asked = now;
            doubt.again = doubt.again.saturating_add(1);
        }
    }

    /// A packet of the peer's came from `from`, which so is not only made up.
    pub(super) fn came(&mut self, from: SocketAddr) {
        self.decoy.take_if(|decoy| *decoy == from);
    }

    /// Whether `addr` was only made up.
    pub(super) fn is_decoy(&self, addr: SocketAddr) -> bool {
        self.decoy == Some(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_doubt_is_asked_again_with_growing_patience_until_it_answers() {
        let (home, away): (SocketAddr, SocketAddr) = ("10.0.0.1:7".parse().unwrap(), "10.0.0.2:9".parse().unwrap());
        let mut detour = Detour::default();
        let at = Time::from_millis;
        let is_due = |detour: &Detour, ms, from| detour.is_due(at(ms), from, 31, Some(away));
        assert!(!is_due(&detour, 9_000, home));
        detour.moved(at(10_000), away, 5);
        assert!(!is_due(&detour, 10_999, away) && is_due(&detour, 11_000, away) && !is_due(&detour, 11_000, home));
        assert!(!detour.is_due(at(11_000), away, 1200, Some(away)), "it may be the answer");
        let decoy = detour.begin(away);
        assert!(decoy.ip() != away.ip() && detour.is_decoy(decoy) && !detour.is_decoy(away));
        assert!(detour.is_away(Some(decoy)) && !detour.is_away(Some(away)));
        // QUIC has not gone there: the packet was not the newest.
        detour.led(at(11_001), Some(away), Some(away));
        assert!(is_due(&detour, 11_002, away));
        detour.led(at(11_002), Some(away), Some(decoy));
        assert!(!detour.is_due(at(19_000), away, 31, Some(decoy)), "the next one comes back, however late it is");
        detour.led(at(19_000), Some(decoy), Some(away));
        assert!(!is_due(&detour, 20_499, away) && is_due(&detour, 20_500, away));
        detour.came(away);
        assert!(detour.is_decoy(decoy));
        for round in 0..20 {
            detour.led(at(21_000 + round), Some(decoy), Some(away));
        }
        assert!(!is_due(&detour, 26_018, away) && is_due(&detour, 26_019, away), "five seconds are enough for any");
        detour.came(decoy);
        assert!(!detour.is_decoy(decoy), "it exists");
        assert_eq!(detour.sent(5), None);
        assert!(detour.is_unproven());
        assert_eq!((detour.sent(6), detour.sent(7)), (Some(away), None));
        assert!(!is_due(&detour, 60_000, away));
    }
}
