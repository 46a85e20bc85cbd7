//! What exports hold for a moment is given back where no client asks for anything, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use remora_vfs::Vfs;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::server::net::context::NetContext;

/// How often.
const EVERY: Duration = Duration::from_secs(10);
/// How long the others wait for one: its disk may be slow, or hang.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most that are not waited for any more. They hold a thread each.
const BEHIND_MAX: usize = 64;

/// Looks after the exports, one after the other.
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

/// Those that are still at work, which others do not wait for any more.
#[derive(Default)]
struct Behind(BTreeMap<usize, JoinHandle<()>>);

impl Behind {
    /// Does the `work` of this one on another thread, unless it is still at its last.
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
    async fn one_that_hangs_is_waited_for_once_and_has_one_thread() {
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
