//! Executes jobs on a bounded pool of threads that may block on disks.
//!
//! Read in this order: [`fair_queue`] (clients take turns), [`serial_queues`] (jobs that exclude each other),
//! [`group_commit`] (jobs that share a flush), [`schedule`] (the three together, without locks), [`job_queue`] (the
//! lock and the sleeping threads), [`worker`] (what a thread does), [`pool`] (how many threads there are).

mod fair_queue;
mod group_commit;
mod job_queue;
mod pool;
mod schedule;
mod serial_queues;
mod worker;

pub use serial_queues::Queueing;

pub(super) use pool::{EXTRA_THREADS_MAX, ExecutorPool, available_processors};
pub(super) use worker::{CompletionSink, ExecutorQueue, JobCompletion, Submission};
