//! The threads that wait for disks.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use remora_server::Execute;

use super::admission::Permit;
use super::hub::Hub;

/// A job and the permit it is done under.
pub(super) struct Task {
    pub(super) execute: Execute,
    pub(super) permit: Option<Permit>,
}

/// Jobs waiting for a thread. There are never more than the core has in flight
/// (`in_flight_max`), so it needs no bound of its own.
#[derive(Default)]
pub(super) struct JobQueue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    sleepers: usize,
    closed: bool,
}

impl JobQueue {
    /// Adds a job; after [`close`](JobQueue::close) it is dropped.
    pub(super) fn push(&self, task: Task) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        waiting.tasks.push_back(task);
        let wake = waiting.sleepers > 0;
        drop(waiting);
        if wake {
            self.arrived.notify_one();
        }
    }

    /// Drops what waits and sends the threads home.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let dropped = std::mem::take(&mut waiting.tasks);
        drop(waiting);
        drop(dropped);
        self.arrived.notify_all();
    }

    /// The next job, when there is one; `None` when there will be none.
    fn pop(&self) -> Option<Task> {
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if let Some(task) = waiting.tasks.pop_front() {
                return Some(task);
            }
            waiting.sleepers += 1;
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.sleepers -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts `n` threads (at least one).
pub(super) fn start(hub: &Arc<Hub>, n: usize) -> io::Result<Vec<JoinHandle<()>>> {
    let spawn = |i| {
        let hub = hub.clone();
        std::thread::Builder::new().name(format!("disk-{i}")).spawn(move || work(&hub))
    };
    (0..n.max(1)).map(spawn).collect()
}

fn work(hub: &Hub) {
    while let Some(Task { execute, permit }) = hub.jobs.pop() {
        let job = &execute.job;
        // A job shares nothing that is written to but the file system, which has its own
        // locks; a panic in one request is one request's failure.
        let answer = catch_unwind(AssertUnwindSafe(|| job.run())).unwrap_or_else(|_| {
            hub.counters.job_panics.count();
            job.abandon()
        });
        hub.complete(execute.ticket, answer, permit);
    }
}
