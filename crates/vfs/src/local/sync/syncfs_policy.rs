//! When one syncfs(2) for many is better than an fsync(2) for each.
//!
//! Where a file system has no journal a new file must be synced beside its name, so new files
//! cannot share the sync of their directory, nor can files whose attributes change. They can
//! share that of the whole file system, which costs about as much as two of the others, unless
//! somebody has left much to write there: then it takes seconds. Whether somebody has is found out by trying, for
//! what the system tells is of all disks policy. One that was slow is no reason to stop once little is left to be
//! written anywhere; otherwise whoever left that goes on, and it is tried again when it has been done without for
//! many times as long as it took.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What takes longer than this was not for the best.
const SLOW: Duration = Duration::from_millis(40);
/// It is then not tried again for so many times as long as it took, and no longer than [`REST_MAX`].
const REST: u32 = 20;
const REST_MAX: Duration = Duration::from_secs(60);
/// So many bytes are soon written.
const LITTLE: u64 = 4 << 20;
/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct SyncfsPolicy {
    start: Instant,
    /// Not before this many milliseconds after the start, unless little is to be written.
    not_before: AtomicU64,
    sample: Mutex<Option<DirtySample>>,
}

/// What a look at the system told.
#[derive(Clone, Copy)]
struct DirtySample {
    at: Instant,
    little: bool,
}

impl SyncfsPolicy {
    pub(crate) fn new() -> SyncfsPolicy {
        SyncfsPolicy { start: Instant::now(), not_before: AtomicU64::new(0), sample: Mutex::default() }
    }

    /// Whether to try it.
    pub(crate) fn is_worthwhile(&self) -> bool {
        self.is_worthwhile_if(unwritten)
    }

    /// `unwritten`: so many bytes are to be written to some disk, if that is known.
    fn is_worthwhile_if(&self, unwritten: impl FnOnce() -> Option<u64>) -> bool {
        if self.now() >= self.not_before.load(Relaxed) {
            return true;
        }
        let mut sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = sample.filter(|sample| sample.at.elapsed() < LOOK_EVERY);
        let sample = sample.insert(fresh.unwrap_or_else(|| {
            let little = unwritten().is_some_and(|bytes| bytes <= LITTLE);
            DirtySample { at: Instant::now(), little }
        }));
        sample.little
    }

    /// Does it, and learns from how long it took.
    pub(crate) fn time<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = sync();
        let took = began.elapsed();
        let not_before = if took <= SLOW { 0 } else { self.now() + millis(took.saturating_mul(REST).min(REST_MAX)) };
        self.not_before.store(not_before, Relaxed);
        done
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// The bytes that are to be written to some disk, or on their way there: see proc_vmstat(5).
fn unwritten() -> Option<u64> {
    let pages = pages_unwritten(&fs::read_to_string("/proc/vmstat").ok()?)?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

fn pages_unwritten(vmstat: &str) -> Option<u64> {
    let count = |name: &str| {
        let rest = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        rest.trim().parse::<u64>().ok()
    };
    count("nr_dirty")?.checked_add(count("nr_writeback")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(policy: &SyncfsPolicy) {
        policy.time(|| std::thread::sleep(SLOW + Duration::from_millis(1)));
    }

    #[test]
    fn what_was_slow_is_left_alone_while_much_is_to_be_written() {
        let policy = SyncfsPolicy::new();
        assert!(policy.is_worthwhile_if(|| panic!("nothing has been slow")));
        slow(&policy);
        let (began, mut looks) = (Instant::now(), 0);
        let mut much = || {
            looks += 1;
            Some(LITTLE + 1)
        };
        (0..1000).for_each(|_| assert!(!policy.is_worthwhile_if(&mut much)));
        assert!(looks <= 1 + began.elapsed().as_micros() / LOOK_EVERY.as_micros(), "{looks} looks");
        std::thread::sleep(LOOK_EVERY);
        assert!(!policy.is_worthwhile_if(|| None), "nobody knows");
        std::thread::sleep(LOOK_EVERY);
        assert!(policy.is_worthwhile_if(|| Some(LITTLE)));
        slow(&policy);
        let quick = |_| {
            policy.time(|| ());
            policy.is_worthwhile_if(|| None)
        };
        // One may have to wait for a processor.
        assert!((0..100).any(quick), "the last was not slow");
    }

    #[test]
    fn it_is_tried_again_after_many_times_as_long() {
        let policy = SyncfsPolicy::new();
        slow(&policy);
        let slow = Instant::now();
        while !policy.is_worthwhile_if(|| None) {
            assert!(slow.elapsed() < REST_MAX);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(slow.elapsed() >= SLOW * (REST - 1), "{:?}", slow.elapsed());
    }

    #[test]
    fn the_system_tells_what_is_unwritten() {
        let vmstat = "nr_free_pages 100\nnr_dirty 7\nnr_writeback 5\nnr_dirtied 1000\nnr_writeback_temp 3\n";
        assert_eq!(pages_unwritten(vmstat), Some(12));
        for broken in
            ["", "nr_dirty 7\n", "nr_dirty x\nnr_writeback 5\n", "nr_dirty 18446744073709551615\nnr_writeback 1\n"]
        {
            assert_eq!(pages_unwritten(broken), None, "{broken:?}");
        }
        assert!(unwritten().is_some());
    }
}
