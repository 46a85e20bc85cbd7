//! Signals: Ctrl-C and its kin end a command at once, whatever the link does. What whoever started us has
//! had ignored (nohup(1) does that with a hang-up, shells with Ctrl-C behind `&`) stays ignored.

use std::fs;
use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Error, Result};

/// How long interrupted work may take to tidy up.
const TIDY_MAX: Duration = Duration::from_millis(500);

/// Tells how many bytes of unfinished copies `cp --resume` can start from. Each copy has one.
#[derive(Clone, Debug)]
pub(crate) struct Kept(Sender<u64>);

impl Kept {
    /// So many more.
    pub(crate) fn add(&self, bytes: u64) {
        // Where nobody listens there is nobody to tell.
        let _ = self.0.send(bytes);
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
    (Kept(add), KeptInAll(heard))
}

/// Does `work` on a task of its own until it is done or a signal comes. Work that is cut
/// short is dropped: what its owners clean up in `drop` is cleaned up.
pub(crate) async fn interruptible(work: impl Future<Output = Result> + Send + 'static) -> Result {
    let mut work = tokio::spawn(work);
    tokio::select! {
        result = &mut work => result.unwrap_or_else(|e| Err(Error::refused("remora", e.to_string()))),
        number = wait() => {
            work.abort();
            // Work that hangs in the system (a full pipe) is left behind.
            let _ = tokio::time::timeout(TIDY_MAX, work).await;
            Err(Error::Interrupted(number))
        }
    }
}

/// Waits for Ctrl-C, termination or hang-up; returns the signal's number.
pub(crate) async fn wait() -> u8 {
    catch().await
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
    let stream = if is_ignored(kind) { None } else { signal(kind).ok() };
    async move {
        match stream {
            Some(mut stream) => {
                stream.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Whether it was ignored from the start.
fn is_ignored(kind: SignalKind) -> bool {
    static INHERITED: OnceLock<u64> = OnceLock::new();
    // Asked before the first handler, for a signal that has one is not ignored any more.
    let inherited = INHERITED.get_or_init(|| fs::read_to_string("/proc/self/status").map_or(0, |s| ignored(&s)));
    inherited & (1 << (kind.as_raw_value() - 1)) != 0
}

/// The set of ignored signals in a process's status (proc_pid_status(5)); the lowest bit is signal 1.
fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_status_tells_what_is_ignored() {
        let status = "Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!((super::ignored(status), super::ignored("Name:\tx\n")), (0x1001, 0));
    }
}
