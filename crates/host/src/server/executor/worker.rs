//! An executor thread: runs jobs, gathers their replies into batches and flushes for groups of jobs.

use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use remora_server::{Answer, Execute, Job, Started, Ticket, Unflushed};
use remora_vfs::local::DedicatedThread;
use remora_vfs::{Flush, FlushKey};
use remora_wire::nfs3::Status;

use super::fair_queue::Turn;
use super::job_queue::{JobQueue, ParkedJob, QueuedJob};
use super::schedule::Assignment;
use super::serial_queues::{Queueing, SerialKey};
use crate::Clock;
use crate::server::admission::permits::Permit;

/// Most replies in a batch, and how long the first one waits.
const REPLIES_MAX: usize = 8;
const REPLIES_FOR: Duration = Duration::from_micros(100);
/// Most changes that are parked together, and how long the first one waits. A flush costs about as much as ten changes.
const CHANGES_MAX: usize = 16;
const CHANGES_FOR: Duration = Duration::from_micros(500);
/// The same where a flush is expensive, and how long it waits for a complete group.
const EXPENSIVE_CHANGES_MAX: usize = 64;
const EXPENSIVE_CHANGES_FOR: Duration = Duration::from_millis(1);
const GROUP_FOR: Duration = Duration::from_micros(400);
/// How long an idle thread keeps its last caller's credentials. Meanwhile that user may change the thread's scheduling.
const CREDENTIALS_FOR: Duration = Duration::from_millis(50);
/// Most jobs of a serial queue in a run, before other tasks have their turn.
const RUN_MAX: usize = 64;

/// A job for the executor.
pub(crate) struct Submission {
    /// The shard whose core gets the answer.
    pub(crate) shard: usize,
    pub(crate) execute: Execute,
    pub(crate) permit: Option<Permit>,
}

/// The result of a [`Submission`].
pub(crate) struct JobCompletion {
    pub(crate) shard: usize,
    pub(crate) ticket: Ticket,
    pub(crate) answer: Answer,
    pub(crate) permit: Option<Permit>,
}

/// Receives the results of jobs.
pub(crate) trait CompletionSink: Send + Sync {
    /// Takes the results of a batch, whose replies leave together.
    fn complete(&self, batch: Vec<JobCompletion>);

    /// Counts a job that panicked. Its client gets an error.
    fn count_panic(&self);
}

/// A submission with the turn that it counts in.
pub(super) struct Queued {
    turn: Turn,
    submission: Submission,
}

/// A job whose change waits for a flush.
pub(super) struct Unfinished {
    turn: Turn,
    shard: usize,
    ticket: Ticket,
    unflushed: Unflushed,
    permit: Option<Permit>,
}

/// The executor's jobs: those that wait for a thread, for others of their serial queue, or for a flush.
pub(crate) struct ExecutorQueue {
    queueing: Queueing,
    hasher: RandomState,
    pub(super) jobs: JobQueue<Queued, Unfinished>,
}

impl ExecutorQueue {
    pub(crate) fn new(queueing: Queueing) -> ExecutorQueue {
        ExecutorQueue { queueing, hasher: RandomState::new(), jobs: JobQueue::default() }
    }

    /// Adds jobs. After [`close`](ExecutorQueue::close) they are dropped.
    pub(crate) fn submit(&self, jobs: Vec<Submission>) {
        if !jobs.is_empty() {
            self.jobs.push(jobs.into_iter().map(|submission| self.queued(submission)).collect::<Vec<_>>());
        }
    }

    /// Drops what waits and ends the threads.
    pub(crate) fn close(&self) {
        self.jobs.close();
    }

    fn queued(&self, submission: Submission) -> QueuedJob<Queued> {
        let job: &Job = &submission.execute.job;
        let turn = if job.is_validated() { Turn::of(job.peer().addr) } else { Turn::UNPROVED };
        let key = match self.queueing {
            Queueing::Serial => SerialKey::of(job, &self.hasher),
            Queueing::Daemons => None,
        };
        QueuedJob { turn, key, job: Queued { turn, submission } }
    }
}

/// What a thread works with.
#[derive(Clone)]
pub(super) struct ExecutorWorker {
    pub(super) queue: Arc<ExecutorQueue>,
    pub(super) sink: Arc<dyn CompletionSink>,
    pub(super) clock: Clock,
}

impl ExecutorWorker {
    /// Works until `may_stay` returns false between two assignments, or nothing has come for `patience`.
    pub(super) fn work_while(&self, patience: Duration, may_stay: impl Fn() -> bool) {
        let credentials = DedicatedThread::begin();
        let jobs = &self.queue.jobs;
        let next = || {
            jobs.next(CREDENTIALS_FOR).or_else(|| {
                credentials.release();
                jobs.next(patience)
            })
        };
        while let Some(assignment) = may_stay().then(next).flatten() {
            self.execute(assignment);
        }
        // The thread may have parked jobs without waking another one.
        jobs.push([]);
    }

    fn execute(&self, assignment: Assignment<Queued>) {
        let mut batch = Batch::default();
        match assignment {
            Assignment::Job(job) => self.run(job, &mut batch),
            Assignment::Serial { key, first } => return self.run_serial(key, first),
            Assignment::Flush(key) => self.flush(key, &mut batch),
        }
        self.hand_on(&mut batch, false);
    }

    fn run(&self, Queued { turn, submission }: Queued, batch: &mut Batch) {
        let Submission { shard, execute: Execute { ticket, job }, permit } = submission;
        // A job shares only the file system, which has locks of its own: a panic is one request's failure.
        let started = catch_unwind(AssertUnwindSafe(|| job.start())).unwrap_or_else(|_| {
            self.sink.count_panic();
            Started::Done(job.abandon())
        });
        match started {
            Started::Done(answer) => batch.done.push(JobCompletion { shard, ticket, answer, permit }),
            Started::Unflushed(unflushed) => {
                batch.unflushed.push(Unfinished { turn, shard, ticket, unflushed, permit });
            }
        }
    }

    /// Runs the jobs of a serial queue until it is empty or other tasks have their turn. Changes are handed on while
    /// more jobs wait: the first ones are flushed while the next ones are made.
    fn run_serial(&self, key: SerialKey, first: Queued) {
        let mut batch = Batch::default();
        let mut since = self.clock.now();
        self.run(first, &mut batch);
        for _ in 1..RUN_MAX {
            let Some(job) = self.queue.jobs.next_serial(key) else { return self.hand_on(&mut batch, false) };
            let now = self.clock.now();
            if batch.is_due(now.since(since)) {
                self.hand_on(&mut batch, true);
                since = now;
            }
            self.run(job, &mut batch);
        }
        self.hand_on(&mut batch, false);
        self.queue.jobs.leave_serial(key);
    }

    /// Flushes for all jobs that have joined by now.
    fn flush(&self, key: FlushKey, batch: &mut Batch) {
        let patience = |job: &Unfinished| if job.unflushed.flush().is_expensive() { GROUP_FOR } else { Duration::ZERO };
        let group = self.queue.jobs.take_group(key, patience);
        let result = group.split_first().map_or(Ok(()), |(first, others)| {
            let others: Vec<&Flush> = others.iter().map(|job| job.unflushed.flush()).collect();
            let flush = || first.unflushed.flush().run(&others);
            catch_unwind(AssertUnwindSafe(flush)).unwrap_or_else(|_| {
                self.sink.count_panic();
                Err(Status::ServerFault)
            })
        });
        // The next flush starts before the replies are made: clients wait for it.
        self.queue.jobs.end_flush(key);
        for Unfinished { turn, shard, ticket, unflushed, permit } in group {
            match unflushed.flushed(result) {
                Started::Done(answer) => batch.done.push(JobCompletion { shard, ticket, answer, permit }),
                Started::Unflushed(unflushed) => {
                    batch.unflushed.push(Unfinished { turn, shard, ticket, unflushed, permit });
                }
            }
        }
    }

    /// Parks the jobs that wait for flushes, and hands on the results of the others. `is_busy`: this thread has more
    /// jobs of its serial queue and leaves the flushes to another one.
    fn hand_on(&self, batch: &mut Batch, is_busy: bool) {
        if !batch.unflushed.is_empty() {
            let parked = |job: Unfinished| ParkedJob { turn: job.turn, key: job.unflushed.flush().key(), job };
            self.queue.jobs.park(batch.unflushed.drain(..).map(parked), is_busy);
        }
        if !batch.done.is_empty() {
            self.sink.complete(std::mem::take(&mut batch.done));
        }
    }
}

/// Results that leave the thread together.
#[derive(Default)]
struct Batch {
    done: Vec<JobCompletion>,
    /// They join their groups at the same time, so that one flush serves them all.
    unflushed: Vec<Unfinished>,
}

impl Batch {
    fn is_due(&self, waited: Duration) -> bool {
        let is_expensive = self.unflushed.first().is_some_and(|job| job.unflushed.flush().is_expensive());
        is_due(self.done.len(), self.unflushed.len(), is_expensive, waited)
    }
}

/// Whether a batch of so many replies and changes is handed on after `waited`. `is_expensive`: the changes' flush is.
fn is_due(replies: usize, changes: usize, is_expensive: bool, waited: Duration) -> bool {
    let replies_due = replies >= REPLIES_MAX || (replies > 0 && waited >= REPLIES_FOR);
    let (changes_max, changes_for) = match is_expensive {
        true => (EXPENSIVE_CHANGES_MAX, EXPENSIVE_CHANGES_FOR),
        false => (CHANGES_MAX, CHANGES_FOR),
    };
    replies_due || changes >= changes_max || waited >= changes_for
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_due_by_size_and_by_age() {
        let ns = Duration::from_nanos(1);
        let cases = [
            (1, 0, false, REPLIES_FOR - ns, false),
            (1, 0, false, REPLIES_FOR, true),
            (REPLIES_MAX, 0, false, Duration::ZERO, true),
            (0, CHANGES_MAX - 1, false, REPLIES_FOR, false),
            (0, CHANGES_MAX, false, Duration::ZERO, true),
            (0, CHANGES_MAX, true, CHANGES_FOR, false),
            (0, EXPENSIVE_CHANGES_MAX, true, Duration::ZERO, true),
            (0, 1, false, CHANGES_FOR, true),
            (0, 1, true, EXPENSIVE_CHANGES_FOR, true),
            (1, 1, true, REPLIES_FOR, true),
        ];
        for (replies, changes, is_expensive, waited, due) in cases {
            let is = is_due(replies, changes, is_expensive, waited);
            assert_eq!(is, due, "{replies} replies, {changes} changes, expensive: {is_expensive}, {waited:?}");
        }
    }
}
