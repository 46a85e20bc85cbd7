//! The time from a frame's departure to its acknowledgement.

use std::time::Duration;

use remora_base::{RttEstimator, Time};

/// Age at which the minimum becomes stale, because paths change.
const SPELL: Duration = Duration::from_secs(20);
/// Shortest search for a new minimum after outstanding frames are acknowledged.
const RENEWAL: Duration = Duration::from_millis(200);
/// Assumed acknowledgement delay before the first sample.
const UNKNOWN: Duration = Duration::from_millis(150);
/// ReplyBudget for timer and device inaccuracy.
const GRAIN: Duration = Duration::from_millis(2);

/// Minimum of recent samples. It becomes stale one to two [`SPELL`]s after its last sample. A sample at or below it
/// renews it; otherwise the lowest sample of a search replaces it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentMin {
    /// The minimum and the time of its last sample.
    least: Option<(Duration, Time)>,
    /// The candidate after the minimum became stale, and the end of the search.
    next: Option<(Duration, Time)>,
    /// The previous sample without own queueing delay, if it exceeded the minimum by more than the slack.
    clear: Option<Duration>,
}

impl RecentMin {
    pub(crate) fn sample(&mut self, now: Time, value: Duration) {
        match (self.least, self.next) {
            (Some((least, seen)), None) if value > least => {
                if now.since(seen) > SPELL {
                    self.next = Some((value, now + value + RENEWAL));
                }
            }
            (Some((least, _)), Some((next, until))) if value > least => {
                let next = next.min(value);
                (self.least, self.next) =
                    if now > until { (Some((next, now)), None) } else { (self.least, Some((next, until))) };
            }
            _ => (self.least, self.next) = (Some((value, now)), None),
        }
    }

    /// Adds a sample without own queueing delay: nothing else was in flight. Two such samples in a row that exceed the
    /// minimum by more than `slack` show a longer path: they replace the minimum, and the result is true.
    pub(crate) fn sample_clear(&mut self, now: Time, value: Duration, slack: Duration) -> bool {
        let is_longer = self.least.is_some_and(|(least, _)| value > least + slack);
        match self.clear.take() {
            _ if !is_longer => self.sample(now, value),
            None => self.clear = Some(value),
            Some(before) => (self.least, self.next) = (Some((value.min(before), now)), None),
        }
        is_longer && self.clear.is_none()
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    /// Whether the minimum is old and a search for a new one is active.
    pub(crate) fn is_stale(&self) -> bool {
        self.next.is_some()
    }
}

/// Acknowledgement delay of one destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckDelay {
    rtt: RttEstimator,
    least: RecentMin,
}

impl AckDelay {
    /// Adds a sample. `clear` is the slack of [`RecentMin::sample_clear`] if no frame of this end can have delayed the
    /// acknowledgement.
    pub(crate) fn sample(&mut self, now: Time, ack_delay: Duration, clear: Option<Duration>) {
        self.rtt.sample(ack_delay);
        match clear {
            None => self.least.sample(now, ack_delay),
            Some(slack) => drop(self.least.sample_clear(now, ack_delay, slack)),
        }
    }

    /// Adds the delay of an acknowledgement that was not requested. The peer may have sent it late, so it is an upper
    /// bound: it counts only where the mean is more than twice as long. The mean is that long after the peer's process
    /// was stopped, and a loaded link may request no acknowledgement for minutes.
    pub(crate) fn bound(&mut self, ack_delay: Duration) {
        if self.rtt.smoothed().is_some_and(|mean| mean > ack_delay * 2) {
            self.rtt.sample(ack_delay);
        }
    }

    /// The smoothed delay.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// The recent minimum.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.least.get()
    }

    /// Acknowledgement timeout after departure. `frame` is the airtime of a full frame: one may be on the medium
    /// before the acknowledgement.
    pub(crate) fn timeout(&self, frame: Duration) -> Duration {
        match self.rtt.get() {
            None => UNKNOWN + frame * 3,
            Some((mean, dev)) => mean + (dev * 4).max(frame) + GRAIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeout_follows_samples() {
        let ms = Duration::from_millis;
        let mut ack_delay = AckDelay::default();
        assert_eq!(ack_delay.timeout(ms(12)), ms(186));
        for i in 0..100 {
            ack_delay.sample(Time::from_millis(i), ms(10), None);
        }
        assert_eq!((ack_delay.smoothed(), ack_delay.min()), (Some(ms(10)), Some(ms(10))));
        assert!(ack_delay.timeout(ms(12)) < ms(25), "{:?}", ack_delay.timeout(ms(12)));
    }

    /// A stopped peer answered two probes after 30 s. Then only unrequested acknowledgements come.
    #[test]
    fn unrequested_acks_end_an_outdated_mean() {
        let (at, ms) = (Time::from_millis, Duration::from_millis);
        let mut ack_delay = AckDelay::default();
        ack_delay.bound(ms(50));
        assert_eq!(ack_delay.smoothed(), None);
        for (now, value) in [(0, 25), (30_000, 30_000), (30_000, 30_000)] {
            ack_delay.sample(at(now), ms(value), None);
        }
        assert!(ack_delay.smoothed() > Some(ms(7000)), "{:?}", ack_delay.smoothed());
        for _ in 0..60 {
            ack_delay.bound(ms(50));
        }
        let mean = ack_delay.smoothed();
        assert!(mean <= Some(ms(100)), "{mean:?}");
        ack_delay.bound(ms(60));
        assert_eq!(ack_delay.smoothed(), mean, "a late acknowledgement");
    }

    #[test]
    fn stale_minimum_is_replaced_after_search() {
        let (at, ms) = (Time::from_millis, Duration::from_millis);
        let mut least = RecentMin::default();
        let steps = [
            (1000, 5, 5, false),
            (20_000, 9, 5, false),
            (21_500, 9, 5, true),
            (21_600, 7, 5, true),
            (21_800, 8, 7, false),
            (30_000, 7, 7, false),
            (49_000, 8, 7, false),
            (51_000, 8, 7, true),
            (51_100, 6, 6, false),
        ];
        for (now, value, expected, stale) in steps {
            least.sample(at(now), ms(value));
            assert_eq!((least.get(), least.is_stale()), (Some(ms(expected)), stale), "at {now}");
        }
    }

    /// The frames in flight wait in a queue of five seconds.
    #[test]
    fn minimum_search_lasts_until_queue_drains() {
        let (at, ms) = (Time::from_millis, Duration::from_millis);
        let mut least = RecentMin::default();
        for (now, value) in [(0, 50), (20_100, 5000), (20_400, 4900), (23_000, 2000), (25_200, 60), (25_400, 70)] {
            least.sample(at(now), ms(value));
        }
        assert_eq!((least.get(), least.is_stale()), (Some(ms(60)), false));
    }
}
