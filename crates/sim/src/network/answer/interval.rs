//! Means with their intervals, from independent replications.

use serde::Serialize;

use super::super::series::Tail;

/// Student's t for 95 %, by degrees of freedom from 1.
const STUDENT: [f64; 15] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];
/// Student's t for more degrees of freedom.
const STUDENT_MANY: f64 = 2.12;
/// Student's t for the batches of all replications.
const STUDENT_BATCHES: f64 = 1.97;

/// Correlation of neighbouring quarters of runs that shows memory: twice the standard error of that
/// of eight independent runs.
const MEMORY: f64 = 0.4;
/// Correlation at most: beyond, the runs say nothing about the mean in the end.
const MEMORY_MAX: f64 = 0.97;

/// A mean and the half-width of its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    pub mean: f64,
    /// `None` if unknown.
    pub half_width: Option<f64>,
    /// Whether most of it is for queues that still fill: the runs are short.
    #[serde(skip)]
    pub is_short: bool,
}

impl Interval {
    /// Half-width over mean; infinite if unknown.
    pub fn relative(&self) -> f64 {
        self.half_width.map_or(f64::INFINITY, |half| if self.mean > 0.0 { half / self.mean } else { half })
    }

    /// From one number of each replication.
    pub(super) fn of_values(values: &[f64]) -> Interval {
        let weight = 1.0 / values.len().max(1) as f64;
        let weighted: Vec<(f64, f64)> = values.iter().map(|value| (weight, *value)).collect();
        Interval { mean: mean(&weighted), half_width: between(&weighted), is_short: false }
    }

    /// From the series of each replication, where there are any, without their starts. The later
    /// start counts where its interval is narrower: the queues were still filling before.
    pub(super) fn of_tails(tails: &[[Tail; 2]]) -> Option<Interval> {
        let [early, late] = [0, 1].map(|start| Interval::of_ends(&tails.iter().map(|t| t[start]).collect::<Vec<_>>()));
        let (early, late) = (early?, late?);
        Some(if late.relative() < early.relative() { late } else { early })
    }

    /// The half-width is the largest of four: between replications, between batches, the change
    /// from the first half to the second one if it is systematic, and [`of_memory`] if the runs are
    /// short beside it.
    fn of_ends(tails: &[Tail]) -> Option<Interval> {
        let all: f64 = tails.iter().map(|t| t.values).sum();
        if all <= 0.0 {
            return None;
        }
        let weighted: Vec<(f64, f64)> = tails.iter().map(|t| (t.values / all, t.mean)).collect();
        let batches: Option<f64> = tails.iter().map(|t| Some((t.values / all).powi(2) * t.variance?)).sum();
        let batches = batches.map(|variance| STUDENT_BATCHES * variance.sqrt());
        let chance = between(&weighted).map(|half| half.max(batches.unwrap_or(0.0)));
        let start = trend(tails, all).max(of_memory(tails));
        let half_width = chance.map(|chance| chance.max(start));
        Some(Interval { mean: mean(&weighted), half_width, is_short: chance.is_some_and(|chance| start > chance) })
    }
}

fn mean(weighted: &[(f64, f64)]) -> f64 {
    weighted.iter().map(|(weight, value)| weight * value).sum()
}

fn student(freedom: usize) -> f64 {
    STUDENT.get(freedom - 1).copied().unwrap_or(STUDENT_MANY)
}

/// Half-width by the differences between replications; `None` for fewer than four.
fn between(weighted: &[(f64, f64)]) -> Option<f64> {
    let n = weighted.len();
    let mean = mean(weighted);
    let squares: f64 = weighted.iter().map(|(weight, value)| (weight * (value - mean)).powi(2)).sum();
    (n >= 4).then(|| student(n - 1) * (squares * n as f64 / (n - 1) as f64).sqrt())
}

/// The change from first to second halves, if chance does not explain it; otherwise 0. The start or
/// a queue that fills slowly causes one.
fn trend(tails: &[Tail], all: f64) -> f64 {
    let changes: Vec<(f64, f64)> =
        tails.iter().filter_map(|t| t.quarters.map(|[a, b, c, d]| (t.values / all, (c + d - a - b) / 2.0))).collect();
    let change = mean(&changes).abs();
    if between(&changes).is_some_and(|chance| change > chance) { change } else { 0.0 }
}

/// How far the mean may be from the one that the runs approach, if they remember their start: all
/// start empty, and a queue near saturation fills so slowly that even the difference between
/// replications is too small. Otherwise 0.
///
/// The quarters of a run are taken for an autoregressive series of order 1: a quarter is `a + r`
/// times the one before, and `a / (1 - r)` the mean in the end. The correlation `r` is that of the
/// deviations from the mean of all replications in the same quarter, which have no trend.
fn of_memory(tails: &[Tail]) -> f64 {
    let runs: Vec<[f64; 4]> = tails.iter().filter_map(|t| t.quarters).collect();
    let n = runs.len() as f64;
    let level: Vec<f64> = (0..4).map(|i| runs.iter().map(|run| run[i]).sum::<f64>() / n).collect();
    let (mut products, mut squares) = (0.0, 0.0);
    for run in &runs {
        for i in 0..3 {
            let (before, after) = (run[i] - level[i], run[i + 1] - level[i + 1]);
            (products, squares) = (products + before * after, squares + before * before);
        }
    }
    let correlation = (products / squares.max(f64::MIN_POSITIVE)).min(MEMORY_MAX);
    if correlation <= MEMORY {
        return 0.0;
    }
    let end = |[a, b, c, d]: &[f64; 4]| (b + c + d - correlation * (a + b + c)) / 3.0 / (1.0 - correlation);
    let ends: Vec<(f64, f64)> = runs.iter().map(|run| (1.0 / n, end(run))).collect();
    let missing = (mean(&ends) - level.iter().sum::<f64>() / 4.0).abs();
    between(&ends).map_or(0.0, |chance| missing + chance)
}

#[cfg(test)]
mod tests {
    use super::super::super::series::{Autoregression, Series};
    use super::*;

    /// A run without memory: the quarters of each half deviate differently from those of other runs.
    fn tail(mean: f64, [first, second]: [f64; 2]) -> Tail {
        let more = mean - 1.0;
        let quarters = Some([first + more, first - more, second + more, second - more]);
        Tail { mean, values: 10.0, variance: Some(0.0), quarters }
    }

    /// The share of intervals that hold the mean in the end, of runs with this memory as a share of
    /// their length, that start so many standard deviations below it.
    fn coverage(memory: f64, below: f64) -> f64 {
        const LENGTH: u32 = 1024;
        let holds = |seed: u64| {
            let tails = (0..8).filter_map(|run| {
                let (mut series, mut rng) =
                    (Series::new(), Autoregression::new(8 * seed + run, memory * f64::from(LENGTH), -below));
                (0..LENGTH).for_each(|_| series.add(rng.next() + 10.0));
                series.tails()
            });
            let interval = Interval::of_tails(&tails.collect::<Vec<_>>()).unwrap();
            (interval.mean - 10.0).abs() <= interval.half_width.unwrap()
        };
        (0..300).filter(|seed| holds(*seed)).count() as f64 / 300.0
    }

    /// The differences between replications alone cover 0.4 to 0.02 of the runs with a memory of
    /// half their length or more.
    #[test]
    fn interval_of_runs_that_start_low_covers_the_mean() {
        for (memory, below, least) in [
            (0.01, 2.0, 0.92),
            (0.1, 2.0, 0.92),
            (0.1, 4.0, 0.92),
            (0.5, 1.0, 0.92),
            (0.5, 2.0, 0.92),
            (1.0, 2.0, 0.85),
        ] {
            let covered = coverage(memory, below);
            assert!(covered >= least, "memory {memory}, start {below} below: {covered}");
        }
        assert!(coverage(0.01, 0.0) < 0.985, "intervals of long runs are not wider than need be");
    }

    #[test]
    fn interval_covers_differences_and_trends() {
        let level: Vec<Tail> = [1.0, 1.1, 0.9, 1.0].map(|m| tail(m, [m; 2])).to_vec();
        let level = Interval::of_ends(&level).unwrap();
        assert!((level.mean - 1.0).abs() < 1e-9 && (level.half_width.unwrap() - 0.13).abs() < 0.01, "{level:?}");
        let rising: Vec<Tail> = [1.0, 1.01, 0.99, 1.0].map(|m| tail(m, [m - 0.2, m + 0.2])).to_vec();
        let rising = Interval::of_ends(&rising).unwrap();
        assert!((rising.half_width.unwrap() - 0.4).abs() < 1e-9, "{rising:?}");
        assert_eq!(Interval::of_ends(&level_of(3)).unwrap().half_width, None);
        assert!(Interval::of_tails(&[]).is_none());
    }

    /// A queue that fills for three tenths of the run.
    #[test]
    fn interval_leaves_out_a_longer_start_of_a_run() {
        let tails = (0..8).filter_map(|run| {
            let (mut series, mut rng) = (Series::new(), Autoregression::new(run, 1.0, 0.0));
            (0..4096).for_each(|i| series.add((f64::from(i) / 1229.0).min(1.0) * 10.0 + rng.next()));
            series.tails()
        });
        let interval = Interval::of_tails(&tails.collect::<Vec<_>>()).unwrap();
        assert!((interval.mean - 10.0).abs() < 0.05 && interval.relative() < 0.01, "{interval:?}");
    }

    fn level_of(count: usize) -> Vec<Tail> {
        vec![tail(1.0, [1.0, 1.0]); count]
    }
}
