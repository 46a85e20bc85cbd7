//! Medians with intervals, for runs of which some may have been cut off.
//!
//! A run that was cut off at the limit took longer than any that ended: it counts as infinite,
//! and so is ranked above all others. Order statistics take that as it is; a mean cannot.

use remora_base::Rng;
use serde::Serialize;

/// The error that an interval may have: it misses the median in 5 of 100 experiments at most.
const MISS: f64 = 0.05;

/// How often seeds are drawn for an interval.
const RESAMPLES: usize = 1000;

/// Some runs of the same thing.
///
/// Infinite figures (JSON: null) stand for runs that were cut off.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// How many runs there were.
    pub runs: usize,
    /// How many of them were cut off.
    pub censored: usize,
    /// Half of the runs took less.
    pub median: f64,
    /// The lower of the two runs in the middle, where the upper one was cut off: half-way from here to
    /// where it was is the least that the median can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_middle: Option<f64>,
    /// Lower end of the 95 % interval of the median; `None` when there are too few runs.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The mean of the runs that ended, which is what the papers report: they repeated the
    /// others. `None` if none ended.
    pub mean: Option<f64>,
}

impl Summary {
    /// Sums up values, of which infinite ones were cut off; `None` if there are none, or one is
    /// not a number.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let ended: Vec<f64> = sorted.iter().copied().filter(|v| v.is_finite()).collect();
        let rank = interval_rank(sorted.len());
        Some(Summary {
            runs: sorted.len(),
            censored: sorted.len() - ended.len(),
            median: median(&sorted),
            lower_middle: lower_middle(&sorted),
            low: rank.and_then(|k| sorted.get(k - 1)).copied(),
            high: rank.and_then(|k| sorted.get(sorted.len() - k)).copied(),
            min,
            max,
            mean: (!ended.is_empty()).then(|| ended.iter().sum::<f64>() / ended.len() as f64),
        })
    }
}

/// What a run came to: a figure, or something that it is above.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct AtLeast {
    pub(crate) value: f64,
    pub(crate) is_all: bool,
}

impl Summary {
    /// Sums up runs of which each that was cut off is above something of its own, and what the median is above if it
    /// is not known. It is infinite then, as are the ends of its interval that are not.
    pub(crate) fn of_bounded(runs: &[AtLeast]) -> Option<(Summary, f64)> {
        let least: Vec<f64> = runs.iter().map(|r| r.value).collect();
        let most: Vec<f64> = runs.iter().map(|r| if r.is_all { r.value } else { f64::INFINITY }).collect();
        let (least, most) = (Summary::of(&least)?, Summary::of(&most)?);
        let median = if least.median == most.median { most.median } else { f64::INFINITY };
        Some((Summary { median, lower_middle: None, low: least.low, ..most }, least.median))
    }

    /// What the median is above, if it is infinite, of runs that were cut off at `limit`.
    pub(crate) fn median_above(&self, limit: f64) -> f64 {
        self.lower_middle.map_or(limit, |below| (below + limit) / 2.0)
    }
}

/// The 95 % interval of the percentage by which the mean of the second lies below that of the first, each of the runs
/// that ended; `None` when there are too few seeds, or nothing ends. From resamples of the seeds, which have both
/// with them (the bootstrap's percentiles, Efron 1979). The draws are always the same.
pub(super) fn reduction_interval(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    interval_rank(pairs.len())?;
    let mut rng = Rng::stream(1, "bootstrap");
    let mut resample = || {
        let mut sums = [(0.0, 0u32); 2];
        for _ in pairs {
            let (before, after) = pairs.get(rng.below(pairs.len() as u64) as usize)?;
            for (sum, value) in sums.iter_mut().zip([before, after]).filter(|(_, value)| value.is_finite()) {
                *sum = (sum.0 + value, sum.1 + 1);
            }
        }
        let [before, after] = sums.map(|(sum, ended)| sum / f64::from(ended));
        Some((1.0 - after / before) * 100.0)
    };
    let mut reductions: Vec<f64> = (0..RESAMPLES).filter_map(|_| resample()).filter(|r| r.is_finite()).collect();
    reductions.sort_by(f64::total_cmp);
    let at = |share: f64| reductions.get((share * reductions.len() as f64) as usize).copied();
    Some((at(MISS / 2.0)?, at(1.0 - MISS / 2.0)?))
}

/// See [`Summary::lower_middle`].
fn lower_middle(sorted: &[f64]) -> Option<f64> {
    let below = *sorted.get((sorted.len() / 2).checked_sub(1)?)?;
    (sorted.len().is_multiple_of(2) && below.is_finite() && median(sorted).is_infinite()).then_some(below)
}

/// The middle of sorted values, or half-way between the two middle ones.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(half.wrapping_sub(1)), sorted.get(half)) {
        (0, Some(a), Some(b)) => (a + b) / 2.0,
        (_, _, Some(b)) => *b,
        _ => f64::NAN,
    }
}

/// The largest `k` for which the `k`-th smallest and the `k`-th largest of `n` values enclose
/// the median with 95 % confidence, whatever the distribution: how many of `n` lie below the
/// median is binomial with a half. `None` below 6 values.
fn interval_rank(n: usize) -> Option<usize> {
    let mut below = 0.0; // P(fewer than k of the n lie below the median)
    let mut ln_term = -(n as f64) * std::f64::consts::LN_2; // ln P(exactly k - 1 do)
    let mut rank = None;
    for k in 1..=n / 2 {
        below += ln_term.exp();
        if below > MISS / 2.0 {
            break;
        }
        rank = Some(k);
        ln_term += ((n - k + 1) as f64 / k as f64).ln();
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, or any table of the sign test.
        for (n, rank) in [
            (0, None),
            (1, None),
            (5, None),
            (6, Some(1)),
            (8, Some(1)),
            (9, Some(2)),
            (10, Some(2)),
            (12, Some(3)),
            (15, Some(4)),
            (20, Some(6)),
            (25, Some(8)),
            (50, Some(18)),
            (100, Some(40)),
        ] {
            assert_eq!(interval_rank(n), rank, "{n}");
        }
        // Close to n / 2 - 0.98 sqrt n, and no underflow.
        assert!(interval_rank(10_000).is_some_and(|k| (4900..=4903).contains(&k)));
    }

    #[test]
    fn the_order_of_runs_does_not_matter() {
        let forth: Vec<f64> = (1..=10).map(f64::from).collect();
        let back: Vec<f64> = forth.iter().rev().copied().collect();
        let summary = Summary::of(&forth).unwrap();
        assert_eq!(Some(summary), Summary::of(&back));
        assert_eq!((summary.median, summary.low, summary.high), (5.5, Some(2.0), Some(9.0)));
        assert_eq!((summary.min, summary.max, summary.mean), (1.0, 10.0, Some(5.5)));
        assert_eq!((summary.runs, summary.censored), (10, 0));
    }

    #[test]
    fn runs_that_are_above_different_things_leave_the_median_open_until_it_is_known() {
        let of = |ended: &[f64], cut: &[f64]| {
            let run = |is_all| move |value: &f64| AtLeast { value: *value, is_all };
            let runs: Vec<_> = ended.iter().map(run(true)).chain(cut.iter().map(run(false))).collect();
            let (summary, above) = Summary::of_bounded(&runs).unwrap();
            (summary.median, above)
        };
        let open = f64::INFINITY;
        assert_eq!(of(&[1.0, 20.0], &[3.0]), (open, 3.0), "it may be 3.1");
        assert_eq!(of(&[1.0, 20.0], &[30.0]), (20.0, 20.0));
        assert_eq!(of(&[1.0, 20.0], &[3.0, 3.0]), (open, 3.0));
        assert_eq!(of(&[1.0, 2.0, 3.0], &[2.5]), (open, 2.25));
        assert_eq!(of(&[], &[4.0, 2.0]), (open, 3.0));
    }

    #[test]
    fn runs_that_were_cut_off_rank_above_all() {
        let cut = f64::INFINITY;
        let few = Summary::of(&[cut, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!((few.median, few.high, few.max, few.censored), (4.0, Some(cut), cut, 1));
        assert_eq!(few.mean, Some(3.5));
        let half = Summary::of(&[cut, cut, 1.0, 2.0]).unwrap();
        assert_eq!((half.median, half.low, half.median_above(300.0)), (cut, None, 151.0));
        let most = Summary::of(&[cut, cut, cut, 2.0]).unwrap();
        assert_eq!((most.median, most.median_above(300.0)), (cut, 300.0));
        let all = Summary::of(&[cut, cut]).unwrap();
        assert_eq!((all.mean, all.min), (None, cut));
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[3.0]).map(|s| (s.median, s.low)), Some((3.0, None)));
    }

    #[test]
    fn the_interval_of_a_reduction_holds_it_about_as_often_as_it_says() {
        let mut rng = Rng::stream(2, "reduction");
        // What all of a seed's runs suffer, and half of it, scattered: 50 % less in the mean.
        let mut pair = || {
            let weather = 20.0 + 40.0 * rng.unit();
            (weather, weather / 2.0 + 4.0 * (rng.unit() - 0.5))
        };
        let mut interval = || reduction_interval(&(0..20).map(|_| pair()).collect::<Vec<_>>()).unwrap();
        let intervals: Vec<_> = (0..500).map(|_| interval()).collect();
        let held = intervals.iter().filter(|(low, high)| (*low..=*high).contains(&50.0)).count();
        assert!((450..=495).contains(&held), "{held} of 500");
        // The weather is the same before and after, so it hardly widens the interval.
        assert!(intervals.iter().all(|(low, high)| high - low < 6.0), "{intervals:?}");
    }

    #[test]
    fn a_reduction_of_few_runs_or_of_none_that_ended_has_no_interval() {
        let cut = f64::INFINITY;
        assert_eq!(reduction_interval(&[(2.0, 1.0); 5]), None);
        assert_eq!(reduction_interval(&[(2.0, 1.0); 6]), Some((50.0, 50.0)));
        assert_eq!(reduction_interval(&[(cut, 1.0); 6]), None);
        let most = [(2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (cut, 1.0), (2.0, cut)];
        assert_eq!(reduction_interval(&most), Some((50.0, 50.0)), "what was cut off counts as in the mean: not");
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        let mut rng = remora_base::Rng::stream(1, "interval");
        let trials = 2000;
        let holds = |_: &u32| {
            let values: Vec<f64> = (0..10).map(|_| rng.unit()).collect();
            Summary::of(&values).is_some_and(|s| s.low < Some(0.5) && s.high > Some(0.5))
        };
        let held = (0..trials).filter(holds).count() as f64 / f64::from(trials);
        assert!((0.965..0.99).contains(&held), "{held}: exactly 0.9785 for ten values");
    }
}
