//! What is under way, and how long it takes to come back: shared by both estimators.
//!
//! The probes of a blackout may be hundreds: lost, or standing in the device's queue all the while.
//! They are counted apart, as is all that was under way when a long blackout began, and take no
//! room from what is sent after it; and what crossed a long blackout tells nothing of the round
//! trip.

use std::time::Duration;

use remora_base::{RttEstimator, Time, WindowedMin};

use super::interface::Stats;

/// Window of minima: clocks drift and paths change.
pub(super) const MIN_WINDOW_SECS: u64 = 5;

/// A blackout longer than this has been one.
const LONG: Duration = Duration::from_secs(2);

/// The last blackout.
#[derive(Clone, Copy, Debug)]
struct BlackoutSpan {
    began: Time,
    /// `None` while it lasts.
    ended: Option<Time>,
}

/// Bytes under way, round trips, and the last sign of life.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    bytes: u64,
    /// Those sent during a blackout or before the end of a long one, apart from them.
    stale: u64,
    blackout: Option<BlackoutSpan>,
    /// When the last long blackout ended: what left before is stale.
    resumed: Time,
    /// Packets sent since the peer was last heard, and when the first of them left.
    unanswered: u64,
    unanswered_since: Option<Time>,
    heard: Time,
    rtt: RttEstimator,
    least: WindowedMin<Duration, MIN_WINDOW_SECS>,
    stats: Stats,
}

impl BlackoutSpan {
    /// Whether what was sent then left during it.
    fn covers(self, sent: Time) -> bool {
        sent >= self.began && self.ended.is_none_or(|ended| sent < ended)
    }
}

impl InFlight {
    pub(super) fn new(now: Time) -> InFlight {
        InFlight {
            bytes: 0,
            stale: 0,
            blackout: None,
            resumed: Time::ZERO,
            unanswered: 0,
            unanswered_since: None,
            heard: now,
            rtt: RttEstimator::default(),
            least: WindowedMin::default(),
            stats: Stats::default(),
        }
    }

    pub(super) fn sent(&mut self, now: Time, bytes: u64) {
        let is_dark = self.blackout.is_some_and(|b| b.ended.is_none());
        let kind = if is_dark { &mut self.stale } else { &mut self.bytes };
        *kind = kind.saturating_add(bytes);
        self.stats.sent = self.stats.sent.saturating_add(bytes);
        self.unanswered = self.unanswered.saturating_add(1);
        self.unanswered_since.get_or_insert(now);
    }

    pub(super) fn acknowledged(&mut self, now: Time, sent: Time, bytes: u64) {
        self.stats.acknowledged = self.stats.acknowledged.saturating_add(bytes);
        // A short blackout may be none, but a link that became much slower, and then the long round
        // trip is the new one.
        let crossed = sent < self.resumed;
        let dark = crossed || self.blackout.is_some_and(|b| b.covers(sent));
        // Of several blackouts only the last is remembered: what one kind lacks was counted as
        // the other, and the two together must not exceed what is under way.
        let (first, then) = if dark { (&mut self.stale, &mut self.bytes) } else { (&mut self.bytes, &mut self.stale) };
        let of_first = bytes.min(*first);
        *first -= of_first;
        *then = then.saturating_sub(bytes - of_first);
        if crossed {
            return self.heard(now);
        }
        let trip = now.since(sent);
        self.rtt.sample(trip);
        self.least.sample(now, trip);
        self.heard(now);
    }

    pub(super) fn lost(&mut self, bytes: u64) {
        // The older ones are found to be lost first.
        let of_old = self.stale.min(bytes);
        self.stale -= of_old;
        self.bytes = self.bytes.saturating_sub(bytes - of_old);
        self.stats.lost = self.stats.lost.saturating_add(bytes);
        if self.bytes == 0 {
            // Nothing that was sent can still be answered: silence says nothing any more.
            (self.unanswered, self.unanswered_since) = (0, None);
        }
    }

    /// A blackout has been declared.
    pub(super) fn blackout_began(&mut self, now: Time) {
        self.blackout = Some(BlackoutSpan { began: now, ended: None });
    }

    /// The blackout is over; whether it was a long one.
    pub(super) fn resume(&mut self, now: Time) -> bool {
        let Some(blackout) = &mut self.blackout else { return false };
        blackout.ended = Some(now);
        let is_long = now.since(blackout.began) > LONG;
        if is_long {
            self.resumed = now;
            self.stale = self.stale.saturating_add(std::mem::take(&mut self.bytes));
        }
        is_long
    }

    /// The peer gave a sign of life.
    pub(super) fn heard(&mut self, now: Time) {
        self.heard = now;
        self.unanswered = 0;
        // What is still under way should be answered from now on.
        self.unanswered_since = (self.bytes > 0).then_some(now);
    }

    /// Forgets the round trips: the path is another one.
    pub(super) fn path_changed(&mut self) {
        self.rtt = RttEstimator::default();
        self.least = WindowedMin::default();
    }

    /// Bytes under way, but for the [stale](Self::stale) ones.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes sent during the last blackout of which nothing has been heard yet.
    pub(super) fn stale(&self) -> u64 {
        self.stale
    }

    /// Since when an answer has been awaited, if one is.
    pub(super) fn waiting_since(&self) -> Option<Time> {
        self.unanswered_since
    }

    /// Packets sent since the peer was last heard.
    pub(super) fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// When the peer was last heard.
    pub(super) fn heard_at(&self) -> Time {
        self.heard
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Mean deviation of the round trip.
    pub(super) fn deviation(&self) -> Duration {
        self.rtt.variation()
    }

    pub(super) fn round_trip_min(&self) -> Option<Duration> {
        self.least.get()
    }

    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }

    pub(super) fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_only_while_something_can_be_answered() {
        let at = Time::from_millis;
        let mut f = InFlight::new(at(0));
        assert_eq!(f.waiting_since(), None);
        f.sent(at(1), 100);
        f.sent(at(2), 100);
        assert_eq!((f.waiting_since(), f.unanswered(), f.bytes()), (Some(at(1)), 2, 200));
        f.acknowledged(at(9), at(1), 100);
        assert_eq!((f.waiting_since(), f.unanswered(), f.smoothed()), (Some(at(9)), 0, Some(Duration::from_millis(8))));
        f.lost(100);
        assert_eq!((f.waiting_since(), f.bytes()), (None, 0));
        f.lost(100);
        assert_eq!(f.bytes(), 0);
    }

    #[test]
    fn probes_of_a_blackout_take_no_room_and_are_no_round_trips() {
        for (out_s, is_long) in [(1, false), (30, true)] {
            let mut f = InFlight::new(Time::ZERO);
            f.sent(Time::ZERO, 1000);
            f.acknowledged(Time::from_millis(50), Time::ZERO, 1000);
            let (out, back) = (Time::from_secs(1), Time::from_secs(1 + out_s));
            f.sent(Time::from_millis(900), 1000);
            f.blackout_began(out);
            (0..100).for_each(|i| f.sent(out + Duration::from_millis(i), 70));
            assert_eq!((f.bytes(), f.stale()), (1000, 7000));
            assert_eq!(f.resume(back), is_long);
            f.sent(back, 500);
            f.acknowledged(back, Time::from_millis(900), 1000);
            f.acknowledged(back, out, 70);
            assert_eq!((f.bytes(), f.stale()), (500, 6930));
            assert_eq!(f.smoothed() == Some(Duration::from_millis(50)), is_long);
            f.lost(6930);
            assert_eq!((f.bytes(), f.stale()), (500, 0));
        }
    }
}
