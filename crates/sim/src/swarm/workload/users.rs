//! All users of one client.

use std::sync::Arc;

use remora_base::Time;
use remora_client::{Answer, CallFailure, CallId, Client};
use remora_vfs::MemFs;

use super::actor::Actor;
use super::sharer::Sharer;
use crate::swarm::oracle::Tree;
use crate::world::User;

/// One of a client's users.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there are few of them, and they stay where they are
pub enum Worker {
    /// In its own directory.
    Actor(Actor),
    /// In the common directory.
    Sharer(Sharer),
}

/// All users of one client.
pub struct Users {
    workers: Vec<Worker>,
    fs: Arc<MemFs>,
}

impl Users {
    pub fn new(workers: Vec<Worker>, fs: Arc<MemFs>) -> Users {
        Users { workers, fs }
    }

    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Starts no new work except reading back.
    pub fn wind_down(&mut self) {
        for worker in &mut self.workers {
            match worker {
                Worker::Actor(a) => a.wind_down(),
                Worker::Sharer(s) => s.wind_down(),
            }
        }
    }

    /// Whether no work is in progress or due.
    pub fn is_idle(&self) -> bool {
        self.workers.iter().all(|w| match w {
            Worker::Actor(a) => a.is_idle(),
            Worker::Sharer(s) => s.is_idle(),
        })
    }

    /// Compares every actor's files with its model.
    pub fn check(&mut self, now: Time, tree: &Tree, when: &str) {
        for worker in &mut self.workers {
            if let Worker::Actor(a) = worker {
                a.check(now, tree, when);
            }
        }
    }

    /// Violations of the oracle.
    pub fn violations(&self) -> impl Iterator<Item = &String> {
        self.workers.iter().flat_map(|w| match w {
            Worker::Actor(a) => a.violations(),
            Worker::Sharer(s) => s.violations(),
        })
    }
}

impl User for Users {
    fn drive(&mut self, now: Time, client: &mut Client) {
        for worker in &mut self.workers {
            match worker {
                Worker::Actor(a) => a.drive(now, client),
                Worker::Sharer(s) => s.drive(now, client),
            }
        }
    }

    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, CallFailure>) {
        for worker in &mut self.workers {
            let taken = match worker {
                Worker::Actor(a) => a.on_done(now, id, &result),
                Worker::Sharer(s) => s.on_done(now, id, &result),
            };
            if taken {
                return;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timeouts = self.workers.iter().filter_map(|w| match w {
            Worker::Actor(a) => a.poll_timeout(),
            Worker::Sharer(s) => s.poll_timeout(),
        });
        timeouts.min()
    }

    fn on_server_crash(&mut self, now: Time) {
        let tree = self.fs.tree();
        for worker in &mut self.workers {
            match worker {
                Worker::Actor(a) => a.on_server_crash(now, &tree),
                Worker::Sharer(s) => s.on_server_crash(),
            }
        }
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").field("workers", &self.workers).finish_non_exhaustive()
    }
}
