//! Upkeep of exports: releases the caches of idle ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use remora_vfs::Vfs;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::server::net::context::NetContext;

/// The time between two rounds.
const EVERY: Duration = Duration::from_secs(10);
/// How long a round waits for one export, whose disk may be slow or hang.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most exports that may be late. Each holds a thread.
const BEHIND_MAX: usize = 64;

/// Tidies one export after the other, for ever.
pub(crate) async fn run(context: Arc<NetContext>) {
    let (mut turn, mut behind) = (interval(EVERY), Behind::default());
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let all: Vec<Arc<dyn Vfs>> = context.exports().iter().map(|export| export.vfs.clone()).collect();
        for vfs in all {
            let which = Arc::as_ptr(&vfs).cast::<()>() as usize;
            behind.look_after(which, move || vfs.tidy()).await;
        }
    }
}

/// The tasks that a round no longer waits for, by export.
#[derive(Default)]
struct Behind(BTreeMap<usize, JoinHandle<()>>);

impl Behind {
    /// Runs `work` for this export on another thread, unless its last run is still late.
    async fn look_after(&mut self, which: usize, work: impl FnOnce() + Send + 'static) {
        self.0.retain(|_, task| !task.is_finished());
        if self.0.contains_key(&which) || self.0.len() >= BEHIND_MAX {
            return;
        }
        let mut task = spawn_blocking(work);
        if timeout(PATIENCE, &mut task).await.is_err() {
            self.0.insert(which, task);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn hanging_export_is_awaited_once_by_one_thread() {
        let mut behind = Behind::default();
        let (release, hangs) = channel::<()>();
        let (done, count) = channel();
        behind.look_after(1, move || assert!(hangs.recv().is_err())).await;
        for round in 0..3 {
            for which in [1, 2] {
                let done = done.clone();
                behind.look_after(which, move || done.send(which).unwrap()).await;
            }
            assert_eq!(count.recv(), Ok(2), "round {round}");
            assert_eq!(behind.0.len(), 1, "round {round}");
        }
        drop(release);
        while !behind.0.values().all(JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        behind.look_after(1, move || done.send(1).unwrap()).await;
        assert_eq!(count.recv(), Ok(1));
    }
}
