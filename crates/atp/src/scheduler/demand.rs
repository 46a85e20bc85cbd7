//! How much each class lately asked for, so that a lower class does not count on bandwidth that
//! newcomers of a higher one will take.

use remora_base::Time;

use crate::object::Priority;

/// Bytes are counted over this and the one before.
const WINDOW_NS: u64 = 4_000_000_000;

/// Bytes asked for by level, in this window and the last.
#[derive(Debug, Default)]
pub(super) struct Demand {
    window: u64,
    last: [u64; Priority::LEVELS],
    this: [u64; Priority::LEVELS],
}

impl Demand {
    fn turn(&mut self, now: Time) {
        let window = now.as_nanos() / WINDOW_NS;
        if window != self.window {
            self.last = if window == self.window + 1 { self.this } else { [0; Priority::LEVELS] };
            self.this = [0; Priority::LEVELS];
            self.window = window;
        }
    }

    /// Notes an object of `bytes` bytes on the wire.
    pub(super) fn submitted(&mut self, now: Time, level: usize, bytes: u64) {
        self.turn(now);
        self.this[level] = self.this[level].saturating_add(bytes);
    }

    /// For each level, bytes a second that the levels above it ask for.
    pub(super) fn above(&mut self, now: Time) -> [f64; Priority::LEVELS] {
        self.turn(now);
        let seconds = (WINDOW_NS + now.as_nanos() % WINDOW_NS) as f64 / 1e9;
        let mut above = [0.0; Priority::LEVELS];
        for level in (0..Priority::LEVELS - 1).rev() {
            let bytes = self.last[level + 1].saturating_add(self.this[level + 1]);
            above[level] = above[level + 1] + bytes as f64 / seconds;
        }
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_demand_is_seen_by_the_levels_below_it_and_forgotten() {
        let mut demand = Demand::default();
        for half in 0..40 {
            demand.submitted(Time::from_millis(half * 500), 12, 4000);
        }
        let above = demand.above(Time::from_secs(20) - std::time::Duration::from_nanos(1));
        assert!((above[4] - 8000.0).abs() < 50.0 && above[4] == above[11], "{above:?}");
        assert_eq!(above[12], 0.0);
        assert_eq!(demand.above(Time::from_secs(28))[4], 0.0);
    }
}
