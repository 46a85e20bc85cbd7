//! Statistics over runs: medians, confidence intervals and percentiles.
//!
//! A run that was stopped at its time limit (*cut off*) took longer than any that ended: it is infinite, and ranks
//! above all others. Medians, percentiles and the interval of a median are order statistics, which allow that; a mean does
//! not, and is taken over the runs that ended. The papers report means, so means have intervals of their own:
//! Student's for one mean, the bootstrap's for the reduction from one mean to another.

use remora_base::Rng;
use serde::Serialize;

/// Probability that a 95 % interval misses.
const MISS: f64 = 0.05;
const RESAMPLES: usize = 1000;

/// Summary of repeated runs. Infinite values (JSON: null) are runs that were cut off.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    pub runs: usize,
    pub censored: usize,
    pub median: f64,
    /// The lower of the two middle runs where the upper one was cut off: the median is at least half-way from here to
    /// the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_middle: Option<f64>,
    /// Lower end of the median's 95 % interval; `None` below six runs.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub min: f64,
    pub max: f64,
    /// Mean of the runs that ended.
    pub mean: Option<f64>,
}

impl Summary {
    /// Summarises `values`; `None` if there are none or one is not a number.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let sorted = sorted(values);
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
            mean: mean(&ended),
        })
    }

    /// Summarises runs of which some were stopped at a time limit. Each of these has its own lower bound. A median that
    /// is not known is infinite, and so are the ends of its interval.
    pub(crate) fn of_bounded(runs: &[Bounded]) -> Option<BoundedSummary> {
        let least: Vec<f64> = runs.iter().map(|r| r.value).collect();
        let most: Vec<f64> = runs.iter().map(|r| if r.is_exact { r.value } else { f64::INFINITY }).collect();
        let (least, most) = (Summary::of(&least)?, Summary::of(&most)?);
        let median = if least.median == most.median { most.median } else { f64::INFINITY };
        let summary = Summary { median, lower_middle: None, low: least.low, ..most };
        Some(BoundedSummary { summary, median_above: least.median })
    }

    /// Lower bound of an infinite median of runs that were cut off at `limit`.
    pub(crate) fn median_above(&self, limit: f64) -> f64 {
        self.lower_middle.map_or(limit, |below| (below + limit) / 2.0)
    }

    /// Both ends of the median's interval.
    pub(crate) fn interval(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }
}

/// A run's value, or the lower bound of the value of a run that was stopped at its time limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bounded {
    pub(crate) value: f64,
    pub(crate) is_exact: bool,
}

/// Summary of runs of which some have only a lower bound, with the lower bound of their median.
pub(crate) struct BoundedSummary {
    pub(crate) summary: Summary,
    pub(crate) median_above: f64,
}

/// A value before and after a change, with the same seed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Paired {
    pub(crate) before: f64,
    pub(crate) after: f64,
}

/// The 95 % interval of the percentage by which the mean after a change lies below the mean before it: percentiles of
/// resampled pairs (Efron 1979), always with the same draws. `None` below six pairs, or if nothing ends.
pub(crate) fn reduction_interval(pairs: &[Paired]) -> Option<(f64, f64)> {
    interval_rank(pairs.len())?;
    let mut rng = Rng::stream(1, "bootstrap");
    let mut resample = || {
        let mut sums = [(0.0, 0u32); 2];
        for _ in pairs {
            let Paired { before, after } = pairs.get(rng.below(pairs.len() as u64) as usize)?;
            for (sum, value) in sums.iter_mut().zip([before, after]).filter(|(_, value)| value.is_finite()) {
                *sum = (sum.0 + value, sum.1 + 1);
            }
        }
        let [before, after] = sums.map(|(sum, ended)| sum / f64::from(ended));
        Some((1.0 - after / before) * 100.0)
    };
    let reductions: Vec<f64> = (0..RESAMPLES).filter_map(|_| resample()).filter(|r| r.is_finite()).collect();
    let reductions = sorted(&reductions);
    let at = |share: f64| reductions.get((share * reductions.len() as f64) as usize).copied();
    Some((at(MISS / 2.0)?, at(1.0 - MISS / 2.0)?))
}

/// Half the 95 % interval of the mean of `values`, from Student's distribution; `None` below three values.
pub(crate) fn mean_margin(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    if n < 3.0 {
        return None;
    }
    let mean = mean(values)?;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(student_97_5(n - 1.0) * (variance / n).sqrt())
}

/// The 97.5 % quantile of Student's distribution: the first terms of Cornish and Fisher's series (Abramowitz and
/// Stegun, 26.7.5). It is 3 % too small for two degrees of freedom.
fn student_97_5(freedom: f64) -> f64 {
    let (z, f) = (1.959_964_f64, freedom);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / f + second / f.powi(2) + third / f.powi(3)
}

/// The smallest of `sorted` values that so many percent do not exceed (nearest rank).
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Jain's fairness index of rates: 1 if all are equal, 1/n if one has everything. `None` without any rate.
pub(crate) fn jain(rates: &[f64]) -> Option<f64> {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), r| (sum + r, squares + r * r));
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn lower_middle(sorted: &[f64]) -> Option<f64> {
    let below = *sorted.get((sorted.len() / 2).checked_sub(1)?)?;
    (sorted.len().is_multiple_of(2) && below.is_finite() && median(sorted).is_infinite()).then_some(below)
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(half.wrapping_sub(1)), sorted.get(half)) {
        (0, Some(a), Some(b)) => (a + b) / 2.0,
        (_, _, Some(b)) => *b,
        _ => f64::NAN,
    }
}

/// The largest `k` for which the `k`-th smallest and the `k`-th largest of `n` values enclose the median with 95 %
/// confidence, whatever the distribution: the number of values below the median is binomial with p = 1/2. `None`
/// below six values.
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
    fn interval_ranks_are_those_of_the_sign_test() {
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
    fn summary_does_not_depend_on_the_order_of_runs() {
        let forth: Vec<f64> = (1..=10).map(f64::from).collect();
        let back: Vec<f64> = forth.iter().rev().copied().collect();
        let summary = Summary::of(&forth).unwrap();
        assert_eq!(Some(summary), Summary::of(&back));
        assert_eq!((summary.median, summary.low, summary.high), (5.5, Some(2.0), Some(9.0)));
        assert_eq!((summary.min, summary.max, summary.mean), (1.0, 10.0, Some(5.5)));
        assert_eq!((summary.runs, summary.censored), (10, 0));
    }

    #[test]
    fn median_of_runs_with_own_bounds_is_open_until_known() {
        let of = |ended: &[f64], cut: &[f64]| {
            let run = |is_exact| move |value: &f64| Bounded { value: *value, is_exact };
            let runs: Vec<_> = ended.iter().map(run(true)).chain(cut.iter().map(run(false))).collect();
            let bounded = Summary::of_bounded(&runs).unwrap();
            (bounded.summary.median, bounded.median_above)
        };
        let open = f64::INFINITY;
        assert_eq!(of(&[1.0, 20.0], &[3.0]), (open, 3.0), "it may be 3.1");
        assert_eq!(of(&[1.0, 20.0], &[30.0]), (20.0, 20.0));
        assert_eq!(of(&[1.0, 20.0], &[3.0, 3.0]), (open, 3.0));
        assert_eq!(of(&[1.0, 2.0, 3.0], &[2.5]), (open, 2.25));
        assert_eq!(of(&[], &[4.0, 2.0]), (open, 3.0));
    }

    #[test]
    fn runs_that_were_cut_off_rank_above_all_others() {
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
    fn summary_of_no_values_or_nan_is_none() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[3.0]).map(|s| (s.median, s.low)), Some((3.0, None)));
    }

    #[test]
    fn reduction_interval_has_its_nominal_coverage() {
        let mut rng = Rng::stream(2, "reduction");
        // A random value before the change; after it half of that value, plus noise: the mean is reduced by 50 %.
        let mut pair = || {
            let weather = 20.0 + 40.0 * rng.unit();
            Paired { before: weather, after: weather / 2.0 + 4.0 * (rng.unit() - 0.5) }
        };
        let mut interval = || reduction_interval(&(0..20).map(|_| pair()).collect::<Vec<_>>()).unwrap();
        let intervals: Vec<_> = (0..500).map(|_| interval()).collect();
        let held = intervals.iter().filter(|(low, high)| (*low..=*high).contains(&50.0)).count();
        assert!((450..=495).contains(&held), "{held} of 500");
        // Both values of a pair come from one random value, so its variation hardly widens the interval.
        assert!(intervals.iter().all(|(low, high)| high - low < 6.0), "{intervals:?}");
    }

    #[test]
    fn reduction_of_few_or_unfinished_runs_has_no_interval() {
        let cut = f64::INFINITY;
        let pair = |before, after| Paired { before, after };
        assert_eq!(reduction_interval(&[pair(2.0, 1.0); 5]), None);
        assert_eq!(reduction_interval(&[pair(2.0, 1.0); 6]), Some((50.0, 50.0)));
        assert_eq!(reduction_interval(&[pair(cut, 1.0); 6]), None);
        let most = [pair(2.0, 1.0), pair(2.0, 1.0), pair(2.0, 1.0), pair(2.0, 1.0), pair(cut, 1.0), pair(2.0, cut)];
        assert_eq!(reduction_interval(&most), Some((50.0, 50.0)), "what was cut off counts as in the mean: not");
    }

    #[test]
    fn median_interval_has_its_nominal_coverage() {
        let mut rng = remora_base::Rng::stream(1, "interval");
        let trials = 2000;
        let holds = |_: &u32| {
            let values: Vec<f64> = (0..10).map(|_| rng.unit()).collect();
            Summary::of(&values).is_some_and(|s| s.low < Some(0.5) && s.high > Some(0.5))
        };
        let held = (0..trials).filter(holds).count() as f64 / f64::from(trials);
        assert!((0.965..0.99).contains(&held), "{held}: exactly 0.9785 for ten values");
    }

    #[test]
    fn mean_margin_is_students() {
        for (freedom, quantile) in [(2.0, 4.303), (4.0, 2.776), (19.0, 2.093), (499.0, 1.965)] {
            let ours = student_97_5(freedom);
            assert!((ours / quantile - 1.0).abs() < if freedom < 4.0 { 0.04 } else { 0.003 }, "{freedom}: {ours}");
        }
        // 1 to 5: a standard deviation of 1.581, times 2.776, over the root of 5.
        assert!((mean_margin(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap() - 1.963).abs() < 0.01);
        assert_eq!(mean_margin(&[1.0, 2.0]), None);
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let at = |percent| percentile(&values, percent);
        assert_eq!([at(0), at(50), at(95), at(100)], [Some(1.0), Some(5.0), Some(10.0), Some(10.0)]);
        assert_eq!(percentile(&[], 50), None);
    }
}
