//! Repeated path validation after a migration, which noq 1.4 lacks.
//!
//! After a client's address changed, the server must see a PATH_RESPONSE from the new one (RFC 9000, section 8.2)
//! before it sends anything else there. noq tries for three probe timeouts, then gives up while the client's
//! packets come from that address. An outage right after a migration, the usual case, would silence the server
//! forever.
//!
//! A packet from another address restarts noq's validation. So one of the client's packets is passed on as if it
//! came from the neighbouring address (the *decoy*): noq switches to it, and returns with the next packet, with a
//! new challenge. Nothing is sent to the decoy. The connection id decides whose packet it is, not the address:
//! another connection may share the address, and its handshake must not be diverted.
//!
//! The diversion discards outstanding challenges. So no packet is diverted that may carry a response, nor one right
//! behind it; the next packet always returns; and noq's own limit is delayed until a packet is there to divert. The
//! round-trip time is unknown and responses may be lost, so the retry delays are 1, 2, 1, 4, 1, 2, 1, 8 ... s
//! (Luby, Sinclair and Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993): eventually long enough, and
//! mostly short.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::Time;

/// Shortest retry delay.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest delay is 2^6 s.
const DOUBLED_MAX: u32 = 6;
/// noq gives up an address on another host 3.07 s after the challenge.
const NOQ_TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum size of a datagram with a PATH_RESPONSE (RFC 9000, section 8.2.2).
const RESPONSE_MIN: usize = 1200;

/// Validation state of a server's peer after a migration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathRevalidation {
    unvalidated: Option<UnvalidatedPath>,
    decoy: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug)]
struct UnvalidatedPath {
    addr: SocketAddr,
    /// Time of the last challenge.
    challenged: Time,
    /// Number of retries.
    retries: u32,
    /// Start of the current delay: the last challenge or response.
    since: Time,
    /// Responses received by then.
    responses: u64,
    /// Frames sent before the migration that need a validated address.
    validated_frames: u64,
}

impl UnvalidatedPath {
    fn retry_delay(&self) -> Duration {
        let doubled = self.retries.saturating_add(1).trailing_zeros().min(DOUBLED_MAX);
        RETRY_MIN * (1 << doubled)
    }
}

impl PathRevalidation {
    /// Starts validation of `addr`. The counts are those of the connection so far.
    pub(crate) fn address_changed(&mut self, now: Time, addr: SocketAddr, validated_frames: u64, responses: u64) {
        self.unvalidated =
            Some(UnvalidatedPath { addr, challenged: now, retries: 0, since: now, responses, validated_frames });
        self.decoy = None;
    }

    /// Ends validation if a frame was sent that needs a validated address; returns that address once.
    pub(crate) fn confirm(&mut self, validated_frames: u64) -> Option<SocketAddr> {
        self.unvalidated
            .take_if(|unvalidated| validated_frames > unvalidated.validated_frames)
            .map(|unvalidated| unvalidated.addr)
    }

    /// Whether an address is being validated.
    pub(crate) fn is_pending(&self) -> bool {
        self.unvalidated.is_some()
    }

    /// Whether a QUIC timer due at `at` must wait while the path leads to `path`. It is useless while diverted, and
    /// it may abandon the address when no packet is there to divert.
    pub(crate) fn delays_timer(&self, at: Time, path: Option<SocketAddr>) -> bool {
        let has_tried =
            |unvalidated: UnvalidatedPath| unvalidated.retries > 0 && unvalidated.challenged + NOQ_TIMEOUT <= at;
        self.is_diverted(path) || self.unvalidated.is_some_and(has_tried)
    }

    /// Whether the path leads elsewhere than to the address being validated.
    pub(crate) fn is_diverted(&self, path: Option<SocketAddr>) -> bool {
        self.unvalidated.is_some_and(|unvalidated| path != Some(unvalidated.addr))
    }

    /// Whether to divert a packet of `bytes` from `from`, while the path leads to `path`.
    pub(crate) fn is_due(&self, now: Time, from: SocketAddr, bytes: usize, path: Option<SocketAddr>) -> bool {
        let has_waited = |unvalidated: UnvalidatedPath| {
            unvalidated.addr == from && unvalidated.since + unvalidated.retry_delay() <= now
        };
        bytes < RESPONSE_MIN && !self.is_diverted(path) && self.unvalidated.is_some_and(has_waited)
    }

    /// Starts a diversion; returns the decoy. It is another host: for the same host noq keeps the round-trip time
    /// and gives up after three probe timeouts.
    pub(crate) fn divert(&mut self, from: SocketAddr) -> SocketAddr {
        let ip = match from.ip() {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ 1).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ 1).into()),
        };
        *self.decoy.insert(SocketAddr::new(ip, from.port()))
    }

    /// Records that the path changed from `before` to `path`. A return restarts the delay. Returns whether a
    /// response arrived that may validate the address.
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

    /// Records a packet from `from`: a real address is no decoy.
    pub(crate) fn received_from(&mut self, from: SocketAddr) {
        self.decoy.take_if(|decoy| *decoy == from);
    }

    /// The true address behind a decoy.
    pub(crate) fn true_address(&self, addr: SocketAddr) -> SocketAddr {
        self.unvalidated.filter(|_| self.is_decoy(addr)).map_or(addr, |unvalidated| unvalidated.addr)
    }

    /// Whether `addr` is the decoy: the neighbouring address to which noq's validation was diverted.
    pub(crate) fn is_decoy(&self, addr: SocketAddr) -> bool {
        self.decoy == Some(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unvalidated_address_is_challenged_until_it_answers() {
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
        // QUIC has not switched: the packet was not the newest.
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
    fn packet_right_behind_a_response_is_not_diverted() {
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
