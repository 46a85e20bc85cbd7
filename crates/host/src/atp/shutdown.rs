//! Closing of all endpoints when the process ends.
//!
//! Peers hold resources for an endpoint until it has been silent for minutes or a day, unless it closes. Its thread
//! closes the connections when the last handle is dropped, but a process does not wait for its threads.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::shared::SharedEndpoint;

/// Time limit for closing.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Endpoints with running threads, and some that have ended.
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

struct Open {
    shared: Weak<SharedEndpoint>,
    /// Disconnects when the thread ends.
    runs: Receiver<Infallible>,
}

/// Held by an endpoint's thread while it runs.
pub(super) struct Running {
    _ends: Sender<Infallible>,
}

/// Registers an endpoint whose thread starts.
pub(super) fn register(shared: &Arc<SharedEndpoint>) -> Running {
    let (ends, runs) = channel();
    let mut open = lock();
    open.retain(|open| open.runs.try_recv() == Err(TryRecvError::Empty));
    open.push(Open { shared: Arc::downgrade(shared), runs });
    Running { _ends: ends }
}

/// Closes all endpoints of this process, within a second. Call it before the process ends.
pub fn close_all() {
    let open = std::mem::take(&mut *lock());
    open.iter().filter_map(|open| open.shared.upgrade()).for_each(|shared| shared.close());
    let until = Instant::now() + CLOSE_MAX;
    for open in open {
        let _ = open.runs.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn lock() -> MutexGuard<'static, Vec<Open>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
