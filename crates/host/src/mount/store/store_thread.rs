//! The thread that executes the jobs of a store: the threads that answer the kernel never wait for the disk.

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Jobs that wait. The core has fewer in flight.
const QUEUE_MAX: usize = 512;
/// Jobs in one transaction.
const BATCH_MAX: usize = 64;

/// A store that executes jobs.
pub(in crate::mount) trait JobStore: Send + 'static {
    type Job: Send;
    /// The result of a job, with its number.
    type Done;

    /// Executes jobs in their order.
    fn execute(&mut self, jobs: Vec<Self::Job>) -> Vec<Self::Done>;
}

/// A running thread.
pub(in crate::mount) struct StoreThread<S: JobStore> {
    /// `None` after the end.
    running: Mutex<Option<Running<S>>>,
}

struct Running<S: JobStore> {
    jobs: SyncSender<S::Job>,
    thread: JoinHandle<S>,
}

impl<S: JobStore> StoreThread<S> {
    /// Starts the thread. It passes the results to `done`.
    pub(in crate::mount) fn start(
        store: S,
        done: impl Fn(Vec<S::Done>) + Send + 'static,
    ) -> io::Result<StoreThread<S>> {
        let (jobs, waiting) = sync_channel(QUEUE_MAX);
        let thread = thread::Builder::new().name("store".into()).spawn(move || run(store, &waiting, done))?;
        Ok(StoreThread { running: Mutex::new(Some(Running { jobs, thread })) })
    }

    /// Queues a job.
    pub(in crate::mount) fn push(&self, job: S::Job) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            // The thread ends only after this end of the channel.
            let _ = running.jobs.send(job);
        }
    }

    /// Executes what waits, and returns the store.
    pub(in crate::mount) fn end(&self) -> Option<S> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Running { jobs, thread } = running?;
        drop(jobs);
        // A panic there has been reported.
        thread.join().ok()
    }
}

fn run<S: JobStore>(mut store: S, waiting: &Receiver<S::Job>, done: impl Fn(Vec<S::Done>)) -> S {
    while let Ok(first) = waiting.recv() {
        let mut jobs = vec![first];
        jobs.extend(waiting.try_iter().take(BATCH_MAX - 1));
        done(store.execute(jobs));
    }
    store
}
