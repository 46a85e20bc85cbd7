//! Bytes in flight and round-trip times; used by both algorithms.
//!
//! A blackout may leave hundreds of probes lost or queued in a device. They are counted as *stale*, like all bytes
//! in flight when a long blackout begins, and take no room in the window. Packets that crossed a long blackout are
//! no round-trip samples.

use std::time::Duration;

use remora_base::{RttEstimator, Time, WindowedMin};

use super::interface::Stats;

/// Window of the minimum filters: clocks drift and paths change.
pub(super) const MIN_WINDOW_SECS: u64 = 5;

/// Shorter blackouts may be a link that became slower.
const LONG: Duration = Duration::from_secs(2);

/// Begin and end of the last blackout.
#[derive(Clone, Copy, Debug)]
struct BlackoutSpan {
    began: Time,
    /// `None` during the blackout.
    ended: Option<Time>,
}

/// Bytes in flight, round-trip times, and the last answer of the peer.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    bytes: u64,
    /// Bytes sent during a blackout, or before the end of a long one.
    stale: u64,
    blackout: Option<BlackoutSpan>,
    /// End of the last long blackout. Packets sent earlier are stale.
    resumed: Time,
    /// Packets sent since the peer's last answer, and when the first of them was sent.
    unanswered: u64,
    unanswered_since: Option<Time>,
    heard: Time,
    rtt: RttEstimator,
    least: WindowedMin<Duration, MIN_WINDOW_SECS>,
    stats: Stats,
}

impl BlackoutSpan {
    /// Whether a packet sent at `sent` left during the blackout.
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
        // A short blackout may be a link that became slower; then the long round trip is a valid sample.
        let crossed = sent < self.resumed;
        let dark = crossed || self.blackout.is_some_and(|b| b.covers(sent));
        // Only the last blackout is remembered, so a packet may be counted in the other class. The sum must not
        // exceed the bytes in flight.
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
        // Older packets are declared lost first.
        let of_old = self.stale.min(bytes);
        self.stale -= of_old;
        self.bytes = self.bytes.saturating_sub(bytes - of_old);
        self.stats.lost = self.stats.lost.saturating_add(bytes);
        if self.bytes == 0 {
            // No packet can still be answered, so silence means nothing.
            (self.unanswered, self.unanswered_since) = (0, None);
        }
    }

    /// Starts a blackout.
    pub(super) fn blackout_began(&mut self, now: Time) {
        self.blackout = Some(BlackoutSpan { began: now, ended: None });
    }

    /// Ends the blackout; returns whether it was a long one.
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

    /// The peer answered.
    pub(super) fn heard(&mut self, now: Time) {
        self.heard = now;
        self.unanswered = 0;
        // The packets still in flight should be answered from now on.
        self.unanswered_since = (self.bytes > 0).then_some(now);
    }

    /// Discards the round-trip times of the old path.
    pub(super) fn path_changed(&mut self) {
        self.rtt = RttEstimator::default();
        self.least = WindowedMin::default();
    }

    /// Bytes in flight that are not [stale](Self::stale).
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in flight that were sent during the last blackout, or before the end of a long one.
    pub(super) fn stale(&self) -> u64 {
        self.stale
    }

    /// Start of the current wait for an answer.
    pub(super) fn waiting_since(&self) -> Option<Time> {
        self.unanswered_since
    }

    /// Packets sent since the peer's last answer.
    pub(super) fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Time of the peer's last answer.
    pub(super) fn heard_at(&self) -> Time {
        self.heard
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Mean deviation of the round-trip time.
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
