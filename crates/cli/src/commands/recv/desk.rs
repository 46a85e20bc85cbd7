//! Who asked for what, and is to be answered when it is known.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_atp::session::PublicKey;

use super::store::{Owner, Rules, Step, Store};
use super::work::{Found, Works};
use crate::parcel::{Announcement, Verdict};

/// Messages of one sender, and of all, that wait for work on their files.
const OF_ONE_MAX: usize = 64;
const WAITING_MAX: usize = 1024;
/// Bytes of a file that one of them may have with it: files of so many are sent unasked.
const BYTES_MAX: usize = 64 << 10;

/// An announcement, and what came with it.
#[derive(Debug)]
pub(super) struct Message<T> {
    /// Where answers go.
    pub(super) to: T,
    pub(super) from: PublicKey,
    pub(super) said: Announcement,
    pub(super) data: Bytes,
}

/// What is to be answered.
#[derive(Debug)]
pub(super) struct Told<T> {
    pub(super) to: T,
    pub(super) from: PublicKey,
    pub(super) said: Announcement,
    pub(super) verdict: Verdict,
}

impl<T> Message<T> {
    fn owner(&self) -> Owner {
        (self.from, self.said.name.clone())
    }

    fn told(self, verdict: Verdict) -> Told<T> {
        Told { to: self.to, from: self.from, said: self.said, verdict }
    }

    fn is_about(&self, file: &Announcement) -> bool {
        (self.said.size, self.said.hash) == (file.size, file.hash)
    }

    /// Without its bytes, which are there already.
    fn bare(mut self) -> Message<T> {
        self.data.clear();
        self.said.at = None;
        self
    }
}

/// The store, what is done aside for it, and who waits for that.
#[derive(Debug)]
pub(super) struct Desk<T> {
    store: Store,
    works: Works,
    /// The first one of each owner had the work done.
    waiting: BTreeMap<Owner, Vec<Message<T>>>,
}

impl<T> Desk<T> {
    pub(super) fn new(rules: Rules) -> Desk<T> {
        Desk { store: Store::new(rules), works: Works::default(), waiting: BTreeMap::new() }
    }

    /// Takes a message; what is to be answered now, if anything.
    pub(super) fn take(&mut self, message: Message<T>) -> Option<Told<T>> {
        match self.store.take(message.from, &message.said, &message.data) {
            Step::Answer(verdict) => verdict.map(|verdict| message.told(verdict)),
            Step::Aside(work) => {
                self.works.begin(work);
                self.waiting.entry(message.owner()).or_default().push(message.bare());
                None
            }
            Step::Wait => self.hold(message),
        }
    }

    fn hold(&mut self, message: Message<T>) -> Option<Told<T>> {
        let owner = message.owner();
        let is_same = self.store.worked_on(&owner).is_some_and(|file| message.is_about(file));
        let message = if is_same { message.bare() } else { message };
        let of = |from: Option<PublicKey>| {
            let of = self.waiting.iter().filter(|((by, _), _)| from.is_none_or(|from| from == *by));
            of.map(|(_, messages)| messages.len()).sum::<usize>()
        };
        let is_full = of(Some(message.from)) >= OF_ONE_MAX || of(None) >= WAITING_MAX;
        if is_full || message.data.len() > BYTES_MAX {
            let why = "the receiver is at work on a file of this name: try again later".into();
            return Some(message.told(Verdict::Refused { why }));
        }
        self.waiting.entry(owner).or_default().push(message);
        None
    }

    /// The next thing that is done, to be settled.
    pub(super) async fn next(&mut self) -> (Owner, Found) {
        self.works.next().await
    }

    /// Takes what was done; all that is to be answered now.
    pub(super) fn settle(&mut self, (owner, found): (Owner, Found)) -> Vec<Told<T>> {
        let verdict = self.store.settle(&owner, found);
        let mut waited = self.waiting.remove(&owner).unwrap_or_default().into_iter();
        let Some(first) = waited.next() else { return Vec::new() };
        let (said, is_over) = (first.said.clone(), !matches!(verdict, Verdict::Missing { .. }));
        let mut told = vec![first.told(verdict.clone())];
        for message in waited {
            match is_over && message.is_about(&said) {
                true => told.push(message.told(verdict.clone())),
                false => told.extend(self.take(message)),
            }
        }
        told
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
