//! More threads while those there are wait for a disk that does not answer.
//!
//! Few threads are enough for disks that answer. One that hangs (it is dying, or its file system is
//! frozen, or comes from a machine that has gone) keeps every thread that asks it for something. Once it has them
//! all, everybody waits for it, also who wants something of another disk. So when tasks wait and none has been
//! taken for a moment a thread comes, and goes home when there has been nothing to do for a while. There is an end to
//! that: who asks a disk that hangs for more than [`THREADS_MAX`] things at a time still stops everybody.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::executor;
use super::hub::Hub;

/// After how long without progress.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it stays when there is nothing to do.
const STAY: Duration = Duration::from_secs(5);
/// Most at a time.
pub(super) const THREADS_MAX: usize = 60;

/// Starts the one that looks after the others, until there will be no more tasks.
pub(super) fn start(hub: &Arc<Hub>) -> io::Result<JoinHandle<()>> {
    let hub = hub.clone();
    Builder::new().name("disk-relief".into()).spawn(move || {
        let at_work = Arc::new(AtomicUsize::new(0));
        let mut taken = 0;
        while let Some(stuck) = hub.jobs.watch(PATIENCE, &mut taken) {
            if stuck && at_work.load(Relaxed) < THREADS_MAX {
                relieve(&hub, &at_work);
            }
        }
    })
}

fn relieve(hub: &Arc<Hub>, at_work: &Arc<AtomicUsize>) {
    let (hub, at_work) = (hub.clone(), at_work.clone());
    at_work.fetch_add(1, Relaxed);
    let count = at_work.clone();
    let helper = Builder::new().name("disk-more".into()).spawn(move || {
        executor::work_until_idle(&hub, STAY);
        at_work.fetch_sub(1, Relaxed);
    });
    if helper.is_err() {
        // The system has none to give now; it is asked again.
        count.fetch_sub(1, Relaxed);
    }
}
