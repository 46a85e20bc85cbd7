//! Chooses between one syncfs(2) for many changes and an fsync(2) for each.
//!
//! Without a journal, a new file needs an fsync(2) beside that of its directory, so new files cannot share one; neither
//! can files whose attributes change. They can share a syncfs(2), which costs about as much as two fsync(2). But it
//! also writes the dirty data of every other program, which may take seconds. The kernel reports dirty data of all
//! disks together only, so the policy tries: after a slow syncfs(2) it uses fsync(2) for many times as long as that
//! took, or until is_small is dirty anywhere.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A syncfs(2) that takes longer is slow.
const SLOW: Duration = Duration::from_millis(40);
/// After a slow syncfs(2), it is avoided for this many times its duration, at most [`AVOID_MAX`].
const AVOID_TIMES: u32 = 20;
const AVOID_MAX: Duration = Duration::from_secs(60);
/// So few dirty bytes are written soon.
const DIRTY_SMALL_BYTES: u64 = 4 << 20;
/// How often the dirty bytes are read.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// The policy of one export.
#[derive(Default)]
pub(crate) struct SyncfsPolicy(Mutex<State>);

#[derive(Default)]
struct State {
    /// Until then syncfs(2) is avoided, unless little is dirty.
    avoid_until: Option<Instant>,
    sample: Option<DirtySample>,
}

/// A reading of the dirty bytes.
#[derive(Clone, Copy)]
struct DirtySample {
    at: Instant,
    is_small: bool,
}

impl SyncfsPolicy {
    pub(crate) fn new() -> SyncfsPolicy {
        SyncfsPolicy::default()
    }

    /// Whether to use syncfs(2).
    pub(crate) fn is_worthwhile(&self) -> bool {
        self.lock().is_worthwhile(Instant::now(), dirty_bytes)
    }

    /// Runs a syncfs(2) and learns from its duration.
    pub(crate) fn time<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = sync();
        let now = Instant::now();
        self.lock().record(now, now.saturating_duration_since(began));
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `dirty_bytes` reads the dirty bytes of all disks, if known.
    fn is_worthwhile(&mut self, now: Instant, dirty_bytes: impl FnOnce() -> Option<u64>) -> bool {
        if self.avoid_until.is_none_or(|until| now >= until) {
            return true;
        }
        let fresh = self.sample.filter(|sample| now.saturating_duration_since(sample.at) < SAMPLE_EVERY);
        let read = || DirtySample { at: now, is_small: dirty_bytes().is_some_and(|bytes| bytes <= DIRTY_SMALL_BYTES) };
        self.sample.insert(fresh.unwrap_or_else(read)).is_small
    }

    /// A syncfs(2) that ended at `now` took this long.
    fn record(&mut self, now: Instant, took: Duration) {
        let avoid_for = took.saturating_mul(AVOID_TIMES).min(AVOID_MAX);
        self.avoid_until = (took > SLOW).then_some(now + avoid_for);
    }
}

/// The bytes that are dirty or under write-back on all disks: see proc_vmstat(5).
fn dirty_bytes() -> Option<u64> {
    let pages = dirty_pages(&fs::read_to_string("/proc/vmstat").ok()?)?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

fn dirty_pages(vmstat: &str) -> Option<u64> {
    let count = |name: &str| {
        let rest = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        rest.trim().parse::<u64>().ok()
    };
    count("nr_dirty")?.checked_add(count("nr_writeback")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn slow_syncfs_is_avoided_while_much_is_dirty() {
        let (mut state, start) = (State::default(), Instant::now());
        assert!(state.is_worthwhile(start, || panic!("no syncfs(2) was slow")));
        state.record(start, SLOW + MS);
        assert!(!state.is_worthwhile(start, || Some(DIRTY_SMALL_BYTES + 1)));
        assert!(!state.is_worthwhile(start + SAMPLE_EVERY - MS, || panic!("the sample is fresh")));
        assert!(!state.is_worthwhile(start + SAMPLE_EVERY, || None), "unknown counts as much");
        assert!(state.is_worthwhile(start + 2 * SAMPLE_EVERY, || Some(DIRTY_SMALL_BYTES)));
        state.record(start + 2 * SAMPLE_EVERY, SLOW);
        assert!(state.is_worthwhile(start + 2 * SAMPLE_EVERY, || panic!("the last one was quick")));
    }

    #[test]
    fn slow_syncfs_is_retried_after_a_multiple() {
        for (took, avoided) in [(2 * SLOW, 2 * SLOW * AVOID_TIMES), (AVOID_MAX, AVOID_MAX)] {
            let (mut state, start) = (State::default(), Instant::now());
            state.record(start, took);
            assert!(!state.is_worthwhile(start + avoided - MS, || None), "{took:?}");
            assert!(state.is_worthwhile(start + avoided, || None), "{took:?}");
        }
    }

    #[test]
    fn dirty_pages_are_read_from_vmstat() {
        let vmstat = "nr_free_pages 100\nnr_dirty 7\nnr_writeback 5\nnr_dirtied 1000\nnr_writeback_temp 3\n";
        assert_eq!(dirty_pages(vmstat), Some(12));
        for broken in
            ["", "nr_dirty 7\n", "nr_dirty x\nnr_writeback 5\n", "nr_dirty 18446744073709551615\nnr_writeback 1\n"]
        {
            assert_eq!(dirty_pages(broken), None, "{broken:?}");
        }
        assert!(dirty_bytes().is_some());
    }
}
