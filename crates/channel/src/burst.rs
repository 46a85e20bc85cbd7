//! The two-state process of NFS/W 95 §3.2: good and bad periods that take turns.
//!
//! Time is cut into *spans* of 4096 mean cycles (a good period and a bad one), a little over an
//! hour with the papers' means. Each span has a random stream of its own and begins good. So
//! any moment, however far away, costs at most one span to look up, and memory is bounded by
//! the two spans kept. The price: the period that runs over a span's end is cut there, one in
//! four thousand.

use std::time::Duration;

use remora_base::{Rng, Time};

use crate::weather::Period;

/// The step of the papers' kernel timers, which shows in their uniform periods.
const GRID: Duration = Duration::from_millis(20);
/// Mean cycles in a span.
const SPAN_CYCLES: u32 = 4096;
/// Cycles drawn for a span at most; what is left would stay good. Out of reach in practice,
/// it bounds the work and the memory.
const SPAN_CYCLES_MAX: u32 = 8 * SPAN_CYCLES;

/// The law of a period's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Uniform on 0, 20, 40, ... ms up to twice the mean (NFS/W 97). Its mean is exact: where
    /// twice the mean lies between two steps, the upper end is drawn from those two in
    /// proportion. A length of 0 joins its neighbours into one period.
    Uniform,
    /// Always the mean, to the nanosecond; no grid.
    Deterministic,
    /// Exponential, to the nanosecond; no grid.
    Exponential,
}

impl Distribution {
    fn draw(self, rng: &mut Rng, mean: Duration) -> Duration {
        match self {
            Distribution::Uniform => uniform_on_grid(rng, mean),
            Distribution::Deterministic => mean,
            Distribution::Exponential => rng.exponential(mean),
        }
    }
}

fn uniform_on_grid(rng: &mut Rng, mean: Duration) -> Duration {
    let step = nanos(GRID);
    let twice = nanos(mean).saturating_mul(2);
    let rest = twice % step;
    let round_up = rest > 0 && rng.below(step) < rest;
    let steps = twice / step + u64::from(round_up);
    Duration::from_nanos(rng.below(steps + 1) * step)
}

/// The bad periods of a two-state model, generated span by span.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    distribution: Distribution,
    good_mean: Duration,
    bad_mean: Duration,
    seed: u64,
    span_ns: u64,
    /// The last span looked up with an even number, and the last with an odd one.
    spans: [Option<Span>; 2],
}

#[derive(Clone, Debug)]
struct Span {
    index: u64,
    bad: Vec<Period>,
}

impl Bursts {
    /// Both means must be at least 1 ms and within the ranges of a valid configuration.
    pub(crate) fn new(distribution: Distribution, good_mean: Duration, bad_mean: Duration, seed: u64) -> Bursts {
        let exact = nanos((good_mean + bad_mean) * SPAN_CYCLES);
        let span_ns = match distribution {
            Distribution::Uniform => exact.next_multiple_of(nanos(GRID)), // every span on the grid
            Distribution::Deterministic | Distribution::Exponential => exact,
        };
        Bursts { distribution, good_mean, bad_mean, seed, span_ns, spans: [None, None] }
    }

    /// The first bad period that ends after `from` and begins before `until`, whole.
    pub(crate) fn first_bad(&mut self, from: Time, until: Time) -> Option<Period> {
        let mut index = from.as_nanos() / self.span_ns;
        loop {
            let bad = self.span(index);
            let next = bad.partition_point(|p| p.end <= from);
            if let Some(period) = bad.get(next) {
                return (period.start < until).then_some(*period);
            }
            index += 1;
            if index.checked_mul(self.span_ns).is_none_or(|start| start >= until.as_nanos()) {
                return None;
            }
        }
    }

    fn span(&mut self, index: u64) -> &[Period] {
        let slot = (index % 2) as usize;
        if self.spans[slot].as_ref().is_none_or(|s| s.index != index) {
            self.spans[slot] = Some(Span { index, bad: self.generate(index) });
        }
        self.spans[slot].as_ref().map_or(&[], |s| &s.bad)
    }

    fn generate(&self, index: u64) -> Vec<Period> {
        let mut rng = Rng::stream(self.seed, &format!("channel weather {index}"));
        let mut at = Time::from_nanos(index.saturating_mul(self.span_ns));
        let end = at + Duration::from_nanos(self.span_ns);
        let mut bad = Vec::new();
        let mut good = self.distribution.draw(&mut rng, self.good_mean);
        if good.is_zero() {
            good = self.good_mean; // a span, and so the world, begins good
        }
        for _ in 0..SPAN_CYCLES_MAX {
            let start = at + good;
            if start >= end {
                break;
            }
            at = (start + self.distribution.draw(&mut rng, self.bad_mean)).min(end);
            if at > start {
                bad.push(Period { start, end: at }); // may touch the one before; the weather joins them
            }
            good = self.distribution.draw(&mut rng, self.good_mean);
        }
        bad
    }
}

/// Nanoseconds of a duration that is known to be short (at most 584 years).
pub(crate) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ms(distribution: Distribution, mean: Duration, n: u32) -> f64 {
        let mut rng = Rng::stream(3, "test");
        (0..n).map(|_| distribution.draw(&mut rng, mean).as_secs_f64() * 1e3).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn every_law_has_the_mean_it_is_given() {
        for ms in [7.0, 25.0, 40.0, 80.0, 160.0, 1000.0] {
            let mean = Duration::from_secs_f64(ms / 1e3);
            for (distribution, tolerance) in
                [(Distribution::Uniform, 0.03), (Distribution::Exponential, 0.03), (Distribution::Deterministic, 1e-6)]
            {
                let got = mean_ms(distribution, mean, 20_000);
                assert!((got / ms - 1.0).abs() < tolerance, "{distribution:?} {ms} {got}");
            }
        }
    }

    #[test]
    fn uniform_lengths_take_every_grid_point_equally_often() {
        let mut rng = Rng::stream(4, "test");
        let mut seen = [0u32; 5]; // a mean of 40 ms: 0, 20, 40, 60, 80 ms
        for _ in 0..10_000 {
            let length = nanos(uniform_on_grid(&mut rng, Duration::from_millis(40)));
            assert_eq!(length % nanos(GRID), 0);
            seen[(length / nanos(GRID)) as usize] += 1;
        }
        let chi_square: f64 = seen.iter().map(|&n| (f64::from(n) - 2000.0).powi(2) / 2000.0).sum();
        assert!(chi_square < 18.5, "{seen:?}"); // 4 degrees of freedom, p = 0.001
    }

    #[test]
    fn exponential_lengths_have_the_right_tail() {
        let mut rng = Rng::stream(5, "test");
        let mean = Duration::from_millis(100);
        let n = 20_000;
        for k in 1..=3u32 {
            let beyond = (0..n).filter(|_| Distribution::Exponential.draw(&mut rng, mean) > mean * k).count();
            let share = beyond as f64 / f64::from(n);
            assert!((share - (-f64::from(k)).exp()).abs() < 0.01, "{k} {share}");
        }
    }
}
