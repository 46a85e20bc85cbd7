//! The error process of a mobile's link: its good and bad periods, from the two-state model of
//! NFS/W 95 §3.2 and configured outages.
//!
//! The two-state model divides time into *spans* of 4096 mean cycles (a good and a bad period), a
//! little over an hour with the papers' means. Each span has its own random stream and begins good.
//! So a query at any time generates at most one span, and memory holds two spans. The cost: the
//! period at a span's end is cut there, one in four thousand.

use std::time::Duration;

use remora_base::{Rng, Time};

use crate::config::{Config, ConfigError, Distribution, ErrorModel, Outage};

/// The step of the papers' kernel timers, visible in their uniform periods.
const GRID: Duration = Duration::from_millis(20);
/// Mean cycles in a span.
const SPAN_CYCLES: u32 = 4096;
/// The most cycles drawn for a span; the remainder would stay good. Never reached in practice, it
/// bounds work and memory.
const SPAN_CYCLES_MAX: u32 = 8 * SPAN_CYCLES;

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
    /// The last even and the last odd span looked up.
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
                bad.push(Period { start, end: at }); // may touch the one before; queries join them
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

/// Bad periods examined for one frame that waits for a fit.
const FIT_PERIODS_MAX: u32 = 8192;
/// Bad periods counted by [`ErrorProcess::good_fraction`].
const COUNT_PERIODS_MAX: usize = 1 << 20;

/// A half-open interval of time, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// Its first moment.
    pub start: Time,
    /// The first moment after it.
    pub end: Time,
}

/// The good and bad periods of one link: a pure function of the configuration's errors and outages,
/// the seed and the time. The bursts begin good at time zero.
///
/// Queries may come in any order, before, during or after a run. They take `&mut self` because
/// periods are generated on demand. Memory is bounded (two spans of about 4096 periods, and the
/// outages), as is the work of a query at any time up to [`Time::MAX`]; queries over a range take
/// time in proportion to the range, up to the limit each one names.
#[derive(Clone, Debug)]
pub struct ErrorProcess {
    bursts: Option<Bursts>,
    /// Sorted and disjoint.
    outages: Vec<Period>,
}

impl ErrorProcess {
    /// The error process of every channel with this configuration and seed.
    pub fn new(config: &Config, seed: u64) -> Result<ErrorProcess, ConfigError> {
        config.validate()?;
        let bursts = match config.errors {
            ErrorModel::TwoState { distribution, good_mean, bad_mean } if !bad_mean.is_zero() => {
                Some(Bursts::new(distribution, good_mean, bad_mean, seed))
            }
            ErrorModel::TwoState { .. } | ErrorModel::None => None,
        };
        Ok(ErrorProcess { bursts, outages: merged(&config.outages) })
    }

    /// Whether `t` is in a bad period.
    pub fn is_bad(&mut self, t: Time) -> bool {
        self.touching(t).is_some()
    }

    /// Whether any part of `start..end` is bad: a frame with this airtime is lost.
    pub fn bad_overlaps(&mut self, start: Time, end: Time) -> bool {
        self.first_raw(start, end).is_some()
    }

    /// The bad periods in `from..until` in order, clipped to that range. No two touch.
    pub fn bad_periods(&mut self, from: Time, until: Time) -> BadPeriods<'_> {
        BadPeriods { errors: self, at: from, until }
    }

    /// The share of good time from zero to `until` (1 for an empty range). After 2^20 bad periods,
    /// about 13 days with the papers' means, it stops and returns their share.
    pub fn good_fraction(&mut self, until: Time) -> f64 {
        let mut bad = Duration::ZERO;
        let mut counted_to = until;
        for (n, period) in (1..).zip(self.bad_periods(Time::ZERO, until)) {
            bad += period.end.since(period.start);
            if n == COUNT_PERIODS_MAX {
                counted_to = period.end;
                break;
            }
        }
        if counted_to == Time::ZERO { 1.0 } else { 1.0 - bad.as_secs_f64() / counted_to.as_secs_f64() }
    }

    /// The first time from `from` on that begins `airtime` of good time. `None` if none of the next
    /// 8192 good periods is long enough.
    pub fn first_fit(&mut self, from: Time, airtime: Duration) -> Option<Time> {
        self.first_fit_of(from, |at| Period { start: at, end: at + airtime })
    }

    /// [`first_fit`](ErrorProcess::first_fit) for a transmission that occupies `span(at)` when sent
    /// at `at`.
    pub(crate) fn first_fit_of(&mut self, from: Time, span: impl Fn(Time) -> Period) -> Option<Time> {
        let mut budget = FIT_PERIODS_MAX;
        self.first_fit_within(from, &mut budget, span)
    }

    /// [`first_fit_of`](ErrorProcess::first_fit_of) that takes the bad periods it passes from
    /// `budget`.
    pub(crate) fn first_fit_within(
        &mut self,
        from: Time,
        budget: &mut u32,
        span: impl Fn(Time) -> Period,
    ) -> Option<Time> {
        let mut at = from;
        loop {
            let airtime = span(at);
            let Some(bad) = self.first_bad(airtime.start, airtime.end) else { break };
            *budget = budget.checked_sub(1)?;
            at = bad.end;
        }
        (at < Time::MAX).then_some(at)
    }

    /// The first bad period that ends after `from` and begins before `until`, its start clipped to
    /// `from`, its end where a good period begins.
    pub(crate) fn first_bad(&mut self, from: Time, until: Time) -> Option<Period> {
        let mut bad = self.first_raw(from, until)?;
        bad.start = bad.start.max(from);
        // Terminates soon: no two outages touch and every span has good time, so each step consumes
        // an outage or one of a span's few adjacent bursts.
        while let Some(next) = self.touching(bad.end) {
            bad.end = next.end;
        }
        Some(bad)
    }

    /// A burst or an outage that contains `t`.
    fn touching(&mut self, t: Time) -> Option<Period> {
        self.first_raw(t, t + Duration::from_nanos(1))
    }

    /// The earliest burst or outage that ends after `from` and begins before `until`; unmerged.
    fn first_raw(&mut self, from: Time, until: Time) -> Option<Period> {
        let burst = self.bursts.as_mut().and_then(|b| b.first_bad(from, until));
        let next = self.outages.partition_point(|p| p.end <= from);
        let outage = self.outages.get(next).copied().filter(|p| p.start < until);
        match (burst, outage) {
            (Some(b), Some(o)) => Some(if b.start <= o.start { b } else { o }),
            (one, other) => one.or(other),
        }
    }
}

/// The bad periods of a range, in order; created by [`ErrorProcess::bad_periods`].
#[derive(Debug)]
pub struct BadPeriods<'a> {
    errors: &'a mut ErrorProcess,
    at: Time,
    until: Time,
}

impl Iterator for BadPeriods<'_> {
    type Item = Period;

    fn next(&mut self) -> Option<Period> {
        let bad = self.errors.first_bad(self.at, self.until)?;
        self.at = bad.end;
        Some(Period { start: bad.start, end: bad.end.min(self.until) })
    }
}

fn merged(outages: &[Outage]) -> Vec<Period> {
    let mut all: Vec<Period> = outages.iter().map(|o| Period { start: o.start, end: o.start + o.length }).collect();
    all.sort_by_key(|p| p.start);
    all.dedup_by(|next, kept| {
        let joins = next.start <= kept.end;
        if joins {
            kept.end = kept.end.max(next.end);
        }
        joins
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ms(distribution: Distribution, mean: Duration, n: u32) -> f64 {
        let mut rng = Rng::stream(3, "test");
        (0..n).map(|_| distribution.draw(&mut rng, mean).as_secs_f64() * 1e3).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn distribution_has_the_configured_mean() {
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
    fn uniform_lengths_are_uniform_on_the_grid() {
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
    fn exponential_lengths_have_the_tail_of_the_law() {
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
