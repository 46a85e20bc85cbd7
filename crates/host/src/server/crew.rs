//! The threads that wait for disks, and whether they do.
//!
//! A thread that is not running and not ready to run while it has a task waits for a disk (or for another thread that
//! does). Only the system knows which: proc_pid_stat(5) says it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use rustix::thread::gettid;

/// Those that are there, by the system's numbers.
#[derive(Debug, Default)]
pub(super) struct Crew {
    there: Mutex<Vec<Pid>>,
}

/// That a thread is there, until it is dropped there.
pub(super) struct There<'a> {
    crew: &'a Crew,
    thread: Pid,
}

impl Crew {
    /// The thread that calls is one of them from now on.
    pub(super) fn join(&self) -> There<'_> {
        let thread = gettid();
        self.lock().push(thread);
        There { crew: self, thread }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether fewer than `processors` of them run or could. `None` where the system does not say.
    pub(super) fn is_held_up(&self, processors: usize) -> Option<bool> {
        // None of them is kept waiting for this: reading takes longer than coming and going.
        let threads = self.lock().clone();
        let (mut running, mut known) = (0, false);
        for runs in threads.into_iter().filter_map(runs) {
            known = true;
            running += usize::from(runs);
            if running >= processors {
                return Some(false);
            }
        }
        known.then_some(true)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for There<'_> {
    fn drop(&mut self) {
        self.crew.lock().retain(|thread| *thread != self.thread);
    }
}

/// Whether this thread of ours runs or could; `None` if it has gone, or nobody says.
fn runs(thread: Pid) -> Option<bool> {
    let stat = std::fs::read(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero())).ok()?;
    // Its name comes before, in parentheses, and may have some of its own.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(stat.get(name_end + 2)? == &b'R')
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    /// Whether they come to be held up, or not.
    fn comes_to_be(crew: &Crew, held_up: bool) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while crew.is_held_up(1) != Some(held_up) {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    #[test]
    fn who_runs_is_told_from_who_waits_and_who_has_gone_is_neither() {
        let crew = Crew::default();
        assert_eq!((crew.is_held_up(1), crew.len()), (None, 0), "there is nobody");
        let (end, ended) = channel::<()>();
        let busy = AtomicBool::new(true);
        std::thread::scope(|threads| {
            let crew = &crew;
            threads.spawn(move || {
                let _there = crew.join();
                ended.recv().ok();
            });
            assert!(comes_to_be(crew, true), "it waits");
            threads.spawn(|| {
                let _there = crew.join();
                while busy.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            assert!(comes_to_be(crew, false), "one of the two runs");
            assert_eq!((crew.is_held_up(2), crew.len()), (Some(true), 2), "but not both");
            busy.store(false, Relaxed);
            drop(end);
        });
        assert_eq!(crew.len(), 0);
    }
}
