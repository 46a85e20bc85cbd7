//! Packet pairs that measure the rate of an idle link.
//!
//! Without them a low estimate would reject every object that could show a higher rate. (ATP 02, Figure 3, sends a
//! pair when the estimate is 5 s old, earlier the more objects were rejected.) Pairs are frequent for 30 s after a
//! rejection and rare while objects only wait. If a pair shows a faster link, a train of four packets follows at
//! once: one measurement may be wrong, three that agree are used.

use std::time::Duration;

use remora_base::Time;

use super::interface::{Demand, Probe};

/// Time after a rejection during which pairs are frequent.
const EAGER: Duration = Duration::from_secs(30);
/// Interval of frequent pairs: at most a quarter of the rate, at least 250 ms.
const SOON: Pace = Pace { share: 4, least: Duration::from_millis(250) };
/// Longest transmission time of a frequent pair. Longer ones delay urgent objects, so they are rare.
const SHORT: Duration = Duration::from_millis(100);
const RARE: Pace = Pace { share: 20, least: Duration::from_secs(1) };
const PAUSE_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
struct Pace {
    /// Divisor of the rate that pairs may use.
    share: u32,
    least: Duration,
}

impl Pace {
    fn pause(self, airtime: Duration) -> Duration {
        airtime.saturating_mul(self.share).clamp(self.least, PAUSE_MAX)
    }
}

/// State of the rate estimate.
#[derive(Clone, Copy)]
pub(super) struct LinkEstimate {
    /// Time of the last measurement.
    pub(super) measured: Time,
    /// The last measurement showed a faster link than the estimate.
    pub(super) contradicted: bool,
    /// Transmission time of a pair.
    pub(super) airtime: Duration,
}

/// Schedule of packet pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketPairs {
    /// Objects are waiting.
    waiting: bool,
    eager_until: Time,
    /// When the last pair was due.
    last: Time,
    probe_pending: Option<Probe>,
    /// The result of the last pair is not evaluated yet. Cleared by a train, so that scattered measurements cause
    /// no further trains.
    open: bool,
}

impl PacketPairs {
    pub(super) fn new(now: Time) -> PacketPairs {
        PacketPairs { waiting: false, eager_until: now, last: now, probe_pending: None, open: false }
    }

    pub(super) fn demand(&mut self, now: Time, demand: Demand) {
        if demand.rejected > 0 {
            self.eager_until = now + EAGER;
        }
        self.waiting = demand.waiting;
    }

    /// Restarts the interval: other packets are about to measure the link.
    pub(super) fn postpone(&mut self, now: Time) {
        (self.last, self.probe_pending, self.open) = (now, None, false);
    }

    /// When the next pair is due; `None` if no estimate is needed.
    pub(super) fn due(&self, link: LinkEstimate) -> Option<Time> {
        let from = self.last.max(link.measured);
        if !self.waiting && self.eager_until <= from {
            return None;
        }
        if self.questions(link) {
            return Some(link.measured);
        }
        let pace = if link.airtime <= SHORT { SOON } else { RARE };
        let soon = from + pace.pause(link.airtime);
        if soon <= self.eager_until {
            return Some(soon);
        }
        self.waiting.then(|| from + RARE.pause(link.airtime))
    }

    pub(super) fn handle_timeout(&mut self, now: Time, link: LinkEstimate) {
        if self.due(link).is_some_and(|due| due <= now) {
            let again = self.questions(link);
            self.probe_pending = Some(if again { Probe::Train } else { Probe::Pair });
            (self.last, self.open) = (now, !again);
        }
    }

    pub(super) fn take_probe(&mut self) -> Option<Probe> {
        self.probe_pending.take()
    }

    /// Whether the last pair showed a faster link and no train followed.
    fn questions(&self, link: LinkEstimate) -> bool {
        self.open && link.contradicted && link.measured > self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// A link on which a pair takes `airtime` milliseconds.
    fn known(measured: u64, airtime: u64) -> LinkEstimate {
        LinkEstimate { measured: at(measured), contradicted: false, airtime: Duration::from_millis(airtime) }
    }

    fn probe_pending(packet_pairs: &mut PacketPairs, now: u64, link: LinkEstimate) -> Option<Probe> {
        packet_pairs.handle_timeout(at(now), link);
        packet_pairs.take_probe()
    }

    #[test]
    fn pairs_are_frequent_after_a_refusal_and_rare_for_who_waits() {
        let (waits, refused) = (Demand { waiting: true, rejected: 0 }, Demand { waiting: false, rejected: 1 });
        // Demand at 0, time of the measurement, transmission time of a pair; expected due time.
        let cases = [
            (Demand::default(), 100, 20, None),
            (refused, 100, 20, Some(350)),
            (refused, 100, 80, Some(420)),
            (refused, 100, 200, Some(4_100)),
            (refused, 29_900, 20, None),
            (waits, 100, 20, Some(1_100)),
            (waits, 100, 200, Some(4_100)),
            (waits, 100, 60_000, Some(10_100)),
            (Demand { rejected: 1, ..waits }, 100, 20, Some(350)),
            (Demand { rejected: 1, ..waits }, 29_900, 20, Some(30_900)),
        ];
        for (demand, measured, airtime, due) in cases {
            let mut p = PacketPairs::new(at(0));
            p.demand(at(0), demand);
            assert_eq!(p.due(known(measured, airtime)), due.map(at), "{demand:?}, {measured}, {airtime}");
        }
    }

    #[test]
    fn a_faster_link_is_asked_about_again_but_once() {
        let mut p = PacketPairs::new(at(0));
        p.demand(at(0), Demand { waiting: false, rejected: 1 });
        assert_eq!(probe_pending(&mut p, 250, known(0, 20)), Some(Probe::Pair));
        let faster = |measured| LinkEstimate { contradicted: true, ..known(measured, 20) };
        assert_eq!(probe_pending(&mut p, 300, faster(300)), Some(Probe::Train));
        // The measurements do not agree: the interval applies.
        assert_eq!(probe_pending(&mut p, 350, faster(350)), None);
        assert_eq!(p.due(faster(350)), Some(at(600)));
        assert_eq!(probe_pending(&mut p, 600, faster(350)), Some(Probe::Pair));
        assert_eq!(probe_pending(&mut p, 650, faster(650)), Some(Probe::Train));
    }
}
