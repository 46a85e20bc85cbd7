//! The duplicate request cache: keeps a retransmitted request from being executed twice.
//!
//! A client retransmits a request when the reply is late. A second execution wastes time (DRC 89, section 3) and can
//! destroy data: a CREATE or a truncation that is repeated behind an acknowledged WRITE discards that WRITE (DRC 89,
//! Example 1).
//!
//! Design rule: **a false hit is worse than a false miss**. A false miss executes twice; a false hit reports success
//! for a request that was not executed.
//!
//! The cache is a data structure: it executes and sends nothing. [`Cache::begin`] decides about a request, and
//! [`Cache::finish`] takes the result of an execution. [`Config::Full`] is the form to use; the other three are for
//! comparison.

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

    /// Decides what to do with `request`. `room`: whether it could be executed.
    pub fn begin(&mut self, now: Time, request: &Request, streams: Streams, room: bool) -> Verdict {
        self.stats.requests += 1;
        match &mut self.form {
            Form::Off | Form::Reference(_) if !room => Verdict::NoRoom,
            Form::Off | Form::Reference(_) => Verdict::Execute(None),
            Form::Juszczak(c) => c.begin(now, request, room, &mut self.stats),
            Form::Full(c) => c.begin(now, request, streams, room, &mut self.stats),
        }
    }

    /// Takes the result of `request`. Returns `None` if none of its paths still exists.
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

    /// Forgets a request that was neither executed nor answered. A retransmission is a new request.
    pub fn withdraw(&mut self, entry: EntryId) {
        match &mut self.form {
            Form::Full(c) => c.withdraw(entry),
            Form::Juszczak(c) => c.withdraw(entry),
            Form::Off | Form::Reference(_) => {}
        }
    }

    /// The peer to which the reply of an executing request would go now, in a cache that parks duplicates.
    pub fn goes_to(&self, entry: EntryId, live: &Connections) -> Option<Peer> {
        match &self.form {
            Form::Full(c) => c.goes_to(entry, live),
            Form::Off | Form::Reference(_) | Form::Juszczak(_) => None,
        }
    }

    /// Takes the times that [`Verdict::Check`] asked for; `None` if the target is gone. Returns the reply to replay,
    /// or `None` if the request is to be executed again.
    pub fn checked(&mut self, entry: EntryId, times: Option<FileTimes>) -> Option<Bytes> {
        match &mut self.form {
            Form::Juszczak(c) => c.checked(entry, times, &mut self.stats),
            Form::Off | Form::Reference(_) | Form::Full(_) => None,
        }
    }

    /// When [`expire`](Cache::expire) has something to do next.
    pub fn next_expiry(&self) -> Option<Time> {
        match &self.form {
            Form::Full(c) => c.next_expiry(),
            Form::Off | Form::Reference(_) | Form::Juszczak(_) => None,
        }
    }

    /// Removes expired replies, a bounded number of them.
    pub fn expire(&mut self, now: Time) {
        if let Form::Full(c) = &mut self.form {
            c.expire(now, &mut self.stats);
        }
    }

    /// Bytes held: for each entry its reply and a fixed charge, and a charge for each client. Entries in progress
    /// count, but are never evicted.
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Off => 0,
            Form::Reference(c) => c.bytes(),
            Form::Juszczak(c) => c.bytes(),
            Form::Full(c) => c.bytes(),
        }
    }

    /// The bytes of the client that holds most, if the cache evicts by client.
    pub fn largest(&self) -> usize {
        match &self.form {
            Form::Off | Form::Reference(_) | Form::Juszczak(_) => 0,
            Form::Full(c) => c.largest(),
        }
    }

    /// Evicts replies, always the oldest of the client that holds most, until at most `bytes_max` is held or only
    /// entries in progress are left.
    pub fn shrink(&mut self, bytes_max: usize) {
        if let Form::Full(c) = &mut self.form {
            c.shrink(bytes_max, &mut self.stats);
        }
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

#[cfg(test)]
mod tests;
