//! Tasks on their way to the executor threads, in the order they came.
//!
//! While there is work for everybody nobody takes a lock: the queue is a lock-free one, and
//! the lock here is only for those who have nothing to do and go to sleep, and for those who
//! wake them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_queue::SegQueue;

/// A queue without a bound of its own: what is in it is bounded by whoever fills it.
#[derive(Debug)]
pub(super) struct Queue<T> {
    tasks: SegQueue<T>,
    closed: AtomicBool,
    /// How many threads sleep or are about to. Changed under the lock only.
    sleepers: AtomicUsize,
    /// Whether one of them has been woken and has not come yet. Only one is at a time: threads
    /// that are awake may have done the work before it comes, and it wakes the next if not.
    /// Changed under the lock only, so that it is never left set with nobody to come.
    waking: AtomicBool,
    sleep: Mutex<()>,
    arrived: Condvar,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            tasks: SegQueue::new(),
            closed: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            waking: AtomicBool::new(false),
            sleep: Mutex::new(()),
            arrived: Condvar::new(),
        }
    }
}

impl<T> Queue<T> {
    /// Adds a task; after [`close`](Queue::close) nobody will take it.
    pub(super) fn push(&self, task: T) {
        if !self.closed.load(SeqCst) {
            self.tasks.push(task);
            self.wake();
        }
    }

    /// Adds a task without waking anybody: for a thread that calls [`pop`](Queue::pop) next.
    pub(super) fn push_mine(&self, task: T) {
        if !self.closed.load(SeqCst) {
            self.tasks.push(task);
        }
    }

    /// The next task, when there is one; `None` when there will be none.
    pub(super) fn pop(&self) -> Option<T> {
        loop {
            if self.closed.load(SeqCst) {
                return None;
            }
            if let Some(task) = self.tasks.pop() {
                if !self.tasks.is_empty() {
                    self.wake();
                }
                return Some(task);
            }
            self.doze();
        }
    }

    /// Drops what waits and sends the threads home.
    pub(super) fn close(&self) {
        self.closed.store(true, SeqCst);
        while self.tasks.pop().is_some() {}
        drop(self.lock());
        self.arrived.notify_all();
    }

    /// Sleeps unless there is something to do: a task that was added before the sleeper was
    /// counted is seen here, and who adds one later sees the sleeper.
    fn doze(&self) {
        let mut lock = self.lock();
        self.sleepers.fetch_add(1, SeqCst);
        if self.tasks.is_empty() && !self.closed.load(SeqCst) {
            lock = self.arrived.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, SeqCst);
        self.waking.store(false, SeqCst);
        drop(lock);
    }

    /// Wakes a thread, if one sleeps and none is on its way.
    fn wake(&self) {
        if self.sleepers.load(SeqCst) == 0 || self.waking.load(SeqCst) {
            return;
        }
        let lock = self.lock();
        let wake = self.sleepers.load(SeqCst) > 0 && !self.waking.swap(true, SeqCst);
        drop(lock);
        if wake {
            self.arrived.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A wake-up that got lost would leave a task in the queue for ever.
    #[test]
    fn every_task_finds_a_thread_however_they_meet() {
        const TASKS: usize = 20_000;
        let queue = Arc::new(Queue::default());
        let (done, results) = mpsc::channel();
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let (queue, done) = (queue.clone(), done.clone());
                std::thread::spawn(move || {
                    while let Some(task) = queue.pop() {
                        done.send(task).unwrap();
                    }
                })
            })
            .collect();
        let mut seen = vec![false; TASKS];
        for n in 0..TASKS {
            queue.push(n);
            // One at a time at first: everybody is asleep again each time. Then in a rush.
            if n < TASKS / 4 || n % 64 == 63 {
                let before = if n < TASKS / 4 { 1 } else { seen[TASKS / 4..=n].iter().filter(|seen| !**seen).count() };
                for _ in 0..before {
                    seen[results.recv_timeout(Duration::from_secs(20)).expect("a task was left behind")] = true;
                }
            }
        }
        while seen.iter().any(|seen| !seen) {
            seen[results.recv_timeout(Duration::from_secs(20)).expect("a task was left behind")] = true;
        }
        queue.close();
        queue.push(0);
        takers.into_iter().for_each(|t| t.join().unwrap());
        assert!(queue.pop().is_none() && queue.tasks.is_empty(), "nothing comes after the end");
    }

    #[test]
    fn who_adds_without_waking_anybody_finds_it_next() {
        let queue = Queue::default();
        queue.push(3);
        let mut seen = Vec::new();
        while let Some(task) = queue.pop() {
            seen.push(task);
            match task {
                0 => queue.close(),
                left => queue.push_mine(left - 1),
            }
        }
        assert_eq!(seen, [3, 2, 1, 0]);
        queue.push_mine(0);
        assert!(queue.pop().is_none() && queue.tasks.is_empty(), "nothing comes after the end");
    }
}
