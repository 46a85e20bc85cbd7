//! Round-trip time estimators.

use std::time::Duration;

use remora_base::{Time, WindowedMin};

/// Window of a minimum: paths change.
const MIN_WINDOW_SECS: u64 = 30;

/// RTT of one class of calls: smoothed (RFC 6298, section 2) and minimum.
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

    /// Smoothed RTT and its mean deviation.
    pub(crate) fn smoothed(&self) -> Option<(Duration, Duration)> {
        self.estimator.get()
    }

    /// Minimum of the last 30 to 60 s.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.min.get()
    }

    /// Forgets the smoothed RTT, which had a queue in it, and keeps the minimum.
    pub(crate) fn forget_usual(&mut self) {
        self.estimator = remora_base::RttEstimator::default();
    }

    /// Forgets the minimum, for the path has changed.
    pub(crate) fn forget_min(&mut self) {
        self.min = WindowedMin::default();
    }
}

/// Minimum RTT of messages of any length. It keeps raw measurements, for the estimate of a frame's time may change.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseRtt {
    /// RTT and frames of the best sample of this period and of the last.
    best: [Option<(Duration, f64)>; 2],
    spell_began: Time,
}

impl BaseRtt {
    /// A message of `frames` frames took `rtt`; each frame takes `frame` on the slowest hop.
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

    /// Minimum RTT of a message of `frames` frames.
    pub(crate) fn trip(&self, frames: f64, frame: Duration) -> Option<Duration> {
        let airtime = frame.mul_f64(frames);
        let trip = |(rtt, had): (Duration, f64)| rtt.saturating_sub(frame.mul_f64(had)) + airtime;
        self.best.into_iter().flatten().map(trip).min()
    }

    /// Forgets everything, for the path has changed.
    pub(crate) fn forget(&mut self) {
        self.best = [None; 2];
    }
}

/// Exponentially weighted mean (weight 1/8) and mean deviation of durations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanDuration {
    value: Option<(Duration, Duration)>,
    samples: u32,
}

impl MeanDuration {
    pub(crate) fn sample(&mut self, d: Duration) {
        self.samples = self.samples.saturating_add(1);
        // The first samples have full weight.
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
    fn wrong_frame_time_does_not_spoil_the_base_rtt() {
        let ms = Duration::from_millis;
        let mut base = BaseRtt::default();
        base.sample(Time::ZERO, ms(700), 1.0, ms(400));
        base.sample(Time::ZERO, ms(320), 1.0, ms(400));
        assert_eq!(base.trip(4.0, ms(400)), Some(ms(1600)));
        assert_eq!(base.trip(4.0, ms(12)), Some(ms(356)));
    }

    #[test]
    fn minimum_rtt_expires_after_two_periods() {
        let mut rtt = RttEstimator::default();
        let ms = Duration::from_millis;
        rtt.sample(Time::from_secs(1), ms(5));
        for s in 2..200 {
            rtt.sample(Time::from_secs(s), ms(50));
            assert_eq!(rtt.min() == Some(ms(5)), s < 62, "after {s} s");
        }
    }
}
