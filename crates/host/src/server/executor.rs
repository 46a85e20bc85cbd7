//! The threads that wait for disks.
//!
//! A job that owes a flush gives its thread back: it is parked with the others that wait for
//! the same flush ([`Gathering`]). The flush goes to the end of the queue like any job, so what
//! was waiting when it was asked for has a chance to share it, and with an empty queue it
//! begins at once.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use remora_server::{Answer, Execute, Started, Ticket, Unflushed};
use remora_vfs::FlushKey;
use remora_wire::nfs3::Status;

use super::admission::Permit;
use super::gathering::Gathering;
use super::hub::Hub;

/// Something for a thread to do.
#[expect(clippy::large_enum_variant, reason = "there are few flushes; a box for each job would cost more")]
pub(super) enum Task {
    /// A job, and the permit it is done under.
    Execute(Execute, Option<Permit>),
    /// A flush, for all that wait for it.
    Flush(FlushKey),
}

/// A job that is done.
pub(super) struct Done {
    pub(super) ticket: Ticket,
    pub(super) answer: Answer,
    pub(super) permit: Option<Permit>,
}

/// A job that waits for a flush.
struct Parked {
    ticket: Ticket,
    unflushed: Unflushed,
    permit: Option<Permit>,
}

/// Jobs waiting for a thread or for a flush. There are never more than the core has in flight
/// (`in_flight_max`), so it needs no bound of its own.
#[derive(Default)]
pub(super) struct JobQueue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    parked: Mutex<Gathering<Parked>>,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    sleepers: usize,
    /// Whether one of them has been woken and has not come yet. Only one is at a time: threads
    /// that are awake may have done the work before it comes, and it wakes the next if not.
    waking: bool,
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
        self.wake(waiting);
    }

    /// Wakes a thread if there is something to do for another one.
    fn wake(&self, mut waiting: MutexGuard<'_, Waiting>) {
        let wake = waiting.sleepers > 0 && !waiting.waking && !waiting.tasks.is_empty();
        waiting.waking |= wake;
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
        let parked = self.parked().clear();
        drop(parked);
    }

    /// The next job, when there is one; `None` when there will be none.
    fn pop(&self) -> Option<Task> {
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if let Some(task) = waiting.tasks.pop_front() {
                self.wake(waiting);
                return Some(task);
            }
            waiting.sleepers += 1;
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.sleepers -= 1;
            waiting.waking = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parked(&self) -> MutexGuard<'_, Gathering<Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a job, and sees to it that its flush will come.
    fn park(&self, job: Parked) {
        let key = job.unflushed.flush().key();
        if self.parked().join(key, job) {
            self.push(Task::Flush(key));
        }
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
    while let Some(task) = hub.jobs.pop() {
        match task {
            Task::Execute(execute, permit) => run(hub, execute, permit),
            Task::Flush(key) => flush(hub, key),
        }
    }
}

fn run(hub: &Hub, Execute { ticket, job }: Execute, permit: Option<Permit>) {
    // A job shares nothing that is written to but the file system, which has its own locks; a
    // panic in one request is one request's failure.
    let started = catch_unwind(AssertUnwindSafe(|| job.start())).unwrap_or_else(|_| {
        hub.counters.job_panics.count();
        Started::Done(job.abandon())
    });
    match started {
        Started::Done(answer) => hub.complete([Done { ticket, answer, permit }]),
        Started::Unflushed(unflushed) => hub.jobs.park(Parked { ticket, unflushed, permit }),
    }
}

/// Does a flush for all that have gathered by now.
fn flush(hub: &Hub, key: FlushKey) {
    let jobs = hub.jobs.parked().begin(key);
    let result = jobs.first().map_or(Ok(()), |job| {
        let flush = || job.unflushed.flush().run(jobs.len());
        catch_unwind(AssertUnwindSafe(flush)).unwrap_or_else(|_| {
            hub.counters.job_panics.count();
            Err(Status::ServerFault)
        })
    });
    // The next one begins only now, but before the answers are made: clients wait for it, too.
    if hub.jobs.parked().end(key) {
        hub.jobs.push(Task::Flush(key));
    }
    let mut done = Vec::with_capacity(jobs.len());
    for Parked { ticket, unflushed, permit } in jobs {
        match unflushed.flushed(result) {
            Started::Done(answer) => done.push(Done { ticket, answer, permit }),
            Started::Unflushed(unflushed) => hub.jobs.park(Parked { ticket, unflushed, permit }),
        }
    }
    hub.complete(done);
}
