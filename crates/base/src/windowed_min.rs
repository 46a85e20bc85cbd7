//! The minimum of a sliding window, at the cost of two values.

use std::time::Duration;

use crate::Time;

/// The smallest value of the last one to two windows of `WINDOW_SECS` seconds.
///
/// The minimum of the window before counts until the current window is over, so that it never jumps for lack of samples. A
/// pause longer than a window does not age the values before it.
#[derive(Clone, Copy, Debug)]
pub struct WindowedMin<T, const WINDOW_SECS: u64> {
    began: Time,
    before: Option<T>,
    current: Option<T>,
}

impl<T, const WINDOW_SECS: u64> Default for WindowedMin<T, WINDOW_SECS> {
    fn default() -> Self {
        WindowedMin { began: Time::ZERO, before: None, current: None }
    }
}

impl<T: Ord + Copy, const WINDOW_SECS: u64> WindowedMin<T, WINDOW_SECS> {
    /// Adds a value.
    pub fn sample(&mut self, now: Time, value: T) {
        if now.since(self.began) > Duration::from_secs(WINDOW_SECS) {
            (self.before, self.current, self.began) = (self.current.or(self.before), None, now);
        }
        self.current = Some(self.current.map_or(value, |least| least.min(value)));
    }

    /// The minimum, if there was a sample.
    pub fn get(&self) -> Option<T> {
        [self.before, self.current].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_expires_after_one_to_two_windows() {
        let at = Time::from_secs;
        let mut min = WindowedMin::<u32, 10>::default();
        assert_eq!(min.get(), None);
        min.sample(at(20), 3);
        min.sample(at(25), 7);
        assert_eq!(min.get(), Some(3));
        min.sample(at(31), 5);
        assert_eq!(min.get(), Some(3), "the window before still counts");
        min.sample(at(42), 8);
        assert_eq!(min.get(), Some(5));
    }

    #[test]
    fn pause_longer_than_a_window_keeps_the_minimum() {
        let mut min = WindowedMin::<u32, 10>::default();
        min.sample(Time::from_secs(20), 3);
        min.sample(Time::from_secs(500), 9);
        assert_eq!(min.get(), Some(3));
    }
}
