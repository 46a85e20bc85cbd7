//! Background jobs: hashing and finishing large files, on threads of their own.
//!
//! Each sender has one running job, so that senders take turns.

use std::collections::{BTreeMap, VecDeque};
use std::fs::Metadata;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tokio::task::{Id, JoinSet};

use crate::commands::transfer::recv::refusal::Refusal;
use crate::commands::transfer::recv::storage::hash_cache::{Stamp, hash_at};
use crate::commands::transfer::recv::storage::partial_file::{Finish, PartialFile, TempFile};
use crate::commands::transfer::recv::storage::quota::Owner;
use crate::commands::transfer::recv::storage::quota::{Census, Holder};
use crate::commands::transfer::recv::storage::target_tree::Target;

/// Files that are read at once: a disk gains nothing by more.
const RUNNING_MAX: usize = 4;

/// Something to be done about a file.
#[derive(Debug)]
pub(crate) struct BackgroundJob {
    from: Holder,
    name: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Find out what this file hashes to.
    Look(Target),
    /// Give what is whole its name.
    Finish { whole: PartialFile, how: Finish },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Found {
    /// The file's state, its hash, and when hashing began.
    Looked(io::Result<(Stamp, blake3::Hash, SystemTime)>),
    /// It has its name, in this state if that is known; or why not.
    Finished(Result<Option<Box<Metadata>>, Refusal>),
}

impl BackgroundJob {
    pub(crate) fn look(from: Holder, name: String, target: Target) -> BackgroundJob {
        BackgroundJob { from, name, what: What::Look(target) }
    }

    pub(crate) fn finish(from: Holder, name: String, whole: PartialFile, how: Finish) -> BackgroundJob {
        BackgroundJob { from, name, what: What::Finish { whole, how } }
    }

    /// Does it, until it is to stop.
    pub(crate) fn run(self, stop: &AtomicBool) -> Found {
        match self.what {
            What::Look(target) => {
                let began = SystemTime::now();
                Found::Looked(hash_at(&target.path, stop).map(|(stamp, hash)| (stamp, hash, began)))
            }
            What::Finish { whole, how } => {
                Found::Finished(whole.finish(&self.name, &how, stop).map(|meta| meta.map(Box::new)))
            }
        }
    }

    fn hidden(&self) -> Option<Arc<TempFile>> {
        match &self.what {
            What::Look(_) => None,
            What::Finish { whole, .. } => Some(whole.hidden()),
        }
    }
}

/// All that is being done. Dropped, it stops that and removes what is unfinished, without waiting for either.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    waiting: VecDeque<BackgroundJob>,
    running: JoinSet<Found>,
    running_for: BTreeMap<Id, Running>,
    stop: Arc<AtomicBool>,
}

/// A running job: its owner, and the file to remove if it is cancelled.
#[derive(Debug)]
struct Running {
    from: Holder,
    name: String,
    hidden: Option<Arc<TempFile>>,
}

impl JobQueue {
    /// Has it done when its sender's turn comes.
    pub(crate) fn begin(&mut self, work: BackgroundJob) {
        self.waiting.push_back(work);
        self.start();
    }

    fn start(&mut self) {
        while self.running.len() < RUNNING_MAX {
            let Some(work) = self.next_in_turn().and_then(|at| self.waiting.remove(at)) else { return };
            let running = Running { from: work.from, name: work.name.clone(), hidden: work.hidden() };
            let stop = self.stop.clone();
            let task = self.running.spawn_blocking(move || work.run(&stop));
            self.running_for.insert(task.id(), running);
        }
    }

    /// The first of a sender for whom nothing is done, and of the host for which least is done.
    fn next_in_turn(&self) -> Option<usize> {
        let running = Census::of(self.running_for.values().map(|running| running.from));
        let load = |work: &BackgroundJob| running.load(work.from);
        let idle = self.waiting.iter().enumerate().filter(|(_, work)| load(work).1 == 0);
        idle.min_by_key(|(_, work)| load(work).0).map(|(at, _)| at)
    }

    /// For how many files something is done now.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.running_for.len()
    }

    /// The next thing that is done. Waits for ever if nothing is to be done.
    pub(crate) async fn next(&mut self) -> (Owner, Found) {
        let Some(done) = self.running.join_next_with_id().await else { return pending().await };
        let (id, found) = match done {
            Ok((id, found)) => (id, found),
            Err(e) => (e.id(), Found::Finished(Err(format!("the receiver cannot store it: {e}")))),
        };
        let Some(Running { from, name, .. }) = self.running_for.remove(&id) else { return pending().await };
        self.start();
        ((from.key, name), found)
    }
}

impl Drop for JobQueue {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.running_for.values().filter_map(|running| running.hidden.as_ref()).for_each(|hidden| hidden.remove());
    }
}
