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
mod types;

use bytes::Bytes;
use remora_base::{Peer, Time};

pub use crate::connections::{Connections, Ends, Streams};
pub use key::{Keys, Request};
pub use types::{Completion, Config, EntryId, FileTimes, Finished, Stats, Verdict};

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
