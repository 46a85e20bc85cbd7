//! Random streams: one for each component, derived from a seed and the component's name, so that an
//! additional draw in one component changes no other.

use std::hash::Hasher;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use siphasher::sip128::{Hasher128, SipHasher24};

/// A random stream that depends on its seed and name alone, on every machine.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream of component `name` under `seed`.
    pub fn stream(seed: u64, name: &str) -> Rng {
        let mut key = [0u8; 32];
        for (half, chunk) in key.chunks_exact_mut(16).enumerate() {
            let mut h = SipHasher24::new_with_keys(seed, half as u64);
            h.write(name.as_bytes());
            chunk.copy_from_slice(&h.finish128().as_bytes());
        }
        Rng(ChaCha8Rng::from_seed(key))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Uniform in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // Multiply-shift; its bias is below n / 2^64.
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p` (below 0: never; above 1: always).
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Exponentially distributed with the given mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        let u = 1.0 - self.unit(); // in (0, 1], so the logarithm is finite
        Duration::from_secs_f64(-u.ln() * mean.as_secs_f64())
    }

    /// Fills `buf` with random bytes.
    pub fn fill(&mut self, buf: &mut [u8]) {
        self.0.fill_bytes(buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_reproducible_and_apart() {
        let draw = |seed, name| Rng::stream(seed, name).next_u64();
        assert_eq!(draw(7, "disk"), draw(7, "disk"));
        assert_ne!(draw(7, "disk"), draw(7, "channel"));
        assert_ne!(draw(7, "disk"), draw(8, "disk"));
    }

    #[test]
    fn draws_have_the_right_range_and_mean() {
        let mut r = Rng::stream(1, "test");
        let n = 20_000;
        let mean = (0..n).map(|_| r.below(10)).sum::<u64>() as f64 / n as f64;
        assert!((mean - 4.5).abs() < 0.1, "{mean}");
        assert!((0..n).all(|_| r.below(10) < 10 && (0.0..1.0).contains(&r.unit())));
        assert_eq!(r.below(0), 0);
        let mean = (0..n).map(|_| r.exponential(Duration::from_secs(1)).as_secs_f64()).sum::<f64>() / n as f64;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
        assert!(!r.chance(0.0) && r.chance(1.0));
    }
}
