//! When one syncfs(2) for many is better than an fsync(2) for each.
//!
//! Where a file system has no journal a new file must be synced beside its name, so new files
//! cannot share the sync of their directory, nor can files whose attributes change. They can
//! share that of the whole file system, which costs about as much as two of the others, unless
//! somebody has left much to write there. That is found out by trying.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What takes longer than this was not for the best.
const SLOW: Duration = Duration::from_millis(40);
/// After so many of those in a row it is left alone. One alone only shows that much had been left
/// to write, which is written now: to rest would let as much gather again.
const PATIENCE: u32 = 3;
/// For how long it is then not tried again.
const REST: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Together {
    start: Instant,
    /// Not before this many milliseconds after the start.
    not_before: AtomicU64,
    /// How many have been slow since the last that was not.
    slow: AtomicU32,
}

impl Together {
    pub(super) fn new() -> Together {
        Together { start: Instant::now(), not_before: AtomicU64::new(0), slow: AtomicU32::new(0) }
    }

    /// Whether to try it.
    pub(super) fn is_promising(&self) -> bool {
        self.now() >= self.not_before.load(Relaxed)
    }

    /// Does it, and learns from how long it took.
    pub(super) fn time<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = sync();
        if began.elapsed() <= SLOW {
            self.slow.store(0, Relaxed);
        } else if self.slow.fetch_add(1, Relaxed) + 1 >= PATIENCE {
            self.slow.store(0, Relaxed);
            self.not_before.store(self.now() + REST.as_millis() as u64, Relaxed);
        }
        done
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_again_and_again_is_left_alone_for_a_while() {
        let together = Together::new();
        let slow = || together.time(|| std::thread::sleep(SLOW + Duration::from_millis(1)));
        for resets in [true, false] {
            (1..PATIENCE).for_each(|_| slow());
            assert!(together.is_promising());
            if resets {
                together.time(|| ());
            }
        }
        slow();
        assert!(!together.is_promising());
    }
}
