//! The requests of a world and their results, with the rules that they must obey.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_atp::session::PeerId;
use remora_atp::{Final, Outcome, Rejection, RequestId};
use remora_base::Time;

/// Bytes at the head of an object that identify it.
pub(super) const NAME: usize = 8;

/// The requester: a node, and its restart count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Requester {
    pub(super) node: usize,
    pub(super) life: u32,
    pub(super) request: RequestId,
}

/// A request and its events.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) asked: Requester,
    pub(super) peer: PeerId,
    pub(super) to: usize,
    pub(super) object: Bytes,
    /// The last deadline set by the program.
    pub(super) deadline: Option<Time>,
    /// Whether it ever had a deadline.
    pub(super) had_deadline: bool,
    /// Whether the program cancelled it.
    pub(super) cancelled: bool,
    pub(super) end: Option<Final>,
    /// When it was delivered at the other end.
    pub(super) arrived: Option<Time>,
    /// Its node restarted without it.
    pub(super) forgotten: bool,
}

/// All requests, by the names of their objects.
#[derive(Default)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
    numbers: BTreeMap<Requester, usize>,
    pub(super) violations: Vec<String>,
}

impl Ledger {
    pub(super) fn next_name(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn submitted(&mut self, entry: Entry) {
        if self.numbers.insert(entry.asked, self.entries.len()).is_some() {
            self.violations.push(format!("{:?} was assigned twice", entry.asked));
        }
        self.entries.push(entry);
    }

    pub(super) fn entry(&mut self, asked: Requester) -> Option<&mut Entry> {
        self.numbers.get(&asked).and_then(|n| self.entries.get_mut(*n))
    }

    /// Requests of `node` without a final status.
    pub(super) fn open(&self, node: usize, life: u32) -> impl Iterator<Item = &Entry> {
        let mine = move |e: &&Entry| e.asked.node == node && e.asked.life == life && e.end.is_none();
        self.entries.iter().filter(mine)
    }

    pub(super) fn forget(&mut self, node: usize) {
        self.entries.iter_mut().filter(|e| e.asked.node == node && e.end.is_none()).for_each(|e| e.forgotten = true);
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|e| e.end.is_none() && !e.forgotten)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A request got its final status.
    pub(super) fn ended(&mut self, now: Time, asked: Requester, end: Final) {
        let Some(entry) = self.entry(asked) else {
            return self
                .violations
                .push(format!("{now}: {asked:?}, which was never requested, ended: {:?}", end.outcome));
        };
        if let Some(before) = entry.end.replace(end) {
            let text = format!("{now}: {asked:?} ended twice: {:?}, then {:?}", before.outcome, end.outcome);
            return self.violations.push(text);
        }
        let complaint = complaint(entry, end);
        self.violations.extend(complaint.map(|what| format!("{now}: {asked:?} {what}")));
    }

    /// `object` was delivered at `node` by a datagram sent at `sent`.
    pub(super) fn arrived(&mut self, now: Time, sent: Time, node: usize, object: &Bytes) {
        let name = object.first_chunk::<NAME>().map(|n| u64::from_be_bytes(*n));
        let entry = name.and_then(|n| self.entries.get_mut(usize::try_from(n).ok()?));
        let Some(entry) = entry.filter(|e| e.to == node && e.object == *object) else {
            return self
                .violations
                .push(format!("{now}: node {node} got {} bytes that were never sent to it", object.len()));
        };
        let asked = entry.asked;
        if entry.arrived.replace(now).is_some() {
            self.violations.push(format!("{now}: the object of {asked:?} was delivered twice"));
        } else if let Some(end) = entry.end.filter(|e| e.outcome != Outcome::Delivered && e.at < sent) {
            self.violations.push(format!("{now}: {asked:?} ended {:?} at {}, and continued", end.outcome, end.at));
        }
    }
}

/// The violation by this final status of a request.
fn complaint(entry: &Entry, end: Final) -> Option<String> {
    let size = entry.object.len() as u64;
    let wrong = match end.outcome {
        Outcome::Delivered if entry.arrived.is_none() => "delivered, and never came",
        Outcome::Delivered if entry.deadline.is_some_and(|d| d < end.at) => "delivered after its deadline",
        Outcome::Delivered if end.written < size => "delivered, and not all of it was written",
        Outcome::Expired if entry.deadline.is_none_or(|d| d > end.at) => "expired before its deadline",
        Outcome::Evicted if !entry.had_deadline => "evicted for no deadline",
        Outcome::Rejected(Rejection::InsufficientBandwidth { .. } | Rejection::WouldDisplace(_))
            if !entry.had_deadline =>
        {
            "rejected for no deadline"
        }
        Outcome::Cancelled if !entry.cancelled => "cancelled without a request",
        _ if end.size != size => "ended with another size",
        _ => return None,
    };
    Some(format!("{wrong}: {end:?}"))
}
