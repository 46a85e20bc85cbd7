//! The schedule behind a lock, and the threads that sleep while it is empty.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remora_vfs::FlushKey;

use super::fair_queue::Turn;
use super::schedule::{Assignment, Schedule};
use super::serial_queues::SerialKey;

/// A job, and how it is queued.
#[derive(Debug)]
pub(super) struct QueuedJob<J> {
    pub(super) turn: Turn,
    pub(super) key: Option<SerialKey>,
    pub(super) job: J,
}

/// A job that waits for a flush.
#[derive(Debug)]
pub(super) struct ParkedJob<P> {
    pub(super) turn: Turn,
    pub(super) key: FlushKey,
    pub(super) job: P,
}

/// What the threads of a pool share. Its lock is held for single operations of the schedule only.
#[derive(Debug)]
pub(super) struct JobQueue<J, P> {
    state: Mutex<State<J, P>>,
    /// For threads without work.
    arrived: Condvar,
    /// For a thread that waits until its group is complete.
    joined: Condvar,
    /// For the thread that [watches for shortages](JobQueue::await_shortage).
    shortage: Condvar,
}

#[derive(Debug)]
struct State<J, P> {
    schedule: Schedule<J, P>,
    is_closed: bool,
    /// Threads that sleep.
    sleepers: usize,
    /// Whether one of them is notified and does not run yet. The next one is notified when it runs, if tasks are left.
    is_waking: bool,
    /// Whether a thread waits for a shortage.
    is_watched: bool,
    /// Threads that wait until their group is complete.
    gathering: usize,
}

impl<J, P> State<J, P> {
    /// Whether tasks wait and every thread is at work.
    fn is_short(&self) -> bool {
        self.schedule.has_tasks() && self.sleepers == 0
    }
}

impl<J, P> Default for JobQueue<J, P> {
    fn default() -> JobQueue<J, P> {
        let schedule = Schedule::default();
        let state =
            State { schedule, is_closed: false, sleepers: 0, is_waking: false, is_watched: false, gathering: 0 };
        JobQueue { state: Mutex::new(state), arrived: Condvar::new(), joined: Condvar::new(), shortage: Condvar::new() }
    }
}

impl<J, P> JobQueue<J, P> {
    /// Adds jobs, and wakes a thread when all are there. A closed queue drops them.
    pub(super) fn push(&self, jobs: impl IntoIterator<Item = QueuedJob<J>>) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        jobs.into_iter().for_each(|QueuedJob { turn, key, job }| state.schedule.push(turn, key, job));
        self.wake(state);
    }

    /// The next assignment. `None` when none has come for `patience`, or the queue is closed.
    pub(super) fn next(&self, patience: Duration) -> Option<Assignment<J>> {
        let mut state = self.lock();
        let mut is_late = false;
        loop {
            if let Some(assigned) = state.schedule.assign() {
                self.wake(state);
                return Some(assigned);
            }
            if state.is_closed || is_late {
                return None;
            }
            state.sleepers += 1;
            let (woken, timeout) = self.arrived.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            (state, is_late) = (woken, timeout.timed_out());
            state.sleepers -= 1;
            state.is_waking = false;
        }
    }

    /// The next job of the serial queue that the caller runs; `None` ends the run.
    pub(super) fn next_serial(&self, key: SerialKey) -> Option<J> {
        self.lock().schedule.next_serial(key)
    }

    /// Ends the run of a serial queue early. Wakes no thread: the caller asks for the [next](JobQueue::next) assignment.
    pub(super) fn leave_serial(&self, key: SerialKey) {
        self.lock().schedule.leave_serial(key);
    }

    /// Adds jobs that wait for flushes. Wakes a thread for the flushes only if the caller does not ask for the
    /// [next](JobQueue::next) assignment (`is_busy`).
    pub(super) fn park(&self, jobs: impl IntoIterator<Item = ParkedJob<P>>, is_busy: bool) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        jobs.into_iter().for_each(|ParkedJob { turn, key, job }| state.schedule.park(turn, key, job));
        if state.gathering > 0 {
            self.joined.notify_all();
        }
        if is_busy {
            self.wake(state);
        }
    }

    /// The jobs that share a flush, which the caller does. Waits until the group is complete, for at most what `patience`
    /// returns for its first job.
    pub(super) fn take_group(&self, key: FlushKey, patience: impl FnOnce(&P) -> Duration) -> Vec<P> {
        let mut state = self.lock();
        let patience = state.schedule.groups.first(key).map_or(Duration::ZERO, patience);
        if !patience.is_zero() && state.schedule.groups.is_incomplete(key) {
            state.gathering += 1;
            let is_incomplete = |s: &mut State<J, P>| s.schedule.groups.is_incomplete(key);
            let waited = self.joined.wait_timeout_while(state, patience, is_incomplete);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.gathering -= 1;
        }
        state.schedule.groups.take(key)
    }

    /// Ends a flush, and wakes a thread if jobs wait for the next one.
    pub(super) fn end_flush(&self, key: FlushKey) {
        let mut state = self.lock();
        state.schedule.end_flush(key);
        self.wake(state);
    }

    /// Drops what waits and ends the threads.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let dropped = std::mem::take(&mut state.schedule);
        drop(state);
        drop(dropped);
        self.arrived.notify_all();
        self.shortage.notify_all();
    }

    /// Waits until tasks wait and every thread is at work. Returns false once the queue is closed.
    pub(super) fn await_shortage(&self) -> bool {
        let is_fine = |state: &mut State<J, P>| {
            state.is_watched = !state.is_short() && !state.is_closed;
            state.is_watched
        };
        !self.shortage.wait_while(self.lock(), is_fine).unwrap_or_else(PoisonError::into_inner).is_closed
    }

    /// Sleeps for `pause`. Returns false once the queue is closed.
    pub(super) fn sleep(&self, pause: Duration) -> bool {
        let is_open = |state: &mut State<J, P>| !state.is_closed;
        let slept = self.shortage.wait_timeout_while(self.lock(), pause, is_open);
        !slept.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    /// The number of tasks that wait while every thread is at work.
    pub(super) fn shortage(&self) -> usize {
        let state = self.lock();
        if state.is_short() { state.schedule.waiting() } else { 0 }
    }

    /// Wakes a thread if tasks wait. If all threads are at work, wakes the thread that watches for that.
    fn wake(&self, mut state: MutexGuard<'_, State<J, P>>) {
        let wakes = state.schedule.has_tasks() && state.sleepers > 0 && !state.is_waking;
        state.is_waking |= wakes;
        let calls = state.is_watched && state.is_short();
        state.is_watched &= !calls;
        drop(state);
        if wakes {
            self.arrived.notify_one();
        }
        if calls {
            self.shortage.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J, P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    /// No test waits as long.
    const LONG: Duration = Duration::from_secs(60);
    const KEY: FlushKey = FlushKey { disk: 1, object: 1, depth: 0 };

    type Queue = JobQueue<usize, usize>;

    fn job(client: usize, job: usize) -> [QueuedJob<usize>; 1] {
        [QueuedJob { turn: Turn::test(client as u8), key: None, job }]
    }

    fn parked(job: usize) -> [ParkedJob<usize>; 1] {
        [ParkedJob { turn: Turn::test(1), key: KEY, job }]
    }

    fn pop(queue: &Queue) -> Option<usize> {
        match queue.next(LONG) {
            Some(Assignment::Job(job)) => Some(job),
            _ => None,
        }
    }

    fn await_sleeper(queue: &Queue) {
        while queue.lock().sleepers == 0 {
            std::thread::yield_now();
        }
    }

    /// A lost wake-up would leave a job in the queue for ever.
    #[test]
    fn every_job_finds_a_thread_in_any_interleaving() {
        const JOBS: usize = 20_000;
        let (queue, (done, results)) = (Arc::new(Queue::default()), mpsc::channel());
        let threads = [0; 3].map(|_| {
            let (queue, done) = (queue.clone(), done.clone());
            std::thread::spawn(move || {
                while let Some(job) = pop(&queue) {
                    done.send(job).unwrap()
                }
            })
        });
        let mut seen = vec![false; JOBS];
        let mut await_jobs = |n: usize| {
            (0..n).for_each(|_| seen[results.recv_timeout(LONG).expect("a job was left behind")] = true);
        };
        for n in 0..JOBS {
            queue.push(job(n % 3, n));
            // One at a time at first, so that all threads fall asleep in between; then in bursts of 64.
            match n {
                n if n < JOBS / 4 => await_jobs(1),
                n if n % 64 == 63 || n == JOBS - 1 => await_jobs(n + 1 - (JOBS / 4).max(n / 64 * 64)),
                _ => {}
            }
        }
        assert!(seen.iter().all(|seen| *seen));
        queue.close();
        queue.push(job(0, 0));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(queue.next(LONG).is_none() && queue.shortage() == 0, "a closed queue takes no jobs");
    }

    #[test]
    fn shortage_is_noticed_when_every_thread_is_at_work() {
        let queue = Arc::new(Queue::default());
        let with = |f: fn(&Queue) -> bool| {
            let queue = queue.clone();
            std::thread::spawn(move || f(&queue))
        };
        let thread = with(|queue| pop(queue) == Some(0));
        await_sleeper(&queue);
        queue.push(job(0, 0));
        assert!(thread.join().unwrap());
        assert_eq!(queue.shortage(), 0, "a thread slept");
        let watcher = with(Queue::await_shortage);
        queue.push(job(0, 1).into_iter().chain(job(0, 2)));
        assert!(watcher.join().unwrap());
        assert_eq!(queue.shortage(), 2);
        assert_eq!([pop(&queue), pop(&queue)], [Some(1), Some(2)]);
        let watcher = with(Queue::await_shortage);
        queue.close();
        assert!(!watcher.join().unwrap() && !queue.sleep(LONG), "a closed queue has no shortage");
    }

    #[test]
    fn thread_that_leaves_wakes_another_for_its_flush() {
        let queue = Arc::new(Queue::default());
        let sleeper = std::thread::spawn({
            let queue = queue.clone();
            move || matches!(queue.next(LONG), Some(Assignment::Flush(KEY)))
        });
        await_sleeper(&queue);
        queue.park(parked(1), false);
        assert_eq!(queue.lock().sleepers, 1, "the caller takes the flush");
        queue.push([]);
        assert!(sleeper.join().unwrap());
    }

    #[test]
    fn flush_waits_until_its_group_is_complete() {
        let queue = Queue::default();
        let flush = |patience: Duration| {
            assert!(matches!(queue.next(LONG), Some(Assignment::Flush(KEY))));
            let jobs = queue.take_group(KEY, |_| patience);
            queue.end_flush(KEY);
            jobs
        };
        queue.park(parked(1).into_iter().chain(parked(2)), false);
        assert_eq!(flush(LONG), [1, 2], "nothing is known yet");
        queue.park(parked(3), false);
        std::thread::scope(|scope| {
            let both = scope.spawn(|| flush(LONG));
            while queue.lock().gathering == 0 {
                std::thread::yield_now();
            }
            queue.park(parked(4), true);
            assert_eq!(both.join().unwrap(), [3, 4]);
        });
        queue.park(parked(5), false);
        let began = Instant::now();
        assert_eq!(flush(Duration::from_millis(2)), [5]);
        assert!(began.elapsed() >= Duration::from_millis(2));
        queue.park(parked(6), false);
        assert_eq!(flush(LONG), [6], "a lone client waits for nobody");
    }
}
