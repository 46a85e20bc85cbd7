//! The weather: when the channel is bad. Bursts and outages merged into one timeline that
//! anyone may ask, before, during or after a run, in any order, with the same answer.

use std::time::Duration;

use remora_base::Time;

use crate::burst::Bursts;
use crate::config::{Config, ConfigError, ErrorModel, Outage};

/// Bad periods looked at for one frame that waits for a fit, before it is called hopeless.
const FIT_PERIODS_MAX: u32 = 8192;
/// Bad periods counted by [`Weather::good_fraction`].
const COUNT_PERIODS_MAX: usize = 1 << 20;

/// A stretch of time: `start` belongs to it, `end` does not; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// Its first moment.
    pub start: Time,
    /// The first moment after it.
    pub end: Time,
}

/// The good and bad periods of one channel: a pure function of its configuration's errors and
/// outages, the seed and the time. The bursts begin good at time zero.
///
/// Queries take `&mut self` because periods are generated when first asked for. Memory is
/// bounded (two spans of some 4096 periods, and the outages), and so is the work of a query at
/// any time up to [`Time::MAX`]; queries over a range take time in proportion to the range, up
/// to the limit each one names.
#[derive(Clone, Debug)]
pub struct Weather {
    bursts: Option<Bursts>,
    /// Sorted, and apart from one another.
    outages: Vec<Period>,
}

impl Weather {
    /// The weather of every channel made from this configuration and seed.
    pub fn new(config: &Config, seed: u64) -> Result<Weather, ConfigError> {
        config.validate()?;
        let bursts = match config.errors {
            ErrorModel::TwoState { distribution, good_mean, bad_mean } if !bad_mean.is_zero() => {
                Some(Bursts::new(distribution, good_mean, bad_mean, seed))
            }
            ErrorModel::TwoState { .. } | ErrorModel::None => None,
        };
        Ok(Weather { bursts, outages: merged(&config.outages) })
    }

    /// Whether the channel is bad at `t`.
    pub fn is_bad(&mut self, t: Time) -> bool {
        self.touching(t).is_some()
    }

    /// Whether any part of `start..end` is bad: a frame with this airtime dies.
    pub fn bad_overlaps(&mut self, start: Time, end: Time) -> bool {
        self.first_raw(start, end).is_some()
    }

    /// The bad periods in `from..until` in order, clipped to that range. None touches the next.
    pub fn bad_periods(&mut self, from: Time, until: Time) -> BadPeriods<'_> {
        BadPeriods { weather: self, at: from, until }
    }

    /// The share of good time from zero to `until` (1 for an empty range). After 2^20 bad
    /// periods, about 13 days with the papers' means, it stops and answers for those.
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

    /// The first moment from `from` on at which `airtime` of good time begins. `None` if there
    /// is none among the next 8192 good periods: the frame is too long for this weather, or an
    /// outage never ends.
    pub fn first_fit(&mut self, from: Time, airtime: Duration) -> Option<Time> {
        self.first_fit_of(from, |at| Period { start: at, end: at + airtime })
    }

    /// [`first_fit`](Weather::first_fit) of what takes the time `span(at)` if it is sent at `at`.
    pub(crate) fn first_fit_of(&mut self, from: Time, span: impl Fn(Time) -> Period) -> Option<Time> {
        let mut budget = FIT_PERIODS_MAX;
        self.first_fit_within(from, &mut budget, span)
    }

    /// [`first_fit_of`](Weather::first_fit_of), taking the periods it passes over from `budget`.
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

    /// The first bad period that ends after `from` and begins before `until`, its start clipped
    /// to `from`, its end where good weather begins.
    pub(crate) fn first_bad(&mut self, from: Time, until: Time) -> Option<Period> {
        let mut bad = self.first_raw(from, until)?;
        bad.start = bad.start.max(from);
        // Ends soon: no two outages touch, every span has good time, and so every step uses up an
        // outage or one of a span's few bursts in a row.
        while let Some(next) = self.touching(bad.end) {
            bad.end = next.end;
        }
        Some(bad)
    }

    /// A burst or an outage that contains `t`.
    fn touching(&mut self, t: Time) -> Option<Period> {
        self.first_raw(t, t + Duration::from_nanos(1))
    }

    /// The burst or outage that begins first, of those that end after `from` and begin before
    /// `until`; unmerged.
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

/// The bad periods of a range, in order; made by [`Weather::bad_periods`].
#[derive(Debug)]
pub struct BadPeriods<'a> {
    weather: &'a mut Weather,
    at: Time,
    until: Time,
}

impl Iterator for BadPeriods<'_> {
    type Item = Period;

    fn next(&mut self) -> Option<Period> {
        let bad = self.weather.first_bad(self.at, self.until)?;
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
