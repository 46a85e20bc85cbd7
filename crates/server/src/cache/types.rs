//! The vocabulary of the duplicate request cache: configuration, verdicts, results and statistics.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Peer;
use remora_wire::nfs3::{NfsTime, Proc};

/// Which cache, and how large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Config {
    /// None: everything is executed.
    Off,
    /// The reference port's (DRC 89, section 2.5): asked only when CREATE, REMOVE, LINK, MKDIR
    /// or RMDIR has failed.
    Reference {
        /// Entries, used round robin.
        entries: usize,
    },
    /// Juszczak's (DRC 89, section 4): asked first, for every request.
    Juszczak {
        /// Entries, used round robin.
        entries: usize,
        /// How long after its completion the duplicates of a request are thrown away.
        throwaway: Duration,
    },
    /// Exact replies, for non-idempotent requests, within a bound of bytes shared fairly.
    Full {
        /// The most bytes of replies and bookkeeping; see [`Cache::bytes`].
        bytes_max: usize,
        /// How long a reply is kept after it was last asked for, if there is room; asking keeps it for
        /// four times as long at most.
        keep: Duration,
    },
}

impl Config {
    /// Entries of the historical caches (DRC 89, section 4).
    pub const ENTRIES: usize = 400;
    /// The upper end of the 3 to 6 s that DRC 89, section 4.2 found sufficient.
    pub const THROWAWAY: Duration = Duration::from_secs(6);
    /// 64 MiB: some 70,000 replies to WRITE.
    pub const BYTES_MAX: usize = 64 << 20;
    /// Beyond two retries of a TCP client that asks again after 60 s.
    pub const KEEP: Duration = Duration::from_secs(150);

    /// The reference port's cache at its original size.
    pub const fn reference() -> Config {
        Config::Reference { entries: Config::ENTRIES }
    }

    /// Juszczak's cache as DRC 89, section 5 measured it.
    pub const fn juszczak() -> Config {
        Config::Juszczak { entries: Config::ENTRIES, throwaway: Config::THROWAWAY }
    }

    /// The full cache at its default size.
    pub const fn full() -> Config {
        Config::Full { bytes_max: Config::BYTES_MAX, keep: Config::KEEP }
    }

    /// Whether requests of `proc` are to be asked about. The others are executed as they come.
    pub fn covers(&self, proc: Proc) -> bool {
        match self {
            Config::Off => false,
            Config::Reference { .. } => reference_covers(proc),
            Config::Juszczak { .. } => true,
            Config::Full { .. } => proc.is_non_idempotent(),
        }
    }

    /// Bytes the cache may hold, where that is bounded by bytes.
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

/// A request's place in the cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(pub(super) u64);

/// What to do with a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Execute it, and [`finish`](Cache::finish) with this entry.
    Execute(Option<EntryId>),
    /// It is being executed already: do nothing now.
    InProgress,
    /// It was answered a moment ago: do nothing.
    Recent,
    /// Send this.
    Replay(Bytes),
    /// Ask for the present times of the request's target and give them to
    /// [`Cache::checked`].
    Check(EntryId),
    /// It would be executed if there were room. Nothing was noted.
    NoRoom,
}

impl Verdict {
    /// Whether the request is one come again.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Verdict::InProgress | Verdict::Recent | Verdict::Replay(_) | Verdict::Check(_) => true,
            Verdict::Execute(_) | Verdict::NoRoom => false,
        }
    }
}

/// A file's times, by which Juszczak's cache sees that it has not changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileTimes {
    /// Last change of the data.
    pub mtime: NfsTime,
    /// Last change of the attributes.
    pub ctime: NfsTime,
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The whole reply.
    pub reply: Bytes,
    /// Whether it succeeded.
    pub ok: bool,
    /// The times of the request's target afterwards, if known.
    pub times: Option<FileTimes>,
}

/// The reply to send, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// The newest live path that the request came in on.
    pub to: Peer,
    /// The whole reply.
    pub reply: Bytes,
}

/// Counters of a cache. Which of them move depends on its form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Requests asked about.
    pub requests: u64,
    /// Duplicates of a request in progress, dropped (Juszczak).
    pub in_progress_dropped: u64,
    /// Duplicates of a request in progress that will have its reply (Full).
    pub in_progress_parked: u64,
    /// Duplicates dropped inside the throwaway window (Juszczak).
    pub throwaway_dropped: u64,
    /// Duplicates answered with the original's reply, or with a success made up for it
    /// (Reference).
    pub replays: u64,
    /// Duplicates recognised though their client came back from another port (Full).
    pub from_new_port: u64,
    /// Duplicates known to have been executed again. [`Config::Off`] knows of none,
    /// [`Config::Reference`] of few; [`Config::Full`] has none while it remembers.
    pub executed_again: u64,
    /// Replies given up for room before their time.
    pub evictions: u64,
    /// Replies given up because their time was over.
    pub expirations: u64,
    /// Requests executed without an entry because all entries were in progress.
    pub uncached: u64,
}

impl Stats {
    /// Both together.
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

/// Whether the reference cache covers a procedure.
fn reference_covers(proc: Proc) -> bool {
    matches!(proc, Proc::Create | Proc::Remove | Proc::Link | Proc::MkDir | Proc::RmDir)
}
