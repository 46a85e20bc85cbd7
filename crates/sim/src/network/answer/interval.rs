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

/// A mean and the half-width of its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    pub mean: f64,
    /// `None` if unknown.
    pub half_width: Option<f64>,
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
        Interval { mean: mean(&weighted), half_width: between(&weighted) }
    }

    /// From the ends of the series of each replication, where there are any. The half-width is the
    /// largest of three: between replications, between batches, and the change from the first half
    /// to the second one if it is systematic.
    pub(super) fn of_tails(tails: &[Tail]) -> Option<Interval> {
        let all: f64 = tails.iter().map(|t| t.values).sum();
        if all <= 0.0 {
            return None;
        }
        let weighted: Vec<(f64, f64)> = tails.iter().map(|t| (t.values / all, t.mean)).collect();
        let batches: Option<f64> = tails.iter().map(|t| Some((t.values / all).powi(2) * t.variance?)).sum();
        let batches = batches.map(|variance| STUDENT_BATCHES * variance.sqrt());
        let half_width = between(&weighted).map(|half| half.max(batches.unwrap_or(0.0)).max(trend(tails, all)));
        Some(Interval { mean: mean(&weighted), half_width })
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
        tails.iter().filter_map(|t| t.halves.map(|[first, second]| (t.values / all, second - first))).collect();
    let change = mean(&changes).abs();
    if between(&changes).is_some_and(|chance| change > chance) { change } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(mean: f64, halves: [f64; 2]) -> Tail {
        Tail { mean, values: 10.0, variance: Some(0.0), halves: Some(halves) }
    }

    #[test]
    fn interval_covers_differences_and_trends() {
        let level: Vec<Tail> = [1.0, 1.1, 0.9, 1.0].map(|m| tail(m, [m, m])).to_vec();
        let level = Interval::of_tails(&level).unwrap();
        assert!((level.mean - 1.0).abs() < 1e-9 && (level.half_width.unwrap() - 0.13).abs() < 0.01, "{level:?}");
        let rising: Vec<Tail> = [1.0, 1.01, 0.99, 1.0].map(|m| tail(m, [m - 0.2, m + 0.2])).to_vec();
        let rising = Interval::of_tails(&rising).unwrap();
        assert!((rising.half_width.unwrap() - 0.4).abs() < 1e-9, "{rising:?}");
        assert_eq!(Interval::of_tails(&level_of(3)).unwrap().half_width, None);
        assert!(Interval::of_tails(&[]).is_none());
    }

    fn level_of(count: usize) -> Vec<Tail> {
        vec![tail(1.0, [1.0, 1.0]); count]
    }
}
