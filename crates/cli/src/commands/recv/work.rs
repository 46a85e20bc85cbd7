//! What takes long, for it reads all of a large file: done on threads of its own, while other files are taken.
//! A sender has one such thing done at a time, so that others' turn comes soon.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tokio::task::{Id, JoinSet};

use super::known::{Stamp, hash_at};
use super::store::{Owner, Refusal};
use super::unfinished::{Hidden, Unfinished};

/// Files that are read at once: a disk gains nothing by more.
const RUNNING_MAX: usize = 4;

/// Something to be done about a file.
#[derive(Debug)]
pub(super) struct Work {
    owner: Owner,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Find out what this file hashes to.
    Look(PathBuf),
    /// Give what is whole its name.
    Finish { whole: Unfinished, dest: PathBuf, overwrite: bool },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Found {
    /// The file's state, its hash, and when hashing began.
    Looked(io::Result<(Stamp, blake3::Hash, SystemTime)>),
    /// It has its name, in this state if that is known; or why not.
    Finished(Result<Option<Stamp>, Refusal>),
}

impl Work {
    pub(super) fn look(owner: Owner, path: PathBuf) -> Work {
        Work { owner, what: What::Look(path) }
    }

    pub(super) fn finish(owner: Owner, whole: Unfinished, dest: PathBuf, overwrite: bool) -> Work {
        Work { owner, what: What::Finish { whole, dest, overwrite } }
    }

    /// Does it, until it is to stop.
    pub(super) fn run(self, stop: &AtomicBool) -> Found {
        match self.what {
            What::Look(path) => {
                let began = SystemTime::now();
                Found::Looked(hash_at(&path, stop).map(|(stamp, hash)| (stamp, hash, began)))
            }
            What::Finish { whole, dest, overwrite } => Found::Finished(whole.finish(&dest, overwrite, stop)),
        }
    }

    fn hidden(&self) -> Option<Arc<Hidden>> {
        match &self.what {
            What::Look(_) => None,
            What::Finish { whole, .. } => Some(whole.hidden()),
        }
    }
}

/// All that is being done. Dropped, it stops that and removes what is unfinished, without waiting for either.
#[derive(Debug, Default)]
pub(super) struct Works {
    waiting: VecDeque<Work>,
    running: JoinSet<Found>,
    running_for: BTreeMap<Id, (Owner, Option<Arc<Hidden>>)>,
    stop: Arc<AtomicBool>,
}

impl Works {
    /// Has it done when its sender's turn comes.
    pub(super) fn begin(&mut self, work: Work) {
        self.waiting.push_back(work);
        self.start();
    }

    fn start(&mut self) {
        while self.running.len() < RUNNING_MAX {
            let is_idle = |work: &Work| self.running_for.values().all(|((from, _), _)| *from != work.owner.0);
            let Some(work) = self.waiting.iter().position(is_idle).and_then(|at| self.waiting.remove(at)) else {
                return;
            };
            let (owner, hidden, stop) = (work.owner.clone(), work.hidden(), self.stop.clone());
            let task = self.running.spawn_blocking(move || work.run(&stop));
            self.running_for.insert(task.id(), (owner, hidden));
        }
    }

    /// Who has something done now.
    #[cfg(test)]
    pub(super) fn running_for(&self) -> Vec<&Owner> {
        self.running_for.values().map(|(owner, _)| owner).collect()
    }

    /// The next thing that is done. Waits for ever if nothing is to be done.
    pub(super) async fn next(&mut self) -> (Owner, Found) {
        let Some(done) = self.running.join_next_with_id().await else { return pending().await };
        let (id, found) = match done {
            Ok((id, found)) => (id, found),
            Err(e) => (e.id(), Found::Finished(Err(format!("the receiver cannot keep it: {e}")))),
        };
        let Some((owner, _)) = self.running_for.remove(&id) else { return pending().await };
        self.start();
        (owner, found)
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.running_for.values().filter_map(|(_, hidden)| hidden.as_ref()).for_each(|hidden| hidden.remove());
    }
}
