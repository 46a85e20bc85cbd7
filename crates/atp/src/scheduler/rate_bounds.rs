//! Bandwidth bounds (`callback(cb, low, high)` in ATP 02): one upcall when the bandwidth leaves them.
//!
//! Two rules prevent cascades while the estimate varies: a bound counts as crossed one sixteenth beyond it, and
//! upcalls are at least half a second apart. An upcall removes the bounds. New bounds that are already crossed fire
//! at once, subject to the second rule.

use std::time::Duration;

use remora_base::{Rate, Time};

use crate::object::{Side, Upcall};

/// Minimum time between two upcalls.
const APART: Duration = Duration::from_millis(500);

/// The registered bounds, and the time of the last upcall.
#[derive(Debug, Default)]
pub(super) struct RateBounds {
    registered: Option<(Option<Rate>, Option<Rate>)>,
    last: Option<Time>,
    /// The estimate; `None` before the first, `Some(None)` in a blackout.
    rate: Option<Option<Rate>>,
}

impl RateBounds {
    /// Replaces the bounds. Without any bound, removes them.
    pub(super) fn register(&mut self, now: Time, low: Option<Rate>, high: Option<Rate>) -> Option<Upcall> {
        self.registered = (low.is_some() || high.is_some()).then_some((low, high));
        self.check(now)
    }

    /// Sets the estimate; `None` in a blackout.
    pub(super) fn estimate(&mut self, now: Time, rate: Option<Rate>) -> Option<Upcall> {
        self.rate = Some(rate);
        self.check(now)
    }

    /// Fires if a bound is crossed and the time has come.
    pub(super) fn check(&mut self, now: Time) -> Option<Upcall> {
        let side = self.crossed()?;
        if self.earliest().is_some_and(|at| now < at) {
            return None;
        }
        self.registered = None;
        self.last = Some(now);
        Some(Upcall::Bandwidth { rate: self.rate?, side })
    }

    /// Whether bounds are registered.
    pub(super) fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// When a delayed upcall is due.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.crossed().and_then(|_| self.earliest())
    }

    fn earliest(&self) -> Option<Time> {
        self.last.map(|at| at + APART)
    }

    fn crossed(&self) -> Option<Side> {
        let (low, high) = self.registered?;
        let rate = self.rate?.map_or(0, Rate::bits);
        if low.is_some_and(|low| rate < low.bits() - low.bits() / 16) {
            return Some(Side::Below);
        }
        high.is_some_and(|high| rate > high.bits().saturating_add(high.bits() / 16)).then_some(Side::Above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kbit(k: u64) -> Option<Rate> {
        Rate::from_bits(k * 1000)
    }

    #[test]
    fn fires_once_beyond_a_sixteenth_and_not_twice_in_half_a_second() {
        let ms = Time::from_millis;
        let mut b = RateBounds::default();
        assert_eq!(b.register(ms(0), kbit(160), kbit(320)), None, "no estimate yet");
        assert_eq!(b.estimate(ms(10), kbit(200)), None);
        assert_eq!(b.estimate(ms(20), kbit(151)), None, "within a sixteenth");
        let below = |rate| Some(Upcall::Bandwidth { rate, side: Side::Below });
        assert_eq!(b.estimate(ms(30), kbit(149)), below(kbit(149)));
        assert_eq!(b.estimate(ms(40), kbit(100)), None, "registered no more");
        assert_eq!(b.poll_timeout(), None);
        assert_eq!(b.register(ms(50), kbit(160), kbit(320)), None, "too soon");
        assert_eq!(b.poll_timeout(), Some(ms(530)));
        assert_eq!(b.check(ms(529)), None);
        assert_eq!(b.check(ms(530)), below(kbit(100)));
        assert_eq!(b.register(ms(2000), None, kbit(320)), None);
        assert_eq!(b.estimate(ms(2010), None), None, "nothing gets through, and no lower bound");
        let above = Upcall::Bandwidth { rate: kbit(341), side: Side::Above };
        assert_eq!(b.estimate(ms(2020), kbit(341)), Some(above));
        assert_eq!(b.register(ms(3000), kbit(160), None), None);
        assert_eq!(b.estimate(ms(3001), None), below(None));
        b.register(ms(3002), kbit(1000), None);
        b.register(ms(3003), None, None);
        assert!(!b.is_registered() && b.check(ms(9000)).is_none());
    }
}
