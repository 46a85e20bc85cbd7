//! Random variates: intervals, packet sizes, stations.

use remora_base::Rng;
use remora_model::Size;

/// Exponentially distributed with mean `mean`; 0 for a mean of 0.
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    // The argument is in (0, 1], so the logarithm is finite.
    -(1.0 - rng.unit()).ln() * mean
}

/// Packet sizes with a given mean and variation, which the model does not specify further:
/// constant, a minimum plus an exponential part, or for variations above 1 a mixture of two
/// exponential kinds with half of the bits each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Sizes {
    Constant(f64),
    Shifted { least: f64, varying: f64 },
    Mixed { small: f64, large: f64, chance_small: f64 },
}

impl Sizes {
    pub(crate) fn of(size: Size) -> Sizes {
        let (mean, scv) = (size.mean_bits(), size.scv());
        if scv < 1e-9 {
            Sizes::Constant(mean)
        } else if scv <= 1.0 {
            let varying = mean * scv.sqrt();
            Sizes::Shifted { least: mean - varying, varying }
        } else {
            let chance_small = (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt()) / 2.0;
            let (small, large) = (mean / (2.0 * chance_small), mean / (2.0 * (1.0 - chance_small)));
            Sizes::Mixed { small, large, chance_small }
        }
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> f64 {
        match *self {
            Sizes::Constant(bits) => bits,
            Sizes::Shifted { least, varying } => least + exponential(rng, varying),
            Sizes::Mixed { small, large, chance_small } => {
                let mean = if rng.chance(chance_small) { small } else { large };
                exponential(rng, mean)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_model::Bits;

    #[test]
    fn sizes_have_the_configured_moments() {
        for scv in [0.0, 0.25, 1.0, 4.0] {
            let size = Size::varying(Bits::new(8000.0).unwrap(), scv).unwrap();
            let (sizes, mut rng) = (Sizes::of(size), Rng::stream(1, "sizes"));
            let n = 400_000;
            let all: Vec<f64> = (0..n).map(|_| sizes.draw(&mut rng)).collect();
            let mean = all.iter().sum::<f64>() / f64::from(n);
            let second = all.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
            assert!((mean / 8000.0 - 1.0).abs() < 0.02, "{scv}: {mean}");
            assert!((second / (mean * mean) - 1.0 - scv).abs() < 0.03 + 0.05 * scv, "{scv}: {second}");
        }
    }
}
