//! Blackouts: how silence is noticed, and how the end of it is.
//!
//! When nothing has come back for about a round trip while something should have, one small
//! packet asks; after three unanswered packets, or another such while, the link is held to be
//! gone. From then on small probes look for it: every 50 ms for the first 20 s, then the more
//! seldom the longer it lasts, down to one a second. A probe costs 70 bytes, and how soon the
//! return is noticed is what an urgent object has to wait for.

use std::time::Duration;

use remora_base::Time;

use super::flight::Flight;

/// Before a round trip is known.
const ROUND_TRIP_FIRST: Duration = Duration::from_millis(1000);
/// How long a receiver may hold back an acknowledgement (RFC 9000, `max_ack_delay`), and some more
/// for its timers.
const ACK_DELAY: Duration = Duration::from_millis(35);
/// The time that packets may take on a slow link, at most.
const AIRTIME_MAX: Duration = Duration::from_secs(1);
/// So many unanswered packets leave no doubt.
const UNHEARD_MAX: u64 = 3;
/// The time between two probes: a share of the blackout so far, within bounds.
const PROBE_SHARE: u32 = 400;
const PROBE_MIN: Duration = Duration::from_millis(50);
const PROBE_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Well,
    /// Asked; gone if nothing is heard until then.
    Asked {
        until: Time,
    },
    /// Nothing was heard since; the next probe leaves then.
    Gone {
        since: Time,
        probe: Time,
    },
}

/// Watches for silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    stage: Stage,
    /// A probe is to be sent.
    wish: bool,
}

/// How long an answer may take; `airtime` is that of a full packet.
fn patience(flight: &Flight, airtime: Duration) -> Duration {
    let trip = flight.smoothed().unwrap_or(ROUND_TRIP_FIRST);
    trip + (flight.deviation() * 4).min(trip) + ACK_DELAY + (airtime * 2).min(AIRTIME_MAX)
}

impl Stall {
    pub(super) fn new() -> Stall {
        Stall { stage: Stage::Well, wish: false }
    }

    /// Since when the link has been gone, if it is.
    pub(super) fn gone_since(&self) -> Option<Time> {
        match self.stage {
            Stage::Gone { since, .. } => Some(since),
            _ => None,
        }
    }

    /// The peer was heard; true if that ends a blackout.
    pub(super) fn heard(&mut self) -> bool {
        let was_gone = self.gone_since().is_some();
        *self = Stall::new();
        was_gone
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self, flight: &Flight, airtime: Duration) -> Option<Time> {
        match self.stage {
            Stage::Well => flight.waiting_since().map(|since| since + patience(flight, airtime)),
            Stage::Asked { until } => Some(until),
            Stage::Gone { probe, .. } => Some(probe),
        }
    }

    /// Looks at the clock; true when a blackout is declared. Full packets are of `mtu` bytes.
    pub(super) fn handle_timeout(&mut self, now: Time, flight: &Flight, airtime: Duration, mtu: u64) -> bool {
        if self.poll_timeout(flight, airtime).is_none_or(|due| now < due) {
            return false;
        }
        self.wish = true;
        let since = flight.heard_at();
        match self.stage {
            Stage::Well if flight.unheard() < UNHEARD_MAX && flight.bytes() < UNHEARD_MAX * mtu => {
                self.stage = Stage::Asked { until: now + patience(flight, airtime) };
                false
            }
            Stage::Well | Stage::Asked { .. } => {
                self.stage = Stage::Gone { since, probe: now + PROBE_MIN };
                true
            }
            Stage::Gone { since, .. } => {
                let pause = (now.since(since) / PROBE_SHARE).clamp(PROBE_MIN, PROBE_MAX);
                self.stage = Stage::Gone { since, probe: now + pause };
                false
            }
        }
    }

    /// Whether a probe is to be sent now; once.
    pub(super) fn take_wish(&mut self) -> bool {
        std::mem::take(&mut self.wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with a round trip of 100 ms, known well.
    fn flight() -> Flight {
        let mut f = Flight::new(Time::ZERO);
        for i in 0..100 {
            f.sent(Time::from_millis(10 * i), 100);
            f.acknowledged(Time::from_millis(10 * i + 100), Time::from_millis(10 * i), 100);
        }
        f
    }

    #[test]
    fn declared_after_a_round_trip_and_a_bit_when_much_is_unanswered() {
        for (packets, latest_ms) in [(5, 150), (1, 300)] {
            let (mut f, mut s, start) = (flight(), Stall::new(), Time::from_secs(2));
            (0..packets).for_each(|_| f.sent(start, 100));
            let mut now = start;
            while s.gone_since().is_none() {
                now = s.poll_timeout(&f, Duration::from_millis(2)).unwrap();
                s.handle_timeout(now, &f, Duration::from_millis(2), 1000);
                assert!(s.take_wish() && !s.take_wish(), "every step asks once");
            }
            let took = now.since(start).as_millis();
            assert!((100..=latest_ms).contains(&took), "{packets} packets: {took} ms");
            assert!(s.heard() && s.gone_since().is_none() && !s.heard());
        }
    }

    #[test]
    fn nothing_under_way_is_no_silence() {
        let s = Stall::new();
        assert_eq!(s.poll_timeout(&flight(), Duration::ZERO), None);
    }

    #[test]
    fn probes_get_rarer() {
        let (mut f, mut s, start) = (flight(), Stall::new(), Time::from_secs(2));
        (0..5).for_each(|_| f.sent(start, 100));
        let mut times = Vec::new();
        while times.last().is_none_or(|t| *t < 1200.0) {
            let now = s.poll_timeout(&f, Duration::ZERO).unwrap();
            s.handle_timeout(now, &f, Duration::ZERO, 1000);
            times.push(now.since(start).as_secs_f64());
        }
        let gap_at = |t: f64| times.windows(2).find(|w| w[0] >= t).map(|w| w[1] - w[0]).unwrap();
        for (at, expected) in [(1.0, 0.05), (19.0, 0.052), (30.0, 0.078), (180.0, 0.453), (1000.0, 1.0)] {
            assert!((gap_at(at) - expected).abs() < 0.01, "at {at} s: {}", gap_at(at));
        }
    }
}
