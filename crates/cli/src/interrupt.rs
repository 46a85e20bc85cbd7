//! Signals: SIGINT, SIGTERM and SIGHUP end a command at once, whatever the state of the link. A signal that the
//! parent process ignored (nohup(1), shells with `&`) stays ignored.

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use remora_host::signals::unless_ignored;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use crate::output::exit::{Error, Result};

/// Limit for cleanup after a signal.
const TIDY_MAX: Duration = Duration::from_millis(500);
/// Limit for saving progress before cleanup.
const SAFE_MAX: Duration = Duration::from_secs(1);
/// A signal within this time of the first counts as the same: timeout(1) and a closing terminal send each twice.
const SAME: Duration = Duration::from_millis(50);

/// Counts the bytes of unfinished copies that `cp --resume` can reuse. Each copy has a clone.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    add: Sender<u64>,
    ending: Arc<Ending>,
}

impl Kept {
    pub(crate) fn add(&self, bytes: u64) {
        // The receiver may be gone.
        let _ = self.add.send(bytes);
    }

    /// For a command with data to save before it ends.
    pub(crate) fn at_risk(&self) -> AtRisk {
        self.ending.copies.send_modify(|copies| *copies += 1);
        AtRisk(self.ending.clone())
    }

    /// Nothing is begun any more once the signal has come: then this waits to be cut short.
    pub(crate) async fn go_on(&self) {
        let is_due = *self.ending.is_due.borrow();
        if is_due {
            std::future::pending().await
        }
    }

    pub(crate) fn ending(&self) -> Arc<Ending> {
        self.ending.clone()
    }
}

/// State of a command that a signal is ending.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// The signal has come.
    is_due: watch::Sender<bool>,
    /// Number of copies with unsaved progress.
    copies: watch::Sender<usize>,
}

impl Ending {
    /// Has copies make safe what they can, unless that takes long or there is another signal.
    async fn make_safe(&self) {
        self.is_due.send_replace(true);
        let mut copies = self.copies.subscribe();
        let all = copies.wait_for(|copies| *copies == 0);
        tokio::select! {
            _ = tokio::time::timeout(SAFE_MAX, all) => {}
            _ = again() => {}
        }
    }
}

/// Marks unsaved progress. Dropped when the progress is saved or cannot be.
#[derive(Debug)]
pub(crate) struct AtRisk(Arc<Ending>);

impl AtRisk {
    /// Waits for the signal.
    pub(crate) async fn ends(&self) {
        // Fails only if the sender is gone.
        let _ = self.0.is_due.subscribe().wait_for(|is_due| *is_due).await;
    }
}

impl Drop for AtRisk {
    fn drop(&mut self) {
        self.0.copies.send_modify(|copies| *copies -= 1);
    }
}

/// Receives the counts of all copies.
#[derive(Debug)]
pub(crate) struct KeptInAll(Receiver<u64>);

impl KeptInAll {
    /// The sum, after all copies have cleaned up.
    pub(crate) fn bytes(&self) -> u64 {
        let until = Instant::now() + TIDY_MAX;
        let next = || self.0.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).sum()
    }
}

/// For a command, and for who speaks of it at its end.
pub(crate) fn kept() -> (Kept, KeptInAll) {
    let (add, heard) = channel();
    (Kept { add, ending: Arc::default() }, KeptInAll(heard))
}

/// Runs `work` until it is done or a signal arrives, and then drops it.
pub(crate) async fn interruptible(work: impl Future<Output = Result> + Send + 'static) -> Result {
    interruptible_safely(work, Arc::default()).await
}

/// As [`interruptible`], but lets the work save its progress first.
pub(crate) async fn interruptible_safely(
    work: impl Future<Output = Result> + Send + 'static,
    ending: Arc<Ending>,
) -> Result {
    let mut work = tokio::spawn(work);
    tokio::select! {
        result = &mut work => result.unwrap_or_else(|e| Err(Error::refused("remora", e.to_string()))),
        number = wait() => {
            ending.make_safe().await;
            work.abort();
            // Do not wait for work that hangs in a system call (a full pipe).
            let _ = tokio::time::timeout(TIDY_MAX, work).await;
            Err(Error::Interrupted(number))
        }
    }
}

/// Ignores SIGUSR1. `serve` prints its counters on it; other commands with this name must survive it.
pub(crate) fn outlive_user_signal() {
    // An installed handler suppresses the default action.
    let _ = unless_ignored(SignalKind::user_defined1());
}

/// Waits for SIGINT, SIGTERM or SIGHUP; returns its number.
pub(crate) async fn wait() -> u8 {
    catch().await
}

/// Waits for a further signal after the one that ended a wait.
pub(crate) async fn again() -> u8 {
    again_some(true).await
}

/// As [`again`]; SIGHUP counts only if `hangup_counts`.
pub(crate) async fn again_some(hangup_counts: bool) -> u8 {
    tokio::time::sleep(SAME).await;
    catch_some(hangup_counts).await
}

/// Installs the handlers at once, not at the first poll; returns the next signal's number.
pub(crate) fn catch() -> impl Future<Output = u8> {
    catch_some(true)
}

/// As [`catch`]; SIGHUP counts only if `hangup_counts`.
pub(crate) fn catch_some(hangup_counts: bool) -> impl Future<Output = u8> {
    let (interrupt, terminate, hangup) = (SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup());
    let (interrupted, terminated) = (once(interrupt), once(terminate));
    let hung_up = hangup_counts.then(|| once(hangup));
    async move {
        let hung_up = async {
            match hung_up {
                Some(hung_up) => hung_up.await,
                None => std::future::pending().await,
            }
        };
        let number = tokio::select! {
            () = interrupted => interrupt,
            () = terminated => terminate,
            () = hung_up => hangup,
        };
        number.as_raw_value() as u8
    }
}

fn once(kind: SignalKind) -> impl Future<Output = ()> {
    // If no handler can be installed the default action remains.
    let stream = unless_ignored(kind);
    async move {
        match stream {
            Ok(Some(mut stream)) => {
                stream.recv().await;
            }
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}
