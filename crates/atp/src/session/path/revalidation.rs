//! A way around a dead end of noq 1.4: after a client's address changed, the server has to see the
//! new one answer a PATH_CHALLENGE (RFC 9000, section 8.2) before it sends anything else there.
//! noq tries for three probe timeouts and then never retries, for as long as the client's packets
//! keep coming from that address: it neither asks once more nor goes back to the old path. A
//! blackout right after a move, which is when they happen, would so silence the server for ever.
//!
//! A packet from yet another address makes it ask retries. So while a new address has not been
//! proven for a while, one of the client's packets is passed on as if it came from the address next
//! to the true one: noq goes there, and comes back with the next packet, asking anew. Nothing is
//! sent to the decoy. Whose packet it is the connection id tells, and not the address: another
//! connection may come from the same one, and its handshake would be answered at the decoy.
//!
//! Who goes away may miss the answer that is under way: noq forgets what it has challenged there. So no packet
//! is sent round that may be one, nor one right behind it, before what it proves can be seen; the next
//! one always comes back; and noq's own limit, three times a probe timeout that knows nothing of the
//! address, is put off until a packet is there to ask anew for. How long an answer takes is not known, and
//! if it is lost none comes; so the retry_delay is 1, 2, 1, 4, 1, 2, 1, 8 ... s (Luby, Sinclair and
//! Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993): long enough for any in the end, and mostly
//! short, so that who could not be reached for minutes is challenged soon after he can.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::Time;

/// How long an address may take to be proven before it is challenged retries, mostly.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest is so many times doubled: a minute.
const DOUBLED_MAX: u32 = 6;
/// noq gives up an address on another host, of which it knows no round trip, 3.07 s after it has challenged.
const NOQ_TIMEOUT: Duration = Duration::from_secs(3);
/// A datagram with the answer to a challenge has at least so many bytes (RFC 9000, section 8.2.2).
const RESPONSE_MIN: usize = 1200;

/// A server's peer whose address is not proven since it changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathRevalidation {
    unvalidated: Option<UnvalidatedPath>,
    decoy: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug)]
struct UnvalidatedPath {
    addr: SocketAddr,
    /// When it was last challenged.
    challenged: Time,
    /// How often it was challenged retries.
    retries: u32,
    /// Since when it has had its time: since it was challenged, or has answered whatever it was.
    since: Time,
    /// How many responses had come by then.
    responses: u64,
    /// How many frames had been sent before the move that go to a proven address only.
    validated_frames: u64,
}

impl UnvalidatedPath {
    fn retry_delay(&self) -> Duration {
        let doubled = self.retries.saturating_add(1).trailing_zeros().min(DOUBLED_MAX);
        RETRY_MIN * (1 << doubled)
    }
}

impl PathRevalidation {
    /// The peer's packets come from `addr` now; so many frames that go to a proven address only
    /// were sent before, and so many responses to challenges have come.
    pub(crate) fn address_changed(&mut self, now: Time, addr: SocketAddr, validated_frames: u64, responses: u64) {
        self.unvalidated =
            Some(UnvalidatedPath { addr, challenged: now, retries: 0, since: now, responses, validated_frames });
        self.decoy = None;
    }

    /// So many frames have been sent that go to a proven address only, and whatever a peer asks for
    /// needs one: so if one more was sent, the address is proven. Says so once.
    pub(crate) fn confirm(&mut self, validated_frames: u64) -> Option<SocketAddr> {
        self.unvalidated
            .take_if(|unvalidated| validated_frames > unvalidated.validated_frames)
            .map(|unvalidated| unvalidated.addr)
    }

    /// Whether an address is in unvalidated.
    pub(crate) fn is_pending(&self) -> bool {
        self.unvalidated.is_some()
    }

    /// Whether a timer of noq's that is due at `at` has to wait while the path leads to `path`. It is of no use
    /// where nothing is challenged; and one of them would leave the address in unvalidated, and forget what it was challenged,
    /// without a packet to ask anew for.
    pub(crate) fn delays_timer(&self, at: Time, path: Option<SocketAddr>) -> bool {
        let has_tried =
            |unvalidated: UnvalidatedPath| unvalidated.retries > 0 && unvalidated.challenged + NOQ_TIMEOUT <= at;
        self.is_diverted(path) || self.unvalidated.is_some_and(has_tried)
    }

    /// Whether the path, which leads to `path`, leads elsewhere than to the address in unvalidated.
    pub(crate) fn is_diverted(&self, path: Option<SocketAddr>) -> bool {
        self.unvalidated.is_some_and(|unvalidated| path != Some(unvalidated.addr))
    }

    /// Whether the peer's packet of so many bytes from `from` is to be passed on as if it came from
    /// elsewhere, while the path leads to `path`.
    pub(crate) fn is_due(&self, now: Time, from: SocketAddr, bytes: usize, path: Option<SocketAddr>) -> bool {
        let has_waited = |unvalidated: UnvalidatedPath| {
            unvalidated.addr == from && unvalidated.since + unvalidated.retry_delay() <= now
        };
        bytes < RESPONSE_MIN && !self.is_diverted(path) && self.unvalidated.is_some_and(has_waited)
    }

    /// Where to say that such a packet came from: another host, for of the same one noq expects round trips as
    /// before, and gives up the path there and back after three of those.
    pub(crate) fn divert(&mut self, from: SocketAddr) -> SocketAddr {
        let ip = match from.ip() {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ 1).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ 1).into()),
        };
        *self.decoy.insert(SocketAddr::new(ip, from.port()))
    }

    /// The path led to `before` and leads to `path` now, and so many responses to challenges have come: where it
    /// comes back it is challenged anew. Whether there is another answer, which may prove the address.
    pub(crate) fn path_changed(
        &mut self,
        now: Time,
        before: Option<SocketAddr>,
        path: Option<SocketAddr>,
        responses: u64,
    ) -> bool {
        let was_away = self.is_diverted(before);
        let Some(unvalidated) = self.unvalidated.as_mut().filter(|unvalidated| Some(unvalidated.addr) == path) else {
            return false;
        };
        if was_away {
            let retries = unvalidated.retries.saturating_add(1);
            *unvalidated = UnvalidatedPath { challenged: now, retries, since: now, responses, ..*unvalidated };
            return false;
        }
        let has_answered = responses > unvalidated.responses;
        if has_answered {
            *unvalidated = UnvalidatedPath { since: now, responses, ..*unvalidated };
        }
        has_answered
    }

    /// A packet of the peer's came from `from`, which so is not only made up.
    pub(crate) fn received_from(&mut self, from: SocketAddr) {
        self.decoy.take_if(|decoy| *decoy == from);
    }

    /// Whom a packet to `addr` is meant for.
    pub(crate) fn true_address(&self, addr: SocketAddr) -> SocketAddr {
        self.unvalidated.filter(|_| self.is_decoy(addr)).map_or(addr, |unvalidated| unvalidated.addr)
    }

    /// Whether `addr` was only made up.
    pub(crate) fn is_decoy(&self, addr: SocketAddr) -> bool {
        self.decoy == Some(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_doubt_is_asked_again_with_growing_patience_until_it_answers() {
        let (home, away): (SocketAddr, SocketAddr) = ("10.0.0.1:7".parse().unwrap(), "10.0.0.2:9".parse().unwrap());
        let mut revalidation = PathRevalidation::default();
        let at = Time::from_millis;
        let is_due = |revalidation: &PathRevalidation, ms, from| revalidation.is_due(at(ms), from, 31, Some(away));
        assert!(!is_due(&revalidation, 9_000, home));
        revalidation.address_changed(at(10_000), away, 5, 2);
        assert!(
            !is_due(&revalidation, 10_999, away)
                && is_due(&revalidation, 11_000, away)
                && !is_due(&revalidation, 11_000, home)
        );
        assert!(!revalidation.is_due(at(11_000), away, 1200, Some(away)), "it may be the answer");
        let decoy = revalidation.divert(away);
        assert!(decoy.ip() != away.ip() && revalidation.is_decoy(decoy) && !revalidation.is_decoy(away));
        assert!(revalidation.is_diverted(Some(decoy)) && !revalidation.is_diverted(Some(away)));
        // QUIC has not gone there: the packet was not the newest.
        revalidation.path_changed(at(11_001), Some(away), Some(away), 2);
        assert!(is_due(&revalidation, 11_002, away));
        assert!(!revalidation.delays_timer(at(11_001), Some(away)), "there is nowhere to go back to");
        revalidation.path_changed(at(11_002), Some(away), Some(decoy), 2);
        assert!(revalidation.delays_timer(at(11_003), Some(decoy)));
        assert!(!revalidation.is_due(at(19_000), away, 31, Some(decoy)), "the next one comes back, however late it is");
        revalidation.received_from(away);
        assert!(
            revalidation.is_decoy(decoy)
                && revalidation.true_address(decoy) == away
                && revalidation.true_address(home) == home
        );
        let mut longest = 0;
        for (retries, retry_delay) in
            (1..256).map(|retries: u64| (retries, 1000 << (retries + 1).trailing_zeros().min(6)))
        {
            let challenged = 100_000 * retries;
            revalidation.path_changed(at(challenged), Some(decoy), Some(away), 2);
            assert!(
                !is_due(&revalidation, challenged + retry_delay - 1, away)
                    && is_due(&revalidation, challenged + retry_delay, away)
            );
            assert!(
                !revalidation.delays_timer(at(challenged + 2999), Some(away))
                    && revalidation.delays_timer(at(challenged + 3000), Some(away))
            );
            longest = longest.max(retry_delay);
        }
        assert_eq!(longest, 64_000, "a minute is enough for any");
        revalidation.received_from(decoy);
        assert!(!revalidation.is_decoy(decoy) && revalidation.true_address(decoy) == decoy, "it exists");
        assert_eq!(revalidation.confirm(5), None);
        assert!(revalidation.is_pending());
        assert_eq!((revalidation.confirm(6), revalidation.confirm(7)), (Some(away), None));
        assert!(!is_due(&revalidation, 90_000_000, away));
    }

    #[test]
    fn what_comes_right_behind_an_answer_does_not_go_round() {
        let (away, at) = ("10.0.0.2:9".parse().unwrap(), Time::from_millis);
        let mut revalidation = PathRevalidation::default();
        revalidation.address_changed(at(10_000), away, 5, 2);
        assert!(
            !revalidation.path_changed(at(11_100), Some(away), Some(away), 2)
                && revalidation.is_due(at(11_100), away, 31, Some(away))
        );
        assert!(revalidation.path_changed(at(11_100), Some(away), Some(away), 3), "it may prove the address");
        assert!(
            !revalidation.is_due(at(11_100), away, 31, Some(away))
                && !revalidation.is_due(at(12_099), away, 31, Some(away))
        );
        assert!(!revalidation.path_changed(at(11_200), Some(away), Some(away), 3), "it is the same one");
        assert!(revalidation.is_due(at(12_100), away, 31, Some(away)), "it proved nothing");
    }
}
