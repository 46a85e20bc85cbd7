//! Packet packet_pairs that find out the rate of an idle link for those who wait for a better one.
//!
//! Without them a rate once low would refuse every object that could show that it is no longer (ATP
//! 02, Figure 3, sends one when the estimate is five seconds old, and the sooner the more objects are
//! refused). They are frequent for a while after an object was refused, and rare for those who only
//! wait. A pair that shows a faster link is followed at once by a train of four packets: one
//! measurement may be wrong, three that agree are believed.

use std::time::Duration;

use remora_base::Time;

use super::interface::{Demand, Probe};

/// For so long after a refusal packet_pairs are frequent.
const EAGER: Duration = Duration::from_secs(30);
/// How often: no more than this share of the rate, no sooner than this after the last measurement.
const SOON: Pace = Pace { share: 4, least: Duration::from_millis(250) };
/// A pair that takes longer is rare: what becomes urgent would have to wait for it.
const SHORT: Duration = Duration::from_millis(100);
const RARE: Pace = Pace { share: 20, least: Duration::from_secs(1) };
const PAUSE_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
struct Pace {
    /// One in so many of the packet_pairs that the link could carry.
    share: u32,
    least: Duration,
}

impl Pace {
    fn pause(self, airtime: Duration) -> Duration {
        airtime.saturating_mul(self.share).clamp(self.least, PAUSE_MAX)
    }
}

/// What is known of the link.
#[derive(Clone, Copy)]
pub(super) struct LinkEstimate {
    /// When its rate was last measured.
    pub(super) measured: Time,
    /// The last measurement was of a faster link than the estimate.
    pub(super) contradicted: bool,
    /// The time that a pair takes.
    pub(super) airtime: Duration,
}

/// When a pair is due, and how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketPairs {
    /// Whether anybody waits.
    waiting: bool,
    eager_until: Time,
    /// When one was last wished for.
    last: Time,
    probe_pending: Option<Probe>,
    /// Whether what the last one shows is still to be looked at. Once: where measurements scatter, the
    /// pauses hold all the same.
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

    /// Something else is about to measure the link: the next pair is due a pause later.
    pub(super) fn postpone(&mut self, now: Time) {
        (self.last, self.probe_pending, self.open) = (now, None, false);
    }

    /// When the next pair is due, if anybody wants to know.
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

    /// Whether the last pair showed a faster link and nobody has asked again.
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

    /// A link where a pair takes `airtime` milliseconds.
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
        // What is asked for at 0, when the link was measured, the time of a pair: when the next is due.
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
        // The answers come and do not agree: no more than the pause allows.
        assert_eq!(probe_pending(&mut p, 350, faster(350)), None);
        assert_eq!(p.due(faster(350)), Some(at(600)));
        assert_eq!(probe_pending(&mut p, 600, faster(350)), Some(Probe::Pair));
        assert_eq!(probe_pending(&mut p, 650, faster(650)), Some(Probe::Train));
    }
}
