//! How long an answer takes after the frame that asked for it has left.

use std::time::Duration;

use remora_base::{RttEstimator, Time};

/// How long a shortest value is believed: paths change.
const SPELL: Duration = Duration::from_secs(20);
/// How long a new one is looked for then, once what was under way has been answered.
const RENEWAL: Duration = Duration::from_millis(200);
/// Assumed before anything was measured.
const UNKNOWN: Duration = Duration::from_millis(150);
/// Timers and devices are no more exact than this.
const GRAIN: Duration = Duration::from_millis(2);

/// The shortest of late. Between one and two spells after it was seen it is stale: seen once
/// more, or replaced by the shortest since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentMin {
    /// The shortest, and when it was seen.
    least: Option<(Duration, Time)>,
    /// The shortest since the value above became stale, and how long it is looked for.
    next: Option<(Duration, Time)>,
    /// The last one that nothing of ours can have delayed, if it was much longer.
    clear: Option<Duration>,
}

impl RecentMin {
    /// Takes a value.
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

    /// Takes a value that nothing of ours can have delayed, for nothing else was under way. Two of
    /// them in a row that exceed the shortest by more than `slack` tell that the path has become
    /// longer; true then.
    pub(crate) fn sample_clear(&mut self, now: Time, value: Duration, slack: Duration) -> bool {
        let is_longer = self.least.is_some_and(|(least, _)| value > least + slack);
        match self.clear.take() {
            _ if !is_longer => self.sample(now, value),
            None => self.clear = Some(value),
            Some(before) => (self.least, self.next) = (Some((value.min(before), now)), None),
        }
        is_longer && self.clear.is_none()
    }

    /// The shortest.
    pub(crate) fn get(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    /// Whether it was seen so long ago that it should be looked for.
    pub(crate) fn is_stale(&self) -> bool {
        self.next.is_some()
    }
}

/// The answers of one destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lag {
    rtt: RttEstimator,
    least: RecentMin,
}

impl Lag {
    /// Takes a measurement; `clear` is the time by which it may exceed the shortest if nothing of
    /// ours can have delayed it.
    pub(crate) fn sample(&mut self, now: Time, lag: Duration, clear: Option<Duration>) {
        self.rtt.sample(lag);
        match clear {
            None => self.least.sample(now, lag),
            Some(slack) => drop(self.least.sample_clear(now, lag, slack)),
        }
    }

    /// The mean.
    pub(crate) fn mean(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// The shortest of late.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.least.get()
    }

    /// When an answer is missed. It may always have to wait for a frame that is in the air,
    /// which takes `frame`.
    pub(crate) fn patience(&self, frame: Duration) -> Duration {
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
    fn patience_follows_what_was_measured() {
        let ms = Duration::from_millis;
        let mut lag = Lag::default();
        assert_eq!(lag.patience(ms(12)), ms(186));
        for i in 0..100 {
            lag.sample(Time::from_millis(i), ms(10), None);
        }
        assert_eq!((lag.mean(), lag.least()), (Some(ms(10)), Some(ms(10))));
        assert!(lag.patience(ms(12)) < ms(25), "{:?}", lag.patience(ms(12)));
    }

    #[test]
    fn an_old_minimum_is_looked_for_and_then_forgotten() {
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

    /// What was under way stood in a queue of five seconds.
    #[test]
    fn a_new_minimum_is_looked_for_until_a_queue_has_drained() {
        let (at, ms) = (Time::from_millis, Duration::from_millis);
        let mut least = RecentMin::default();
        for (now, value) in [(0, 50), (20_100, 5000), (20_400, 4900), (23_000, 2000), (25_200, 60), (25_400, 70)] {
            least.sample(at(now), ms(value));
        }
        assert_eq!((least.get(), least.is_stale()), (Some(ms(60)), false));
    }
}
