//! Streaming statistics of a run: mean, confidence interval by batch means, percentiles. Memory is
//! independent of the run's length.

use serde::Serialize;

/// Batches kept; at twice as many, neighbours merge.
const BATCHES: usize = 32;
/// Student's t for 95 % and about this many batches.
const STUDENT: f64 = 2.04;
/// Shares of a series that may be left out as its start.
const STARTS: [f64; 2] = [0.2, 0.5];
/// Correlation of neighbouring batches beyond which the run is too short for any interval.
const CORRELATION_MAX: f64 = 0.95;
/// Histogram cells per factor of two: percentiles are accurate to 1.1 %.
const CELLS: f64 = 32.0;
/// Minimum of the histogram, in seconds; smaller values count as this.
const LEAST: f64 = 1e-9;
/// From a nanosecond to beyond a day.
const CELLS_ALL: usize = 48 * 32;

/// Values in seconds, in order of time.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    count: u64,
    sum: f64,
    batch: u64,
    batches: Vec<f64>,
    open: (u64, f64),
    /// Only as long as the largest value requires.
    histogram: Vec<u32>,
}

/// Statistics of a series.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Stat {
    /// Mean, in seconds.
    pub mean: f64,
    /// Half-width of the 95 % confidence interval, in seconds; `None` for too few values.
    pub within: Option<f64>,
    /// Median, in seconds.
    pub p50: f64,
    /// 95th percentile, in seconds.
    pub p95: f64,
    /// 99th percentile, in seconds.
    pub p99: f64,
    pub count: u64,
}

/// The end of a series, without its start, in which queues fill.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Tail {
    pub(crate) mean: f64,
    /// Values that it is the mean of.
    pub(crate) values: f64,
    /// Variance of the mean, by batches; `None` for too few.
    pub(crate) variance: Option<f64>,
    /// Means of its quarters; `None` for too few batches.
    pub(crate) quarters: Option<[f64; 4]>,
}

impl Series {
    pub(crate) fn new() -> Series {
        Series { count: 0, sum: 0.0, batch: 1, batches: Vec::new(), open: (0, 0.0), histogram: Vec::new() }
    }

    pub(crate) fn add(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        self.open.0 += 1;
        self.open.1 += seconds;
        if self.open.0 == self.batch {
            self.batches.push(self.open.1 / self.batch as f64);
            self.open = (0, 0.0);
            if self.batches.len() == 2 * BATCHES {
                self.batches = self.batches.chunks_exact(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
                self.batch *= 2;
            }
        }
        let cell = cell(seconds);
        if cell >= self.histogram.len() {
            self.histogram.resize(cell + 1, 0);
        }
        self.histogram[cell] = self.histogram[cell].saturating_add(1);
    }

    /// Combined statistics of series from independent runs; `None` without values.
    pub(crate) fn together(all: &[&Series]) -> Option<Stat> {
        let count: u64 = all.iter().map(|s| s.count).sum();
        if count == 0 {
            return None;
        }
        let mean = all.iter().map(|s| s.sum).sum::<f64>() / count as f64;
        let variances: Option<Vec<f64>> = all.iter().filter(|s| s.count > 0).map(|s| s.variance(count)).collect();
        let within = variances.map(|v| STUDENT * v.iter().sum::<f64>().sqrt());
        let cells = all.iter().map(|s| s.histogram.len()).max().unwrap_or(0);
        let histogram: Vec<u64> =
            (0..cells).map(|i| all.iter().map(|s| s.histogram.get(i).copied().map_or(0, u64::from)).sum()).collect();
        let below = |share| percentile(&histogram, share, count);
        Some(Stat { mean, within, p50: below(0.5), p95: below(0.95), p99: below(0.99), count })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The series without each share of it in [`STARTS`]; `None` without values.
    pub(crate) fn tails(&self) -> Option<[Tail; 2]> {
        let of = |start: f64| {
            let kept = &self.batches[(self.batches.len() as f64 * start) as usize..];
            let n = kept.len();
            let enough = n >= BATCHES / 2;
            Tail {
                mean: mean(kept),
                values: n as f64 * self.batch as f64,
                variance: enough.then(|| variance_of_mean(kept)),
                quarters: enough.then(|| [0, 1, 2, 3].map(|i| mean(&kept[n * i / 4..n * (i + 1) / 4]))),
            }
        };
        (!self.batches.is_empty()).then(|| STARTS.map(of))
    }

    /// The 95th percentile, in seconds.
    pub(crate) fn p95(&self) -> Option<f64> {
        let histogram: Vec<u64> = self.histogram.iter().copied().map(u64::from).collect();
        (self.count > 0).then(|| percentile(&histogram, 0.95, self.count))
    }

    /// Variance of this series' contribution to the mean over `count` values.
    fn variance(&self, count: u64) -> Option<f64> {
        let share = self.count as f64 / count as f64;
        (self.batches.len() >= BATCHES / 2).then(|| share * share * variance_of_mean(&self.batches))
    }
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// The variance of the mean of batches. Where neighbours are alike, it counts them as an autoregressive series of
/// order 1, whose mean varies `(1 + r) / (1 - r)` times as much as that of independent values.
fn variance_of_mean(batches: &[f64]) -> f64 {
    let (n, mean) = (batches.len() as f64, mean(batches));
    let squares: f64 = batches.iter().map(|b| (b - mean) * (b - mean)).sum();
    let products: f64 = batches.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    let correlation = (products / squares.max(f64::MIN_POSITIVE)).clamp(0.0, CORRELATION_MAX);
    squares / (n * (n - 1.0)) * (1.0 + correlation) / (1.0 - correlation)
}

fn cell(seconds: f64) -> usize {
    let place = (seconds.max(LEAST) / LEAST).log2() * CELLS;
    (place as usize).min(CELLS_ALL - 1)
}

fn percentile(histogram: &[u64], share: f64, count: u64) -> f64 {
    let wanted = share * count as f64;
    let mut below = 0.0;
    for (i, n) in histogram.iter().enumerate() {
        below += *n as f64;
        if below >= wanted && *n > 0 {
            return LEAST * ((i as f64 + 0.5) / CELLS).exp2();
        }
    }
    0.0
}

/// A series with mean 0, variance 1 and the correlation `exp(-n / memory)` of values `n` apart.
#[cfg(test)]
pub(super) struct Autoregression {
    rng: remora_base::Rng,
    kept: f64,
    value: f64,
}

#[cfg(test)]
impl Autoregression {
    pub(super) fn new(seed: u64, memory: f64, start: f64) -> Autoregression {
        let rng = remora_base::Rng::stream(seed, "autoregression");
        Autoregression { rng, kept: (-1.0 / memory).exp(), value: start }
    }

    pub(super) fn next(&mut self) -> f64 {
        // Uniform noise: sums of many are normal.
        let noise = (self.rng.unit() - 0.5) * 12.0_f64.sqrt();
        self.value = self.kept * self.value + (1.0 - self.kept * self.kept).sqrt() * noise;
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::super::draw::exponential;
    use super::*;
    use remora_base::Rng;

    #[test]
    fn confidence_interval_holds_the_mean() {
        let mut missed = 0;
        for seed in 0..200 {
            let (mut series, mut rng) = (Series::new(), Rng::stream(seed, "series"));
            (0..5000).for_each(|_| series.add(exponential(&mut rng, 2e-3)));
            let stat = Series::together(&[&series]).unwrap();
            missed += u32::from((stat.mean - 2e-3).abs() > stat.within.unwrap());
        }
        // One in twenty.
        assert!((2..=24).contains(&missed), "{missed}");
    }

    /// Values that forget their past within a batch. Independent batches would hold the mean in 84 % of cases.
    #[test]
    fn confidence_interval_holds_the_mean_of_correlated_values() {
        let mut held = 0;
        for seed in 0..400 {
            let (mut series, mut values) = (Series::new(), Autoregression::new(seed, 64.0, 0.0));
            (0..4000).for_each(|_| series.add(values.next() + 10.0));
            let stat = Series::together(&[&series]).unwrap();
            held += u32::from((stat.mean - 10.0).abs() <= stat.within.unwrap());
        }
        assert!((364..=392).contains(&held), "{held} of 400");
    }

    #[test]
    fn series_of_several_seeds_combine() {
        let (mut a, mut b) = (Series::new(), Series::new());
        (1..=500).for_each(|i| a.add(f64::from(i) * 1e-3));
        (501..=1000).for_each(|i| b.add(f64::from(i) * 1e-3));
        let stat = Series::together(&[&a, &b]).unwrap();
        for (got, expected) in [(stat.mean, 0.5005), (stat.p50, 0.5), (stat.p95, 0.95), (stat.p99, 0.99)] {
            assert!((got / expected - 1.0).abs() < 0.02, "{stat:?}");
        }
        assert_eq!((stat.count, Series::together(&[&Series::new()])), (1000, None));
    }
}
