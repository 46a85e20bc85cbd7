//! Measures of a cell with several mobiles: times, fairness, and what the medium was used for.

use std::time::Duration;

use remora_base::Rate;

use super::cell::Measure;
use crate::report::statistics::jain;

/// A run in which every mobile copies a file at the same time.
pub(super) struct CellLoad {
    /// Time of each mobile's copy; infinite if it was cut off.
    pub(super) seconds: Vec<f64>,
    /// Bytes of each file.
    pub(super) bytes: u64,
    pub(super) rate: Rate,
    /// Sum of the airtimes of all frames, lost ones included.
    pub(super) airtime: Duration,
    /// Time limit of the run.
    pub(super) limit: Duration,
}

impl CellLoad {
    /// The measures. A copy that was cut off counts as a rate of 0.
    pub(super) fn values(&self) -> Vec<(Measure, f64)> {
        let slowest = self.seconds.iter().copied().fold(0.0, f64::max);
        let took = slowest.min(self.limit.as_secs_f64()).max(f64::MIN_POSITIVE);
        let done = self.seconds.iter().filter(|s| s.is_finite()).count() as f64;
        let capacity_bytes = self.rate.bits() as f64 / 8.0 * took;
        let rates: Vec<f64> = self.seconds.iter().map(|s| s.recip()).collect();
        let mut values = vec![
            (Measure::Slowest, slowest),
            (Measure::Goodput, done * self.bytes as f64 / capacity_bytes),
            (Measure::Busy, self.airtime.as_secs_f64() / took),
        ];
        values.extend(jain(&rates).map(|fairness| (Measure::Fairness, fairness)));
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: &[f64]) -> Vec<(Measure, f64)> {
        let load = CellLoad {
            seconds: seconds.to_vec(),
            bytes: 1_000_000,
            rate: Rate::mbit(1),
            airtime: Duration::from_secs(15),
            limit: Duration::from_secs(100),
        };
        load.values()
    }

    fn value(values: &[(Measure, f64)], measure: Measure) -> f64 {
        values.iter().find(|(m, _)| *m == measure).unwrap().1
    }

    #[test]
    fn equal_mobiles_are_fair_and_their_bytes_count() {
        let values = of(&[20.0, 20.0]);
        assert_eq!(value(&values, Measure::Slowest), 20.0);
        assert!((value(&values, Measure::Fairness) - 1.0).abs() < 1e-12);
        assert!((value(&values, Measure::Goodput) - 0.8).abs() < 1e-12);
        assert!((value(&values, Measure::Busy) - 0.75).abs() < 1e-12);
    }

    #[test]
    fn mobile_that_was_cut_off_has_no_rate() {
        let values = of(&[20.0, f64::INFINITY]);
        assert_eq!(value(&values, Measure::Slowest), f64::INFINITY);
        assert!((value(&values, Measure::Fairness) - 0.5).abs() < 1e-12);
        assert!((value(&values, Measure::Goodput) - 0.08).abs() < 1e-12);
    }
}
