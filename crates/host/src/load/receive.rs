//! The receiver: counts the packets of every run, and answers requests for the counters.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use remora_base::Time;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::datagram::{Datagram, REPORT_BYTES, decode, encode};
use super::plan::{ANSWER_MAX, PAYLOAD_MAX, elapsed};
use super::tally::{Carried, Tally};

/// Maximum number of runs remembered; a new one replaces the one silent for longest.
pub const RUNS_MAX: usize = 64;
/// Longest wait, so that a stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Requested socket buffer in bytes: a pause of this process should not look like loss.
const BUFFER: usize = 4 << 20;

/// A run, as its receiver knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub run: u64,
    pub from: SocketAddr,
    /// Whether the sender has ended it.
    pub ended: bool,
    pub carried: Carried,
}

/// The runs of a receiver, readable from other threads.
#[derive(Debug, Default)]
pub struct Runs {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By id and sender: two runs may have one id.
    runs: BTreeMap<Key, Entry>,
    strays: u64,
}

type Key = (u64, SocketAddr);

#[derive(Debug)]
struct Entry {
    ended: bool,
    tally: Tally,
}

impl Runs {
    /// All runs by id, including those in progress.
    pub fn all(&self) -> Vec<Run> {
        self.with(|inner| inner.runs.iter().map(|(key, entry)| entry.run(*key)).collect())
    }

    /// Counters of a run; zero if unknown. Of several with one id, the one heard last.
    pub fn carried(&self, run: u64) -> Carried {
        self.with(|inner| {
            let of_name = inner.runs.iter().filter(|((name, _), _)| *name == run).map(|(_, entry)| &entry.tally);
            of_name.max_by_key(|tally| tally.heard()).map(Tally::carried).unwrap_or_default()
        })
    }

    /// Datagrams of no run.
    pub fn strays(&self) -> u64 {
        self.with(|inner| inner.strays)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Entry {
    fn new() -> Entry {
        Entry { ended: false, tally: Tally::new() }
    }

    fn run(&self, (run, from): Key) -> Run {
        Run { run, from, ended: self.ended, carried: self.tally.carried() }
    }
}

impl Inner {
    /// The entry of a run, created if new.
    fn entry(&mut self, key: Key) -> &mut Entry {
        if !self.runs.contains_key(&key) && self.runs.len() >= RUNS_MAX {
            let silent = self.runs.iter().min_by_key(|(_, e)| e.tally.heard()).map(|(key, _)| *key);
            silent.and_then(|silent| self.runs.remove(&silent));
        }
        self.runs.entry(key).or_insert_with(Entry::new)
    }

    /// The counters for a run's packet at `now`. Late packets count for the ended run for some time, then for a new
    /// run of its id.
    fn count(&mut self, key: Key, now: Time) -> &mut Tally {
        let entry = self.entry(key);
        if entry.ended && now.since(entry.tally.heard()) > ANSWER_MAX {
            *entry = Entry::new();
        }
        &mut entry.tally
    }
}

/// Creates a socket for [`receive`] at `at`, in the network namespace of the calling thread.
pub fn listen(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    // The system may grant less.
    let _ = set_socket_recv_buffer_size(&socket, BUFFER);
    socket.set_read_timeout(Some(TICK))?;
    Ok(socket)
}

/// Counts packets on a [listening](listen) socket until `stop` is set. Calls `ended` once for each run that its
/// sender ends.
pub fn receive(socket: &UdpSocket, runs: &Runs, stop: &AtomicBool, mut ended: impl FnMut(Run)) -> io::Result<()> {
    let began = Instant::now();
    let mut buffer = vec![0; PAYLOAD_MAX];
    while !stop.load(Ordering::Acquire) {
        let (n, from) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            // Nothing was received, or the receiver of an answer has gone.
            Err(e) if is_passing(&e) => continue,
            Err(e) => return Err(e),
        };
        let now = elapsed(began);
        match buffer.get(..n).and_then(decode) {
            Some((run, Datagram::Data { number, sent })) => {
                runs.with(|inner| inner.count((run, from), now).take(now, number, sent, n));
            }
            Some((run, Datagram::End { sent })) => {
                let (known, first) = runs.with(|inner| {
                    let entry = inner.entry((run, from));
                    entry.tally.end(now, sent);
                    let first = !std::mem::replace(&mut entry.ended, true);
                    (entry.run((run, from)), first)
                });
                let mut answer = [0; REPORT_BYTES];
                encode(run, &Datagram::Report(known.carried), &mut answer);
                // A sender without an answer asks again.
                let _ = socket.send_to(&answer, from);
                if first {
                    ended(known);
                }
            }
            Some((_, Datagram::Report(_))) | None => runs.with(|inner| inner.strays += 1),
        }
    }
    Ok(())
}

fn is_passing(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(e.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_silent_run_is_evicted() {
        let mut inner = Inner::default();
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        for run in 0..RUNS_MAX as u64 {
            // Run 7 was heard last, long ago.
            let at = if run == 7 { Time::ZERO } else { Time::from_secs(run + 1) };
            inner.count((run, from), at).take(at, 0, Duration::ZERO, 1);
        }
        let at = Time::from_secs(99);
        inner.count((1000, from), at).take(at, 0, Duration::ZERO, 1);
        assert_eq!(inner.runs.len(), RUNS_MAX);
        assert!(!inner.runs.contains_key(&(7, from)) && inner.runs.contains_key(&(1000, from)));
    }

    const KEY: Key = (1, SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9));

    /// Records packet `number` at `at`; returns whether the run has ended, and its packets.
    fn take(inner: &mut Inner, at: u64, number: u64) -> (bool, u64) {
        let at = Time::from_secs(at);
        inner.count(KEY, at).take(at, number, Duration::ZERO, 1);
        let entry = inner.entry(KEY);
        (entry.ended, entry.tally.carried().packets)
    }

    fn end(inner: &mut Inner, at: u64, sent: u64) {
        let entry = inner.entry(KEY);
        entry.ended = true;
        entry.tally.end(Time::from_secs(at), sent);
    }

    #[test]
    fn finished_run_with_same_name_is_counted_anew() {
        let mut inner = Inner::default();
        assert_eq!([take(&mut inner, 0, 0), take(&mut inner, 2, 2)], [(false, 1), (false, 2)]);
        end(&mut inner, 3, 3);
        assert_eq!(take(&mut inner, 4, 1), (true, 3), "it was overtaken by the end");
        let later = 5 + ANSWER_MAX.as_secs();
        assert_eq!([take(&mut inner, later, 0), take(&mut inner, later, 1)], [(false, 1), (false, 2)]);
    }

    #[test]
    fn duplicate_after_end_starts_no_run() {
        let mut inner = Inner::default();
        (0..3).for_each(|n| _ = take(&mut inner, n, n));
        end(&mut inner, 3, 3);
        assert_eq!(take(&mut inner, 4, 2), (true, 3));
        let carried = inner.entry(KEY).tally.carried();
        assert_eq!((carried.packets, carried.duplicates, carried.lost), (3, 1, 0));
    }
}
