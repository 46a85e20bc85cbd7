use std::ops::{Add, AddAssign};

/// A moment since the run's start, or a duration, in picoseconds (range: 0 to 213 days). At 10
/// Gbit/s a bit takes 100 ps, and a nanosecond would round a short packet by percents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Tick(u64);

impl Tick {
    pub(crate) const ZERO: Tick = Tick(0);
    pub(crate) const NANOSECOND: Tick = Tick(1000);
    /// The end of time.
    pub(crate) const MAX: Tick = Tick(u64::MAX);

    /// The nearest to `seconds`; too long ones are [`Tick::MAX`], negative ones and NaN are 0.
    pub(crate) fn of(seconds: f64) -> Tick {
        // A cast saturates and turns NaN into 0.
        Tick((seconds * 1e12).round() as u64)
    }

    pub(crate) const fn of_picoseconds(picoseconds: u64) -> Tick {
        Tick(picoseconds)
    }

    pub(crate) const fn picoseconds(self) -> u64 {
        self.0
    }

    pub(crate) fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// Duration since `earlier`; 0 if `earlier` is later.
    pub(crate) fn since(self, earlier: Tick) -> Tick {
        Tick(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn times(self, n: u64) -> Tick {
        Tick(self.0.saturating_mul(n))
    }

    /// How many times `step` fits in, rounded up; 0 if `step` is 0.
    pub(crate) fn steps(self, step: Tick) -> u64 {
        if step.0 == 0 { 0 } else { self.0.div_ceil(step.0) }
    }
}

impl Add for Tick {
    type Output = Tick;
    fn add(self, more: Tick) -> Tick {
        Tick(self.0.saturating_add(more.0))
    }
}

impl AddAssign for Tick {
    fn add_assign(&mut self, more: Tick) {
        *self = *self + more;
    }
}
