//! Filter of the measured transmission time, in nanoseconds a byte.
//!
//! Timestamp noise is additive in time, so times average without bias, rates do not. Measurements that agree with
//! one another but not with the estimate are a step and replace it: two for a slower link, three for a faster one.
//! Other measurements move the estimate a little.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

/// Measurements kept for the deviation.
const KEPT: usize = 12;
/// Maximum age of a measurement.
const FRESH: Duration = Duration::from_secs(3);
/// Weight of a measurement.
const GAIN: f64 = 1.0 / 8.0;
/// Reduction of the weight by the relative deviation.
const NOISE_WEIGHT: f64 = 4.0;
/// Minimum size of a step, as a share of the estimate.
const STEP_MIN: f64 = 0.05;
/// Minimum size of a step, in standard deviations.
const STEP_DEVIATIONS: f64 = 2.0;
/// Maximum threshold of a step to a faster link, as a share of the estimate.
const STEP_MAX: f64 = 0.5;
/// Median difference of neighbouring samples of a normal distribution, in standard deviations.
const MEDIAN_DIFFERENCE: f64 = 0.954;
/// Minimum number of gaps in a window; divides the error of a single one.
const WINDOW_GAPS: f64 = 8.0;
/// Range of measurements, in nanoseconds a byte: 10 GB/s to 1 B/s.
const RANGE: (f64, f64) = (0.1, 1e9);

/// Estimated transmission time of a byte.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteTime {
    value: Option<f64>,
    recent: VecDeque<(Time, f64)>,
    measured: Option<Time>,
}

impl ByteTime {
    /// The estimate, in nanoseconds.
    pub(super) fn get(&self) -> Option<f64> {
        self.value
    }

    /// Time of the last confirmation.
    pub(super) fn measured(&self) -> Option<Time> {
        self.measured
    }

    /// Keeps the estimate, but lets the next measurement replace it.
    pub(super) fn forget_samples(&mut self) {
        self.recent.clear();
    }

    /// Whether the last measurement showed a faster link, by more than noise.
    pub(super) fn is_contradicted(&self) -> bool {
        match (self.value, self.recent.back()) {
            (Some(value), Some((_, last))) => *last < value - self.step(value),
            _ => false,
        }
    }

    /// Records a measurement.
    pub(super) fn sample(&mut self, now: Time, z: f64) {
        if z.is_nan() {
            return;
        }
        let z = z.clamp(RANGE.0, RANGE.1);
        self.recent.retain(|(at, _)| now.since(*at) <= FRESH);
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((now, z));
        self.measured = Some(now);
        self.value = Some(match self.value {
            Some(old) if self.recent.len() > 1 => self.follow(old, z),
            _ => z,
        });
    }

    /// Records an upper bound of the transmission time.
    pub(super) fn sample_upper_bound(&mut self, now: Time, z: f64) {
        // Without a measurement the bound may be the sender's rate.
        let Some(old) = self.value else { return };
        let z = (z * (1.0 + 2.0 * self.deviation() / old / WINDOW_GAPS)).clamp(RANGE.0, RANGE.1);
        if z < old {
            self.value = Some(z);
            self.measured = Some(now);
        }
    }

    /// Minimum difference from the estimate `old` that makes a step.
    fn step(&self, old: f64) -> f64 {
        (STEP_MIN * old).max(STEP_DEVIATIONS * self.deviation())
    }

    fn follow(&self, old: f64, z: f64) -> f64 {
        let (deviation, step) = (self.deviation(), self.step(old));
        let mut last: [f64; 3] = [f64::NAN; 3];
        for (slot, (_, z)) in last.iter_mut().zip(self.recent.iter().rev()) {
            *slot = *z;
        }
        let [a, b, c] = last;
        if a.min(b) > old + step {
            return (a + b) / 2.0;
        }
        // False with fewer than three: comparisons with NaN fail.
        if a < old && b < old && c < old {
            let median = a.max(b).min(a.min(b).max(c));
            if median < old - step.min(STEP_MAX * old) {
                return median;
            }
        }
        old + (z - old).clamp(-step, step) * GAIN / (1.0 + NOISE_WEIGHT * deviation / old)
    }

    /// Standard deviation of a measurement. A step makes only one difference large, so it does not count as noise.
    fn deviation(&self) -> f64 {
        let mut differences: Vec<f64> =
            self.recent.iter().zip(self.recent.iter().skip(1)).map(|((_, a), (_, b))| (a - b).abs()).collect();
        if differences.len() < 4 {
            return 0.0;
        }
        differences.sort_by(f64::total_cmp);
        differences.get(differences.len() / 2).map_or(0.0, |median| median / MEDIAN_DIFFERENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: &[f64]) -> f64 {
        let mut s = ByteTime::default();
        for (i, z) in samples.iter().enumerate() {
            s.sample(Time::from_millis(20 * i as u64), *z);
        }
        s.get().unwrap()
    }

    #[test]
    fn a_step_is_followed_and_an_outlier_is_not() {
        let steady = [20.0; 8];
        let with = |more: &[f64]| after(&[&steady[..], more].concat());
        assert_eq!(with(&[]), 20.0);
        assert_eq!(with(&[100.0, 100.0]), 100.0, "two slow ones are a fall");
        assert!(with(&[100.0]) < 20.2, "one is not");
        assert_eq!(with(&[7.0, 7.0, 7.0]), 7.0, "three fast ones are a rise");
        assert!(with(&[7.0, 7.0]) > 19.7, "two are not");
        assert!(with(&[7.0, 7.0, 21.0, 7.0]) > 19.0);
    }

    #[test]
    fn noise_is_averaged_out() {
        // 10 +- 4, alternating, in no order.
        let noisy: Vec<f64> = (0..200).map(|i| 10.0 + [4.0, -3.0, 1.0, -4.0, 2.0, 3.0, -3.0][i % 7]).collect();
        let s = after(&noisy);
        assert!((9.0..11.0).contains(&s), "{s}");
    }

    #[test]
    fn bounds_only_raise_the_rate_and_doubt_lets_one_replace_it() {
        let mut s = ByteTime::default();
        let at = Time::from_millis;
        s.sample_upper_bound(at(0), 50.0);
        assert_eq!((s.get(), s.measured()), (None, None), "the sender may be the slower one");
        s.sample(at(1), 60.0);
        s.sample_upper_bound(at(1), 50.0);
        s.sample_upper_bound(at(2), 80.0);
        assert_eq!((s.get(), s.measured()), (Some(50.0), Some(at(1))));
        for i in 3..8 {
            s.sample(at(i), 40.0);
        }
        s.forget_samples();
        assert!(s.get().is_some());
        s.sample(at(9), 200.0);
        assert_eq!(s.get(), Some(200.0));
        s.sample(at(9), f64::NAN);
        assert_eq!(s.get(), Some(200.0));
        s.sample(at(9), f64::INFINITY);
        assert!(s.get().is_some_and(f64::is_finite));
    }
}
