//! The executor's threads: a fixed number, and extra ones while those wait for disks.
//!
//! A few threads per processor are enough for what is in memory. Threads that wait for a disk leave the processors idle
//! and the disk with few requests; on a disk that hangs they wait for ever. So when tasks wait, every thread has one, and
//! fewer threads run or are ready to run than there are processors, extra threads start, half as many again each time.
//! When tasks wait although the processors are busy, a quarter of the extra threads leaves; an idle one leaves by itself.
//! A disk that hangs with more than [`EXTRA_THREADS_MAX`] calls still stops the server.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::gettid;

use super::worker::{CompletionSink, ExecutorQueue, ExecutorWorker};
use crate::Clock;

/// Time between two looks: the first while extra threads start, the second at most. Two looks in a row must agree.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(80);
/// How long an extra thread stays idle.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Default limit of extra threads.
pub(crate) const EXTRA_THREADS_MAX: usize = 60;

/// The processors that the process may use.
pub(crate) fn available_processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// A pool of executor threads.
pub(crate) struct ExecutorPool {
    worker: ExecutorWorker,
    threads: Threads,
    extra: ExtraThreads,
}

impl ExecutorPool {
    /// Starts `n` threads (at least one), to which up to `extra_max` join, and the thread that starts those. They end
    /// when the queue is closed.
    pub(crate) fn start(
        queue: Arc<ExecutorQueue>,
        sink: Arc<dyn CompletionSink>,
        clock: Clock,
        n: usize,
        extra_max: usize,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        let extra = ExtraThreads { max: extra_max, running: AtomicUsize::new(0), leaving: AtomicUsize::new(0) };
        let pool = Arc::new(ExecutorPool {
            worker: ExecutorWorker { queue, sink, clock },
            threads: Threads::default(),
            extra,
        });
        let spawn = |i| {
            let pool = pool.clone();
            let work = move || {
                let _counted = pool.threads.enter();
                pool.worker.work_while(Duration::MAX, || true);
            };
            Builder::new().name(format!("disk-{i}")).spawn(work)
        };
        let mut threads = (0..n.max(1)).map(spawn).collect::<io::Result<Vec<_>>>()?;
        threads.push(Builder::new().name("disk-pool".into()).spawn(move || pool.scale())?);
        Ok(threads)
    }

    /// Starts and dismisses extra threads until the queue is closed.
    fn scale(self: Arc<ExecutorPool>) {
        let jobs = &self.worker.queue.jobs;
        while jobs.await_shortage() {
            let (mut pause, mut was_blocked) = (LOOK_MIN, false);
            while jobs.sleep(pause) {
                let waiting = jobs.shortage();
                if waiting == 0 {
                    self.extra.keep_all();
                    break;
                }
                let is_blocked = self.threads.are_blocked(available_processors());
                let started = if is_blocked && was_blocked { self.start_extra(waiting) } else { 0 };
                if is_blocked {
                    self.extra.keep_all();
                } else {
                    self.extra.dismiss_quarter();
                }
                let looks_soon = started > 0 || is_blocked && !was_blocked;
                pause = if looks_soon { LOOK_MIN } else { (2 * pause).min(LOOK_MAX) };
                was_blocked = is_blocked;
            }
        }
    }

    /// Starts half as many threads as there are, for at most `waiting` tasks. Returns how many started.
    fn start_extra(self: &Arc<ExecutorPool>, waiting: usize) -> usize {
        let wanted = (self.threads.lock().len() / 2).clamp(1, waiting);
        (0..wanted).take_while(|_| self.start_one()).count()
    }

    /// Returns false at the limit, and if the system has no thread now.
    fn start_one(self: &Arc<ExecutorPool>) -> bool {
        if !self.extra.enter() {
            return false;
        }
        let pool = self.clone();
        let work = move || {
            let counted = pool.threads.enter();
            pool.worker.work_while(IDLE_MAX, || !pool.extra.is_dismissed());
            drop(counted);
            pool.extra.leave();
        };
        let is_started = Builder::new().name("disk-extra".into()).spawn(work).is_ok();
        if !is_started {
            self.extra.leave();
        }
        is_started
    }
}

/// Counts extra threads.
struct ExtraThreads {
    max: usize,
    running: AtomicUsize,
    /// How many of them are to leave.
    leaving: AtomicUsize,
}

impl ExtraThreads {
    fn enter(&self) -> bool {
        self.keep_all();
        self.running.fetch_update(Relaxed, Relaxed, |n| (n < self.max).then_some(n + 1)).is_ok()
    }

    fn leave(&self) {
        self.running.fetch_sub(1, Relaxed);
    }

    fn keep_all(&self) {
        self.leaving.store(0, Relaxed);
    }

    fn dismiss_quarter(&self) {
        self.leaving.store(self.running.load(Relaxed).div_ceil(4), Relaxed);
    }

    /// Whether the calling thread is to leave.
    fn is_dismissed(&self) -> bool {
        self.leaving.load(Relaxed) > 0 && self.leaving.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok()
    }
}

/// The threads of a pool, by the system's numbers.
#[derive(Debug, Default)]
struct Threads(Mutex<Vec<Pid>>);

impl Threads {
    /// Counts the calling thread until the value is dropped.
    fn enter(&self) -> CountedThread<'_> {
        let thread = gettid();
        self.lock().push(thread);
        CountedThread { threads: self, thread }
    }

    /// Whether fewer than `processors` of them run or are ready to run (proc_pid_stat(5)). False without /proc.
    fn are_blocked(&self, processors: usize) -> bool {
        // A copy: reading takes longer than a thread may wait for the lock.
        let threads = self.lock().clone();
        let states: Vec<bool> = threads.into_iter().filter_map(is_running).collect();
        !states.is_empty() && states.into_iter().filter(|runs| *runs).count() < processors
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct CountedThread<'a> {
    threads: &'a Threads,
    thread: Pid,
}

impl Drop for CountedThread<'_> {
    fn drop(&mut self) {
        self.threads.lock().retain(|thread| *thread != self.thread);
    }
}

/// Whether a thread runs or is ready to run. `None` if it has ended, or without /proc.
fn is_running(thread: Pid) -> Option<bool> {
    let stat = std::fs::read(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero())).ok()?;
    // The state follows the name, which is in parentheses and may contain some.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(stat.get(name_end + 2)? == &b'R')
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    /// Waits until the threads are blocked, or are not.
    fn become_blocked(threads: &Threads, blocked: bool) -> bool {
        let until = Instant::now() + Duration::from_secs(60);
        while threads.are_blocked(1) != blocked && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        threads.are_blocked(1) == blocked
    }

    #[test]
    fn waiting_thread_is_blocked_and_running_thread_is_not() {
        let threads = Threads::default();
        assert!(!threads.are_blocked(1), "there is no thread");
        let (end, ended) = channel::<()>();
        let is_busy = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let threads = &threads;
            scope.spawn(move || {
                let _counted = threads.enter();
                ended.recv().ok();
            });
            assert!(become_blocked(threads, true), "the thread waits");
            scope.spawn(|| {
                let _counted = threads.enter();
                while is_busy.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            assert!(become_blocked(threads, false), "one of two threads runs");
            assert!(threads.are_blocked(2), "but not both");
            is_busy.store(false, Relaxed);
            drop(end);
        });
        assert!(threads.lock().is_empty());
    }

    #[test]
    fn extra_threads_are_bounded_and_a_quarter_is_dismissed() {
        let extra = ExtraThreads { max: 3, running: AtomicUsize::new(0), leaving: AtomicUsize::new(0) };
        assert_eq!([0; 4].map(|_| extra.enter()), [true, true, true, false]);
        assert!(!extra.is_dismissed());
        extra.dismiss_quarter();
        assert_eq!([extra.is_dismissed(), extra.is_dismissed()], [true, false], "a quarter of three");
        extra.dismiss_quarter();
        assert!(!extra.enter() && !extra.is_dismissed(), "a start ends the dismissal");
    }
}
