//! Medians with bootstrap intervals (Efron 1979, percentiles of resampled medians). A run that was
//! cut off counts as infinite: longer than any that ended.

use remora_base::Rng;
use serde::Serialize;

/// Resamples.
const RESAMPLES: usize = 2000;
/// Fewer values have no interval worth the name.
const VALUES_MIN: usize = 5;

/// The median of some values; infinite ones (JSON: null) were cut off.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Median {
    /// How many values there were.
    pub runs: usize,
    /// How many of them were cut off.
    pub censored: usize,
    /// Half of the values are less.
    pub median: f64,
    /// Lower end of its 95 % interval; `None` below five values.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Median {
    /// Of values that are numbers; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Median> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let interval = (sorted.len() >= VALUES_MIN).then(|| bootstrap(&sorted));
        Some(Median {
            runs: sorted.len(),
            censored: sorted.iter().filter(|v| v.is_infinite()).count(),
            median: middle(&sorted),
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
            min,
            max,
        })
    }
}

/// Of sorted values, at least one.
fn middle(sorted: &[f64]) -> f64 {
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { at(half) } else { (at(half.wrapping_sub(1)) + at(half)) / 2.0 }
}

/// The interval. The draws are always the same, so the same values have the same one.
fn bootstrap(sorted: &[f64]) -> (f64, f64) {
    let mut rng = Rng::stream(1, "bootstrap");
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw = |_| sorted.get(rng.below(sorted.len() as u64) as usize).copied();
            let mut sample: Vec<f64> = (0..sorted.len()).filter_map(draw).collect();
            sample.sort_by(f64::total_cmp);
            middle(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians.get((share * RESAMPLES as f64) as usize).copied().unwrap_or(f64::NAN);
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_off_values_rank_above_all() {
        let cut = f64::INFINITY;
        let of = |values: &[f64]| Median::of(values).map(|m| (m.median, m.censored, m.low.is_some()));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0]), Some((2.0, 0, false)));
        assert_eq!(of(&[3.0, 1.0, cut]), Some((3.0, 1, false)));
        assert_eq!(of(&[cut, 1.0, cut, cut, cut]), Some((cut, 4, true)));
    }

    #[test]
    fn the_interval_holds_the_median_about_as_often_as_it_says() {
        let mut rng = Rng::stream(3, "test");
        let mut held = 0;
        for _ in 0..300 {
            let values: Vec<f64> = (0..15).map(|_| rng.unit()).collect();
            let m = Median::of(&values).unwrap();
            assert!(m.low <= Some(m.median) && Some(m.median) <= m.high);
            held += u32::from(m.low <= Some(0.5) && m.high >= Some(0.5));
        }
        assert!((270..=299).contains(&held), "{held} of 300");
    }
}
