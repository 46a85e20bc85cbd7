//! The vocabulary of the duplicate request cache: configuration, verdicts, results and statistics.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Peer;
use remora_wire::nfs3::{NfsTime, Proc};

/// The form and size of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Config {
    /// No cache: everything is executed.
    Off,
    /// The cache of the reference port (DRC 89, section 2.5): asked only when CREATE, REMOVE, LINK, MKDIR or RMDIR
    /// has failed.
    Reference {
        /// Entries, used round robin.
        entries: usize,
    },
    /// Juszczak's cache (DRC 89, section 4): asked first, for every request.
    Juszczak {
        /// Entries, used round robin.
        entries: usize,
        /// How long after its completion duplicates of a request are dropped.
        throwaway: Duration,
    },
    /// Exact replies to non-idempotent requests, within a bound of bytes that clients share fairly.
    Full {
        /// Most bytes of replies and bookkeeping; see [`Cache::bytes`](super::Cache::bytes).
        bytes_max: usize,
        /// How long a reply is kept after its last replay, if memory allows; at most four times as long in total.
        keep: Duration,
    },
}

impl Config {
    /// Entries of the historical caches (DRC 89, section 4).
    pub const ENTRIES: usize = 400;
    /// The upper end of the 3 to 6 s that DRC 89, section 4.2 found sufficient.
    pub const THROWAWAY: Duration = Duration::from_secs(6);
    /// 64 MiB: about 70,000 replies to WRITE.
    pub const BYTES_MAX: usize = 64 << 20;
    /// More than two retransmissions of a TCP client, 60 s apart.
    pub const KEEP: Duration = Duration::from_secs(150);

    /// The cache of the reference port at its original size.
    pub const fn reference() -> Config {
        Config::Reference { entries: Config::ENTRIES }
    }

    /// Juszczak's cache as measured in DRC 89, section 5.
    pub const fn juszczak() -> Config {
        Config::Juszczak { entries: Config::ENTRIES, throwaway: Config::THROWAWAY }
    }

    /// The full cache at its default size.
    pub const fn full() -> Config {
        Config::Full { bytes_max: Config::BYTES_MAX, keep: Config::KEEP }
    }

    /// Whether the cache is asked about requests of `proc`. Others are executed.
    pub fn covers(&self, proc: Proc) -> bool {
        match self {
            Config::Off => false,
            Config::Reference { .. } => reference_covers(proc),
            Config::Juszczak { .. } => true,
            Config::Full { .. } => proc.is_non_idempotent(),
        }
    }

    /// The bound of the cache in bytes, if it has one.
    pub fn bytes_max(&self) -> Option<usize> {
        match self {
            Config::Full { bytes_max, .. } => Some(*bytes_max),
            Config::Off | Config::Reference { .. } | Config::Juszczak { .. } => None,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::full()
    }
}

/// Identifies an entry of the cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(pub(super) u64);

/// What to do with a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Execute it, and [`finish`](super::Cache::finish) it with this entry.
    Execute(Option<EntryId>),
    /// Nothing: it executes already.
    InProgress,
    /// Nothing: it was answered a moment ago.
    Recent,
    /// Send this reply again.
    Replay(Bytes),
    /// Read the times of the request's target, for [`Cache::checked`](super::Cache::checked).
    Check(EntryId),
    /// Nothing: there is no room to execute it. The cache noted nothing.
    NoRoom,
}

impl Verdict {
    /// Whether the request is a duplicate.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Verdict::InProgress | Verdict::Recent | Verdict::Replay(_) | Verdict::Check(_) => true,
            Verdict::Execute(_) | Verdict::NoRoom => false,
        }
    }
}

/// A file's times, by which Juszczak's cache detects changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileTimes {
    pub mtime: NfsTime,
    pub ctime: NfsTime,
}

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The encoded reply.
    pub reply: Bytes,
    /// Whether the request succeeded.
    pub ok: bool,
    /// The times of the request's target afterwards, if known.
    pub times: Option<FileTimes>,
}

/// A reply to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// The newest path of the request that still exists.
    pub to: Peer,
    pub reply: Bytes,
}

/// Counters of a cache. Which of them move depends on its form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Requests that the cache was asked about.
    pub requests: u64,
    /// Duplicates of a request in progress, dropped (Juszczak).
    pub in_progress_dropped: u64,
    /// Duplicates of a request in progress that share its reply (Full).
    pub in_progress_parked: u64,
    /// Duplicates dropped shortly after the completion (Juszczak).
    pub throwaway_dropped: u64,
    /// Duplicates answered with the original reply, or with a synthesized success (Reference).
    pub replays: u64,
    /// Duplicates recognised although the client reconnected from another port (Full).
    pub from_new_port: u64,
    /// Duplicates known to have been executed again. [`Config::Off`] knows of none, [`Config::Reference`] of few;
    /// [`Config::Full`] executes none while it remembers.
    pub executed_again: u64,
    /// Replies evicted for lack of memory.
    pub evictions: u64,
    /// Replies dropped at the end of their time to live.
    pub expirations: u64,
    /// Requests executed without an entry because all entries were in progress.
    pub uncached: u64,
}

impl Stats {
    /// The sums of both.
    pub(crate) fn and(self, other: Stats) -> Stats {
        Stats {
            requests: self.requests + other.requests,
            in_progress_dropped: self.in_progress_dropped + other.in_progress_dropped,
            in_progress_parked: self.in_progress_parked + other.in_progress_parked,
            throwaway_dropped: self.throwaway_dropped + other.throwaway_dropped,
            replays: self.replays + other.replays,
            from_new_port: self.from_new_port + other.from_new_port,
            executed_again: self.executed_again + other.executed_again,
            evictions: self.evictions + other.evictions,
            expirations: self.expirations + other.expirations,
            uncached: self.uncached + other.uncached,
        }
    }
}

fn reference_covers(proc: Proc) -> bool {
    matches!(proc, Proc::Create | Proc::Remove | Proc::Link | Proc::MkDir | Proc::RmDir)
}
