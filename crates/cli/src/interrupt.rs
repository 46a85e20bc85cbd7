//! Signals: Ctrl-C and its kin end a command at once, whatever the link does. What whoever started us has
//! had ignored (nohup(1) does that with a hang-up, shells with Ctrl-C behind `&`) stays ignored.

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use remora_host::signals::unless_ignored;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use crate::output::exit::{Error, Result};

/// How long interrupted work may take to tidy up.
const TIDY_MAX: Duration = Duration::from_millis(500);
/// How long it may take before that to make safe what it has done.
const SAFE_MAX: Duration = Duration::from_secs(1);
/// A signal so soon after the first is the same: timeout(1) sends each twice, and so does a terminal that is closed.
const SAME: Duration = Duration::from_millis(50);

/// Tells how many bytes of unfinished copies `cp --resume` can start from. Each copy has one.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    add: Sender<u64>,
    ending: Arc<Ending>,
}

impl Kept {
    /// So many more.
    pub(crate) fn add(&self, bytes: u64) {
        // Where nobody listens there is nobody to tell.
        let _ = self.add.send(bytes);
    }

    /// For who has something to make safe before it is cut short.
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

/// The end of a command that a signal cuts short.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// The signal has come.
    is_due: watch::Sender<bool>,
    /// How many copies have something to make safe.
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

/// Work that an end without warning would waste. Dropped when it is safe, or cannot be made so.
#[derive(Debug)]
pub(crate) struct AtRisk(Arc<Ending>);

impl AtRisk {
    /// Waits for the signal.
    pub(crate) async fn ends(&self) {
        // It fails only if the other end is gone.
        let _ = self.0.is_due.subscribe().wait_for(|is_due| *is_due).await;
    }
}

impl Drop for AtRisk {
    fn drop(&mut self) {
        self.0.copies.send_modify(|copies| *copies -= 1);
    }
}

/// Hears what all copies have kept.
#[derive(Debug)]
pub(crate) struct KeptInAll(Receiver<u64>);

impl KeptInAll {
    /// How many bytes they have kept. Waits until all copies have tidied up: those that are cut short
    /// do so when their threads come to it.
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

/// Does `work` on a task of its own until it is done or a signal comes. Work that is cut
/// short is dropped: what its owners clean up in `drop` is cleaned up.
pub(crate) async fn interruptible(work: impl Future<Output = Result> + Send + 'static) -> Result {
    interruptible_safely(work, Arc::default()).await
}

/// The same for work that has something to make safe at the `ending`.
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
            // Work that hangs in the system (a full pipe) is left behind.
            let _ = tokio::time::timeout(TIDY_MAX, work).await;
            Err(Error::Interrupted(number))
        }
    }
}

/// From now on SIGUSR1 does not end the process. `serve` prints its counters then; an operator who sends it to another
/// command, or to all processes of this name, ends nothing.
pub(crate) fn outlive_user_signal() {
    // A handler that nobody listens to. Without one the signal keeps its default action.
    let _ = unless_ignored(SignalKind::user_defined1());
}

/// Waits for Ctrl-C, termination or hang-up; returns the signal's number.
pub(crate) async fn wait() -> u8 {
    catch().await
}

/// Waits for another signal after that which has just ended a wait.
pub(crate) async fn again() -> u8 {
    again_some(true).await
}

/// As [`again`], but for a hang-up only where that counts.
pub(crate) async fn again_some(hangup_counts: bool) -> u8 {
    tokio::time::sleep(SAME).await;
    catch_some(hangup_counts).await
}

/// From the call on, not only once it is waited for, these signals do nothing but end the wait.
pub(crate) fn catch() -> impl Future<Output = u8> {
    catch_some(true)
}

/// As [`catch`], but a hang-up only where that counts.
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
    // Without a handler the signal does what it always did: ends the process, or nothing.
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
