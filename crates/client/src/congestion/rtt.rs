//! Round trips as they were measured.

use std::time::Duration;

use remora_base::{Time, WindowedMin};

/// How long a measured minimum is believed: paths change.
const MIN_WINDOW_SECS: u64 = 30;

/// The round trips of one kind of call: smoothed (RFC 6298, section 2) and at their shortest.
#[derive(Clone, Debug, Default)]
pub(crate) struct RttEstimator {
    estimator: remora_base::RttEstimator,
    min: WindowedMin<Duration, MIN_WINDOW_SECS>,
}

impl RttEstimator {
    pub(crate) fn sample(&mut self, now: Time, rtt: Duration) {
        self.estimator.sample(rtt);
        self.min.sample(now, rtt);
    }

    /// MeanDuration and mean deviation.
    pub(crate) fn smoothed(&self) -> Option<(Duration, Duration)> {
        self.estimator.get()
    }

    /// The shortest of the last 30 to 60 s.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.min.get()
    }

    /// Forgets what is usual, but not the minimum: there is less of a queue than there was.
    pub(crate) fn forget_usual(&mut self) {
        self.estimator = remora_base::RttEstimator::default();
    }

    /// Forgets the minimum: what is measured has changed.
    pub(crate) fn forget_min(&mut self) {
        self.min = WindowedMin::default();
    }
}

/// The shortest round trips of messages of various lengths. What is kept is what was measured, for
/// the time that a frame takes on the slowest hop may turn out to be another than it seemed.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseRtt {
    /// Round trip and frames of the best of this spell and of the last.
    best: [Option<(Duration, f64)>; 2],
    spell_began: Time,
}

impl BaseRtt {
    /// A round trip of something of `frames` frames, of which each takes `frame`.
    pub(crate) fn sample(&mut self, now: Time, rtt: Duration, frames: f64, frame: Duration) {
        if now.since(self.spell_began) > Duration::from_secs(MIN_WINDOW_SECS) {
            self.best = [None, self.best[0]];
            self.spell_began = now;
        }
        let rest = |(rtt, frames): (Duration, f64)| rtt.as_secs_f64() - frames * frame.as_secs_f64();
        if self.best[0].is_none_or(|best| rest((rtt, frames)) < rest(best)) {
            self.best[0] = Some((rtt, frames));
        }
    }

    /// The least that something of `frames` frames takes, if each takes `frame`.
    pub(crate) fn trip(&self, frames: f64, frame: Duration) -> Option<Duration> {
        let airtime = frame.mul_f64(frames);
        let trip = |(rtt, had): (Duration, f64)| rtt.saturating_sub(frame.mul_f64(had)) + airtime;
        self.best.into_iter().flatten().map(trip).min()
    }

    /// Forgets all: what is measured has changed.
    pub(crate) fn forget(&mut self) {
        self.best = [None; 2];
    }
}

/// A mean that follows its samples by an eighth of their distance, and the mean deviation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanDuration {
    value: Option<(Duration, Duration)>,
    samples: u32,
}

impl MeanDuration {
    pub(crate) fn sample(&mut self, d: Duration) {
        self.samples = self.samples.saturating_add(1);
        // While there are few samples, each has its full share.
        let n = self.samples.min(8);
        self.value = Some(match self.value {
            None => (d, d / 4),
            Some((mean, dev)) => ((mean * (n - 1) + d) / n, (dev * 7 + mean.abs_diff(d)) / 8),
        });
    }

    pub(crate) fn mean(&self) -> Option<Duration> {
        self.value.map(|v| v.0)
    }

    pub(crate) fn deviation(&self) -> Option<Duration> {
        self.value.map(|v| v.1)
    }

    pub(crate) fn samples(&self) -> u32 {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_guess_of_a_frames_time_does_no_lasting_harm() {
        let ms = Duration::from_millis;
        let mut base = BaseRtt::default();
        base.sample(Time::ZERO, ms(700), 1.0, ms(400));
        base.sample(Time::ZERO, ms(320), 1.0, ms(400));
        assert_eq!(base.trip(4.0, ms(400)), Some(ms(1600)));
        assert_eq!(base.trip(4.0, ms(12)), Some(ms(356)));
    }

    #[test]
    fn a_minimum_is_forgotten_after_two_spells() {
        let mut rtt = RttEstimator::default();
        let ms = Duration::from_millis;
        rtt.sample(Time::from_secs(1), ms(5));
        for s in 2..200 {
            rtt.sample(Time::from_secs(s), ms(50));
            assert_eq!(rtt.min() == Some(ms(5)), s < 62, "after {s} s");
        }
    }
}
