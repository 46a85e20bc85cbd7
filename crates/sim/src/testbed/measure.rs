use std::ops::Range;

use crate::copy::{self, CopyConfig, CopyError};

/// Times of copies with several seeds, evaluated as in the papers.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Seconds of the first mobile's copies that were done by the limit, in the order of seeds.
    pub seconds: Vec<f64>,
    /// Copies not done by the limit. The papers repeated such runs, so they are not counted.
    pub censored: usize,
}

impl Measured {
    /// The mean; NaN if no copy was done.
    pub fn mean(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len() as f64
    }

    /// The standard error of the mean; NaN for fewer than two copies.
    pub fn standard_error(&self) -> f64 {
        let (n, mean) = (self.seconds.len() as f64, self.mean());
        let squares: f64 = self.seconds.iter().map(|s| (s - mean).powi(2)).sum();
        (squares / (n - 1.0) / n).sqrt()
    }

    /// The minimum; infinite if no copy was done.
    pub fn min(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The maximum; 0 if no copy was done.
    pub fn max(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }
}

/// Runs a copy once for each seed.
pub fn measure(config: &CopyConfig, seeds: Range<u64>) -> Result<Measured, CopyError> {
    let mut measured = Measured { seconds: Vec::new(), censored: 0 };
    for seed in seeds {
        match copy::run(config, seed)?.first().seconds {
            Some(seconds) => measured.seconds.push(seconds),
            None => measured.censored += 1,
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_standard_error_are_those_of_the_sample() {
        let measured = Measured { seconds: vec![2.0, 4.0, 4.0, 6.0], censored: 1 };
        assert_eq!((measured.mean(), measured.min(), measured.max()), (4.0, 2.0, 6.0));
        // Variance 8/3, over 4.
        assert!((measured.standard_error() - (2.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
