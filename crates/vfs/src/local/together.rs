//! When one syncfs(2) for many is better than an fsync(2) for each.
//!
//! Where a file system has no journal a new file must be synced beside its name, so new files
//! cannot share the sync of their directory. They can share that of the whole file system,
//! which costs about as much as two of the others, unless somebody has left much to write
//! there. That is found out by trying.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What takes longer than this was not for the best.
const SLOW: Duration = Duration::from_millis(40);
/// For how long it is then not tried again.
const REST: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Together {
    start: Instant,
    /// Not before this many milliseconds after the start.
    not_before: AtomicU64,
}

impl Together {
    pub(super) fn new() -> Together {
        Together { start: Instant::now(), not_before: AtomicU64::new(0) }
    }

    /// Whether to try it.
    pub(super) fn is_promising(&self) -> bool {
        self.now() >= self.not_before.load(Relaxed)
    }

    /// Does it, and learns from how long it took.
    pub(super) fn time<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = sync();
        if began.elapsed() > SLOW {
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
    fn what_was_slow_is_left_alone_for_a_while() {
        let together = Together::new();
        together.time(|| ());
        assert!(together.is_promising());
        together.time(|| std::thread::sleep(SLOW + Duration::from_millis(1)));
        assert!(!together.is_promising());
    }
}
