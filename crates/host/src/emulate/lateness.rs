//! How late things happened: counts by the microsecond, so that a run may last for days.

use std::time::Duration;

/// Lateness beyond this shares the last count; its maximum is still exact.
const SCALE_US: usize = 20_000;

/// What was late by how much.
#[derive(Clone, Debug)]
pub(super) struct Latenesses {
    by_us: Vec<u64>,
    count: u64,
    max: Duration,
}

/// A summary of how late deliveries were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lateness {
    /// How many deliveries there were.
    pub count: u64,
    /// Half of them were no later (rounded up to a microsecond, at most 20 ms).
    pub p50: Duration,
    /// 99 of 100 were no later (likewise).
    pub p99: Duration,
    /// The latest.
    pub max: Duration,
}

impl Latenesses {
    pub(super) fn new() -> Latenesses {
        Latenesses { by_us: vec![0; SCALE_US + 1], count: 0, max: Duration::ZERO }
    }

    pub(super) fn add(&mut self, late: Duration) {
        let us = usize::try_from(late.as_nanos().div_ceil(1000)).unwrap_or(SCALE_US).min(SCALE_US);
        if let Some(count) = self.by_us.get_mut(us) {
            *count += 1;
        }
        self.count += 1;
        self.max = self.max.max(late);
    }

    pub(super) fn summary(&self) -> Lateness {
        Lateness { count: self.count, p50: self.quantile(50), p99: self.quantile(99), max: self.max }
    }

    /// The least lateness that `percent` of all do not exceed.
    fn quantile(&self, percent: u64) -> Duration {
        let wanted = u128::from(self.count) * u128::from(percent);
        let mut seen = 0u128;
        for (us, n) in (0u64..).zip(&self.by_us) {
            seen += u128::from(*n);
            if seen * 100 >= wanted {
                return Duration::from_micros(us).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut all = Latenesses::new();
        assert_eq!(all.summary(), Lateness::default());
        for us in (1..=200).rev() {
            all.add(Duration::from_micros(us));
        }
        let us = Duration::from_micros;
        assert_eq!(all.summary(), Lateness { count: 200, p50: us(100), p99: us(198), max: us(200) });
    }

    #[test]
    fn the_maximum_is_exact_however_large() {
        let mut all = Latenesses::new();
        all.add(Duration::from_nanos(1_500_000_001));
        assert_eq!(all.summary().max, Duration::from_nanos(1_500_000_001));
        assert_eq!(all.summary().p50, Duration::from_millis(20));
    }
}
