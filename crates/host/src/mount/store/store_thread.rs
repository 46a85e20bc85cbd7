//! The thread that executes the jobs of a store: the threads that answer the kernel never wait for the disk.

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use remora_cache::{StoreJob, StoreJobId};
use remora_wire::fuse::Errno;

use super::data_files::StoreDisk;
use super::dirty_store::DirtyStore;

/// Jobs that wait. The core has fewer in flight.
const QUEUE_MAX: usize = 256;
/// Jobs in one transaction.
const BATCH_MAX: usize = 64;

/// Results of jobs.
pub(in crate::mount) type Completion = Vec<(StoreJobId, Result<(), Errno>)>;

/// A running thread.
#[derive(Debug)]
pub(in crate::mount) struct StoreThread {
    disk: StoreDisk,
    /// `None` after the end.
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    jobs: SyncSender<StoreJob>,
    thread: JoinHandle<DirtyStore>,
}

impl StoreThread {
    /// Starts the thread. It passes the results to `done`.
    pub(in crate::mount) fn start(
        store: DirtyStore,
        done: impl Fn(Completion) + Send + 'static,
    ) -> io::Result<StoreThread> {
        let disk = store.disk()?;
        let (jobs, waiting) = sync_channel(QUEUE_MAX);
        let thread = thread::Builder::new().name("store".into()).spawn(move || run(store, &waiting, done))?;
        Ok(StoreThread { disk, running: Mutex::new(Some(Running { jobs, thread })) })
    }

    /// Bytes for which the store's disk has room; `None` if that cannot be known.
    pub(in crate::mount) fn room(&self) -> Option<u64> {
        self.disk.room().ok()
    }

    /// Queues a job.
    pub(in crate::mount) fn push(&self, job: StoreJob) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            // The thread ends only after this end of the channel.
            let _ = running.jobs.send(job);
        }
    }

    /// Executes what waits, and closes the store; with `drops` it is removed with all that it has.
    pub(in crate::mount) fn end(&self, drops: bool) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { jobs, thread }) = running {
            drop(jobs);
            // A panic there has been reported.
            let Ok(store) = thread.join() else { return };
            if let Err(error) = if drops { store.remove() } else { store.close() } {
                tracing::warn!(%error, "the store of unsent data cannot be removed");
            }
        }
    }
}

fn run(mut store: DirtyStore, waiting: &Receiver<StoreJob>, done: impl Fn(Completion)) -> DirtyStore {
    while let Ok(first) = waiting.recv() {
        let mut jobs = vec![first];
        jobs.extend(waiting.try_iter().take(BATCH_MAX - 1));
        done(store.execute(jobs));
    }
    store
}
