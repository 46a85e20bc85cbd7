//! The receiving end: counts what comes of every run, and answers who asks.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use remora_base::Time;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::datagram::{Datagram, REPORT_BYTES, decode, encode};
use super::tally::{Carried, Tally};
use super::{ANSWER_MAX, PAYLOAD_MAX, elapsed};

/// Runs that are remembered; a new one takes the place of the one that was silent for longest.
pub const RUNS_MAX: usize = 64;
/// The longest wait, so that a stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// What may wait in the system for us, in bytes, as far as it allows: a pause of ours shall not
/// look like a loss of the network's.
const BUFFER: usize = 4 << 20;

/// A run, as its receiver knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its name.
    pub run: u64,
    /// Where it comes from.
    pub from: SocketAddr,
    /// Whether its sender has said that it is over.
    pub ended: bool,
    /// What came.
    pub carried: Carried,
}

/// What a receiver counts, for whoever wants to look at it meanwhile.
#[derive(Debug, Default)]
pub struct Runs {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By name and sender: two may have one name, one after the other or at once.
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
    /// All runs by name, those in progress, too.
    pub fn all(&self) -> Vec<Run> {
        self.with(|inner| inner.runs.iter().map(|(key, entry)| entry.run(*key)).collect())
    }

    /// A run's count so far; nothing if it has not been heard of. Of several of one name it is that which
    /// was heard of last.
    pub fn carried(&self, run: u64) -> Carried {
        self.with(|inner| {
            let of_name = inner.runs.iter().filter(|((name, _), _)| *name == run).map(|(_, entry)| &entry.tally);
            of_name.max_by_key(|tally| tally.heard()).map(Tally::carried).unwrap_or_default()
        })
    }

    /// Datagrams that belong to no run.
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
    /// The count of a run, with room made for it if it is new.
    fn entry(&mut self, key: Key) -> &mut Entry {
        if !self.runs.contains_key(&key) && self.runs.len() >= RUNS_MAX {
            let silent = self.runs.iter().min_by_key(|(_, e)| e.tally.heard()).map(|(key, _)| *key);
            silent.and_then(|silent| self.runs.remove(&silent));
        }
        self.runs.entry(key).or_insert_with(Entry::new)
    }

    /// The count that a run's packet belongs to at `now`. For some time after a run's end that is the same run's,
    /// since packets come twice and overtake one another, and then that of a new run of its name.
    fn count(&mut self, key: Key, now: Time) -> &mut Tally {
        let entry = self.entry(key);
        if entry.ended && now.since(entry.tally.heard()) > ANSWER_MAX {
            *entry = Entry::new();
        }
        &mut entry.tally
    }
}

/// A socket for [`receive`] at `at`. It is made here, on the calling thread, and so belongs to that
/// thread's network namespace.
pub fn listen(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    // As much as the system gives.
    let _ = set_socket_recv_buffer_size(&socket, BUFFER);
    socket.set_read_timeout(Some(TICK))?;
    Ok(socket)
}

/// Counts what comes to a [listening](listen) socket until `stop` is set. `ended` hears of each run
/// once when its sender says that it is over.
pub fn receive(socket: &UdpSocket, runs: &Runs, stop: &AtomicBool, mut ended: impl FnMut(Run)) -> io::Result<()> {
    let began = Instant::now();
    let mut buffer = vec![0; PAYLOAD_MAX];
    while !stop.load(Ordering::Acquire) {
        let (n, from) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            // Nothing came, or somebody to whom we answered has gone.
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
                // Who does not get it asks again.
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
    fn the_run_that_was_silent_for_longest_gives_way() {
        let mut inner = Inner::default();
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        for run in 0..RUNS_MAX as u64 {
            // The run of name 7 was heard of last, long ago.
            let at = if run == 7 { Time::ZERO } else { Time::from_secs(run + 1) };
            inner.count((run, from), at).take(at, 0, Duration::ZERO, 1);
        }
        let at = Time::from_secs(99);
        inner.count((1000, from), at).take(at, 0, Duration::ZERO, 1);
        assert_eq!(inner.runs.len(), RUNS_MAX);
        assert!(!inner.runs.contains_key(&(7, from)) && inner.runs.contains_key(&(1000, from)));
    }

    const KEY: Key = (1, SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9));

    /// Has taken packet `number` at `at`; whether it is a run that has ended, and its packets.
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
    fn a_run_of_a_name_that_is_over_is_counted_anew() {
        let mut inner = Inner::default();
        assert_eq!([take(&mut inner, 0, 0), take(&mut inner, 2, 2)], [(false, 1), (false, 2)]);
        end(&mut inner, 3, 3);
        assert_eq!(take(&mut inner, 4, 1), (true, 3), "it was overtaken by the end");
        let later = 5 + ANSWER_MAX.as_secs();
        assert_eq!([take(&mut inner, later, 0), take(&mut inner, later, 1)], [(false, 1), (false, 2)]);
    }

    #[test]
    fn what_comes_again_after_the_end_is_no_new_run() {
        let mut inner = Inner::default();
        (0..3).for_each(|n| _ = take(&mut inner, n, n));
        end(&mut inner, 3, 3);
        assert_eq!(take(&mut inner, 4, 2), (true, 3));
        let carried = inner.entry(KEY).tally.carried();
        assert_eq!((carried.packets, carried.duplicates, carried.lost), (3, 1, 0));
    }
}
