//! The good-byes of a process that ends.
//!
//! What peers hold for an endpoint they hold until it has been silent for minutes, or for a day, unless they are told. It is
//! its thread that tells them, when the last handle goes; a process that ends then does not wait for its threads.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::shared::Shared;

/// How long a good-bye may take.
pub(super) const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Endpoints whose threads run, and some that have ended since.
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

struct Open {
    shared: Weak<Shared>,
    /// Breaks off when the thread ends.
    runs: Receiver<Infallible>,
}

/// Held by an endpoint's thread for as long as it runs.
pub(super) struct Running {
    _ends: Sender<Infallible>,
}

/// An endpoint's thread is about to run.
pub(super) fn begins(shared: &Arc<Shared>) -> Running {
    let (ends, runs) = channel();
    let mut open = lock();
    open.retain(|open| open.runs.try_recv() == Err(TryRecvError::Empty));
    open.push(Open { shared: Arc::downgrade(shared), runs });
    Running { _ends: ends }
}

/// Closes every endpoint of this process, and waits until their peers have been told: for a second at most. For who is
/// about to end it.
pub fn close_all() {
    let open = std::mem::take(&mut *lock());
    open.iter().filter_map(|open| open.shared.upgrade()).for_each(|shared| shared.close());
    let until = Instant::now() + FAREWELL_MAX;
    for open in open {
        let _ = open.runs.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn lock() -> MutexGuard<'static, Vec<Open>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
