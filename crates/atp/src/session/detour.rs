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
//! Who goes away may miss the answer that is under way: noq forgets what it has asked there. So no packet
//! is sent round that may be one, nor one right behind it, before what it proves can be seen; the next
//! one always comes back; and noq's own limit, three times a probe timeout that knows nothing of the
//! address, is put off until a packet is there to ask anew for. How long an answer takes is not known, and
//! if it is lost none comes; so the patience is 1, 2, 1, 4, 1, 2, 1, 8 ... s (Luby, Sinclair and
//! Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993): long enough for any in the end, and mostly
//! short, so that who could not be reached for minutes is asked soon after he can.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::Time;

/// How long an address may take to be proven before it is asked again, mostly.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest is so many times doubled: a minute.
const DOUBLED_MAX: u32 = 6;
/// noq gives up an address on another host, of which it knows no round trip, 3.07 s after it has asked.
const NOQ_TRIES: Duration = Duration::from_secs(3);
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
    /// Since when it has had its time: since it was asked, or has answered whatever it was.
    since: Time,
    /// How many answers had come by then.
    answers: u64,
    /// How many frames had been sent before the move that go to a proven address only.
    proofs: u64,
}

impl Doubt {
    fn patience(&self) -> Duration {
        let doubled = self.again.saturating_add(1).trailing_zeros().min(DOUBLED_MAX);
        PATIENCE * (1 << doubled)
    }
}

impl Detour {
    /// The peer's packets come from `addr` now; so many frames that go to a proven address only
    /// were sent before, and so many answers to challenges have come.
    pub(super) fn moved(&mut self, now: Time, addr: SocketAddr, proofs: u64, answers: u64) {
        self.doubt = Some(Doubt { addr, asked: now, again: 0, since: now, answers, proofs });
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

    /// Whether a timer of noq's that is due at `at` has to wait while the path leads to `path`. It is of no use
    /// where nothing is asked; and one of them would leave the address in doubt, and forget what it was asked,
    /// without a packet to ask anew for.
    pub(super) fn holds(&self, at: Time, path: Option<SocketAddr>) -> bool {
        let has_tried = |doubt: Doubt| doubt.again > 0 && doubt.asked + NOQ_TRIES <= at;
        self.is_away(path) || self.doubt.is_some_and(has_tried)
    }

    /// Whether the path, which leads to `path`, leads elsewhere than to the address in doubt.
    pub(super) fn is_away(&self, path: Option<SocketAddr>) -> bool {
        self.doubt.is_some_and(|doubt| path != Some(doubt.addr))
    }

    /// Whether the peer's packet of so many bytes from `from` is to be passed on as if it came from
    /// elsewhere, while the path leads to `path`.
    pub(super) fn is_due(&self, now: Time, from: SocketAddr, bytes: usize, path: Option<SocketAddr>) -> bool {
        let has_waited = |doubt: Doubt| doubt.addr == from && doubt.since + doubt.patience() <= now;
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

    /// The path led to `before` and leads to `path` now, and so many answers to challenges have come: where it
    /// comes back it is asked anew. Whether there is another answer, which may prove the address.
    pub(super) fn led(
        &mut self,
        now: Time,
        before: Option<SocketAddr>,
        path: Option<SocketAddr>,
        answers: u64,
    ) -> bool {
        let was_away = self.is_away(before);
        let Some(doubt) = self.doubt.as_mut().filter(|doubt| Some(doubt.addr) == path) else { return false };
        if was_away {
            let again = doubt.again.saturating_add(1);
            *doubt = Doubt { asked: now, again, since: now, answers, ..*doubt };
            return false;
        }
        let has_answered = answers > doubt.answers;
        if has_answered {
            *doubt = Doubt { since: now, answers, ..*doubt };
        }
        has_answered
    }

    /// A packet of the peer's came from `from`, which so is not only made up.
    pub(super) fn came(&mut self, from: SocketAddr) {
        self.decoy.take_if(|decoy| *decoy == from);
    }

    /// Whom a packet to `addr` is meant for.
    pub(super) fn behind(&self, addr: SocketAddr) -> SocketAddr {
        self.doubt.filter(|_| self.is_decoy(addr)).map_or(addr, |doubt| doubt.addr)
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
        detour.moved(at(10_000), away, 5, 2);
        assert!(!is_due(&detour, 10_999, away) && is_due(&detour, 11_000, away) && !is_due(&detour, 11_000, home));
        assert!(!detour.is_due(at(11_000), away, 1200, Some(away)), "it may be the answer");
        let decoy = detour.begin(away);
        assert!(decoy.ip() != away.ip() && detour.is_decoy(decoy) && !detour.is_decoy(away));
        assert!(detour.is_away(Some(decoy)) && !detour.is_away(Some(away)));
        // QUIC has not gone there: the packet was not the newest.
        detour.led(at(11_001), Some(away), Some(away), 2);
        assert!(is_due(&detour, 11_002, away));
        assert!(!detour.holds(at(11_001), Some(away)), "there is nowhere to go back to");
        detour.led(at(11_002), Some(away), Some(decoy), 2);
        assert!(detour.holds(at(11_003), Some(decoy)));
        assert!(!detour.is_due(at(19_000), away, 31, Some(decoy)), "the next one comes back, however late it is");
        detour.came(away);
        assert!(detour.is_decoy(decoy) && detour.behind(decoy) == away && detour.behind(home) == home);
        let mut longest = 0;
        for (again, patience) in (1..256).map(|again: u64| (again, 1000 << (again + 1).trailing_zeros().min(6))) {
            let asked = 100_000 * again;
            detour.led(at(asked), Some(decoy), Some(away), 2);
            assert!(!is_due(&detour, asked + patience - 1, away) && is_due(&detour, asked + patience, away));
            assert!(!detour.holds(at(asked + 2999), Some(away)) && detour.holds(at(asked + 3000), Some(away)));
            longest = longest.max(patience);
        }
        assert_eq!(longest, 64_000, "a minute is enough for any");
        detour.came(decoy);
        assert!(!detour.is_decoy(decoy) && detour.behind(decoy) == decoy, "it exists");
        assert_eq!(detour.sent(5), None);
        assert!(detour.is_unproven());
        assert_eq!((detour.sent(6), detour.sent(7)), (Some(away), None));
        assert!(!is_due(&detour, 90_000_000, away));
    }

    #[test]
    fn what_comes_right_behind_an_answer_does_not_go_round() {
        let (away, at) = ("10.0.0.2:9".parse().unwrap(), Time::from_millis);
        let mut detour = Detour::default();
        detour.moved(at(10_000), away, 5, 2);
        assert!(!detour.led(at(11_100), Some(away), Some(away), 2) && detour.is_due(at(11_100), away, 31, Some(away)));
        assert!(detour.led(at(11_100), Some(away), Some(away), 3), "it may prove the address");
        assert!(!detour.is_due(at(11_100), away, 31, Some(away)) && !detour.is_due(at(12_099), away, 31, Some(away)));
        assert!(!detour.led(at(11_200), Some(away), Some(away), 3), "it is the same one");
        assert!(detour.is_due(at(12_100), away, 31, Some(away)), "it proved nothing");
    }
}
