//! The duplicate request cache: what keeps a request that came twice from being done twice.
//!
//! A client repeats a request when the reply is late. Doing it again wastes the server's time
//! (DRC 89, section 3) and can destroy data: a CREATE or a truncation that is carried out a
//! second time, behind a WRITE that was acknowledged in between, takes that WRITE with it
//! (DRC 89, Example 1).
//!
//! Design rule: **a false hit is worse than a false miss**. A false miss does work twice; a
//! false hit tells a client that something was done which was not.
//!
//! The cache is a data structure: it executes nothing and sends nothing. Ask
//! [`Cache::begin`] what to do with a request, and report with [`Cache::finish`] what came of
//! one it said to execute. Of its four forms, [`Config::Full`] is the one to use; the others
//! are there to be measured against it.

mod clients;
mod full;
#[expect(clippy::disallowed_types, reason = "looked up by key only: order is never seen")]
mod index;
mod juszczak;
mod key;
mod reference;
mod ring;
mod slab;

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Time};
use remora_wire::nfs3::{NfsTime, Proc};

pub use crate::connections::{Connections, Ends, Streams};
pub use key::{Keys, Request};

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
            Config::Reference { .. } => reference::covers(proc),
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
pub struct EntryId(u64);

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

/// A duplicate request cache.
#[derive(Debug)]
pub struct Cache {
    form: Form,
    stats: Stats,
}

#[derive(Debug)]
enum Form {
    Off,
    Reference(reference::Reference),
    Juszczak(juszczak::Juszczak),
    Full(Box<full::Full>),
}

impl Cache {
    /// An empty cache.
    pub fn new(config: Config) -> Cache {
        let form = match config {
            Config::Off => Form::Off,
            Config::Reference { entries } => Form::Reference(reference::Reference::new(entries)),
            Config::Juszczak { entries, throwaway } => Form::Juszczak(juszczak::Juszczak::new(entries, throwaway)),
            Config::Full { bytes_max, keep } => Form::Full(Box::new(full::Full::new(bytes_max, keep))),
        };
        Cache { form, stats: Stats::default() }
    }

    /// What to do with `request`. `room` says whether there is room to execute it.
    pub fn begin(&mut self, now: Time, request: &Request, streams: Streams, room: bool) -> Verdict {
        self.stats.requests += 1;
        match &mut self.form {
            Form::Off | Form::Reference(_) if !room => Verdict::NoRoom,
            Form::Off | Form::Reference(_) => Verdict::Execute(None),
            Form::Juszczak(c) => c.begin(now, request, room, &mut self.stats),
            Form::Full(c) => c.begin(now, request, streams, room, &mut self.stats),
        }
    }

    /// `request` has been executed. `None` if no path it came on is left.
    pub fn finish(
        &mut self,
        now: Time,
        request: &Request,
        entry: Option<EntryId>,
        live: &Connections,
        done: Completion,
    ) -> Option<Finished> {
        let to = request.peer;
        let finished = match (&mut self.form, entry) {
            (Form::Full(c), Some(id)) => return c.finish(now, id, live, done.reply, &mut self.stats),
            (Form::Juszczak(c), Some(id)) => Finished { to, reply: c.finish(now, id, request.proc, done) },
            (Form::Reference(c), _) => Finished { to, reply: c.finish(request, done, &mut self.stats) },
            (Form::Off | Form::Juszczak(_) | Form::Full(_), _) => Finished { to, reply: done.reply },
        };
        live.reaches(&finished.to).then_some(finished)
    }

    /// The request of `entry` was not executed, and is not answered: come again, it is a new one.
    pub fn withdraw(&mut self, entry: EntryId) {
        match &mut self.form {
            Form::Full(c) => c.withdraw(entry),
            Form::Juszczak(c) => c.withdraw(entry),
            Form::Off | Form::Reference(_) => {}
        }
    }

    /// Where the reply of a request that is being executed would go now, if duplicates of it wait for that.
    pub fn goes_to(&self, entry: EntryId, live: &Connections) -> Option<Peer> {
        match &self.form {
            Form::Full(c) => c.goes_to(entry, live),
            Form::Off | Form::Reference(_) | Form::Juszczak(_) => None,
        }
    }

    /// The present times of a target that [`Verdict::Check`] asked about; `None` if it has
    /// none any more. Returns the reply to repeat, or `None` if the request is to be executed
    /// again.
    pub fn checked(&mut self, entry: EntryId, times: Option<FileTimes>) -> Option<Bytes> {
        match &mut self.form {
            Form::Juszczak(c) => c.checked(entry, times, &mut self.stats),
            Form::Off | Form::Reference(_) | Form::Full(_) => None,
        }
    }

    /// When [`expire`](Cache::expire) next has something to do.
    pub fn next_expiry(&self) -> Option<Time> {
        match &self.form {
            Form::Full(c) => c.next_expiry(),
            Form::Off | Form::Reference(_) | Form::Juszczak(_) => None,
        }
    }

    /// Gives up replies whose time is over, a bounded number of them.
    pub fn expire(&mut self, now: Time) {
        if let Form::Full(c) = &mut self.form {
            c.expire(now, &mut self.stats);
        }
    }

    /// Bytes held: of every entry its reply and a flat, generous charge for bookkeeping, and
    /// of every client a charge as well. What is in progress is charged too but never evicted.
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Off => 0,
            Form::Reference(c) => c.bytes(),
            Form::Juszczak(c) => c.bytes(),
            Form::Full(c) => c.bytes(),
        }
    }

    /// What the client has that has the most, in bytes, where replies are given up by client.
    pub fn largest(&self) -> usize {
        match &self.form {
            Form::Off | Form::Reference(_) | Form::Juszczak(_) => 0,
            Form::Full(c) => c.largest(),
        }
    }

    /// Gives up replies until no more than `bytes_max` is held or none is left that may go:
    /// always the oldest of the client that has the most.
    pub fn shrink(&mut self, bytes_max: usize) {
        if let Form::Full(c) = &mut self.form {
            c.shrink(bytes_max, &mut self.stats);
        }
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

#[cfg(test)]
mod tests;
