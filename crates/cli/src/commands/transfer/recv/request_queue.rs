//! Queue of requests: those that wait for a place or for a background job, and their answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use crate::commands::transfer::recv::background_jobs::{Found, JobQueue};
use crate::commands::transfer::recv::storage::quota::Owner;
use crate::commands::transfer::recv::storage::quota::{Census, Holder, Limits, Session, Shortage};
use crate::commands::transfer::recv::storage::store::{ReceivePolicy, Step, Store};
use crate::commands::transfer::transfer_protocol::{Announcement, Verdict};

/// Most messages that wait for a background job, and most announcements that wait for a place.
const WAITING: Limits = Limits { of_key: 64, of_host: 128, all: 1024 };
/// Bytes of a file that one of them may have with it: files of so many are sent unasked.
const BYTES_MAX: usize = 64 << 10;
/// Interval of the search for ended sessions while announcements wait for a place.
const LOOK: Duration = Duration::from_secs(1);

/// An announcement, and what came with it.
#[derive(Debug)]
pub(crate) struct Message<T> {
    /// Destination of answers.
    pub(crate) to: T,
    pub(crate) from: Holder,
    pub(crate) said: Announcement,
    pub(crate) data: Bytes,
}

/// An answer and its destination.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    pub(crate) to: T,
    pub(crate) from: Holder,
    pub(crate) said: Announcement,
    pub(crate) verdict: Verdict,
}

impl<T> Message<T> {
    fn owner(&self) -> Owner {
        (self.from.key, self.said.name.clone())
    }

    fn told(self, verdict: Verdict) -> Reply<T> {
        Reply { to: self.to, from: self.from, said: self.said, verdict }
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

/// The store, its background jobs, and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct RequestQueue<T> {
    store: Store,
    works: JobQueue,
    /// The first message of each owner started the job.
    waiting: BTreeMap<Owner, Vec<Message<T>>>,
    /// Questions that wait for a place.
    queue: VecDeque<Message<T>>,
    /// Next time to check whether a place is free.
    next_place: Option<Instant>,
}

/// A background event.
#[derive(Debug)]
pub(crate) enum Done {
    BackgroundJob(Owner, Found),
    /// An unfinished file may make room by now.
    Silence,
}

impl<T: Clone + Session + 'static> RequestQueue<T> {
    pub(crate) fn new(rules: ReceivePolicy) -> RequestQueue<T> {
        RequestQueue {
            store: Store::new(rules),
            works: JobQueue::default(),
            waiting: BTreeMap::new(),
            queue: VecDeque::new(),
            next_place: None,
        }
    }

    /// Handles a message; returns the answers that are now due.
    pub(crate) fn take(&mut self, message: Message<T>) -> Vec<Reply<T>> {
        let mut told = match self.consider(message) {
            Ok(told) => told.into_iter().collect(),
            Err(message) => self.enqueue(*message),
        };
        if self.store.has_room() {
            told.extend(self.serve_queue());
        }
        told
    }

    /// What is to be answered now, if anything. Gives back a message whose file needs a place that is not there.
    fn consider(&mut self, message: Message<T>) -> Result<Option<Reply<T>>, Box<Message<T>>> {
        let session = Arc::new(message.to.clone());
        match self.store.take(message.from, session, &message.said, &message.data) {
            Step::Answer(verdict) => Ok(verdict.map(|verdict| message.told(verdict))),
            Step::Background(work) => {
                self.works.begin(*work);
                self.waiting.entry(message.owner()).or_default().push(message.bare());
                Ok(None)
            }
            Step::Wait => Ok(self.hold(message)),
            Step::Queue => Err(Box::new(message)),
        }
    }

    fn hold(&mut self, message: Message<T>) -> Option<Reply<T>> {
        let owner = message.owner();
        let is_same = self.store.worked_on(&owner).is_some_and(|file| message.is_about(file));
        let message = if is_same { message.bare() } else { message };
        let held = Census::of(self.waiting.values().flatten().map(|waiting| waiting.from));
        if held.shortage(WAITING, message.from).is_some() || message.data.len() > BYTES_MAX {
            let why = "the receiver is processing a file of this name: try again later".into();
            return Some(message.told(Verdict::Refused { why }));
        }
        self.waiting.entry(owner).or_default().push(message);
        None
    }

    /// Queues an announcement, without the data that came with it, until a place for its file is free, and answers
    /// `Waits`. A full queue refuses the last queued announcement of a sender that has more of them than this sender.
    fn enqueue(&mut self, message: Message<T>) -> Vec<Reply<T>> {
        let refused = |message: Message<T>| message.told(Verdict::Refused { why: TOO_MANY.into() });
        // Its sender has more parts on their way.
        if message.said.at.is_some() && self.queue.iter().any(|queued| queued.owner() == message.owner()) {
            return Vec::new();
        }
        let message = message.bare();
        self.drop_ended();
        let held = Census::of(self.queue.iter().map(|queued| queued.from));
        let mut told = Vec::new();
        match held.shortage(WAITING, message.from) {
            None => {}
            Some(Shortage::All) => {
                let last = self.queue.iter().rposition(|queued| held.outweighs(queued.from, message.from));
                match last.and_then(|last| self.queue.remove(last)) {
                    Some(last) => told.push(refused(last)),
                    None => return vec![refused(message)],
                }
            }
            Some(_) => return vec![refused(message)],
        }
        self.wake_for(message.from);
        let waits =
            Reply { to: message.to.clone(), from: message.from, said: message.said.clone(), verdict: Verdict::Waits };
        told.push(waits);
        self.queue.push_back(message);
        told
    }

    /// Drops the announcements of ended sessions, which cannot receive an answer.
    fn drop_ended(&mut self) {
        self.queue.retain(|queued| !queued.to.has_ended());
    }

    /// Handles again the queued announcements for which a place has become free.
    fn serve_queue(&mut self) -> Vec<Reply<T>> {
        let (mut told, mut left) = (Vec::new(), VecDeque::new());
        // Places only become fewer on the way.
        let mut without = BTreeSet::new();
        self.next_place = None;
        self.drop_ended();
        while let Some(message) = self.queue.pop_front() {
            let from = message.from;
            if without.contains(&from) || self.wake_for(from) {
                without.insert(from);
                left.push_back(message);
                continue;
            }
            match self.consider(message) {
                Ok(answer) => told.extend(answer),
                Err(message) => left.push_back(*message),
            }
        }
        self.queue = left;
        told
    }

    /// Whether there is no place for this sender now; then a silent file may make room for it later.
    fn wake_for(&mut self, from: Holder) -> bool {
        let Err(at) = self.store.place_for(from) else { return false };
        // A session may end before that.
        let look = Instant::now() + LOOK;
        self.next_place = self.next_place.into_iter().chain(at).chain([look]).min();
        true
    }

    /// The next background event, for `settle`.
    pub(crate) async fn next(&mut self) -> Done {
        let silence = async {
            match self.next_place {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            (owner, found) = self.works.next() => Done::BackgroundJob(owner, found),
            () = silence => Done::Silence,
        }
    }

    /// Takes the result of a background job; returns the answers that are now due.
    pub(crate) fn settle(&mut self, done: Done) -> Vec<Reply<T>> {
        let mut told = match done {
            Done::BackgroundJob(owner, found) => self.settle_work(&owner, found),
            Done::Silence => Vec::new(),
        };
        self.store.has_room();
        told.extend(self.serve_queue());
        told
    }

    fn settle_work(&mut self, owner: &Owner, found: Found) -> Vec<Reply<T>> {
        let verdict = self.store.settle(owner, found);
        let mut waited = self.waiting.remove(owner).unwrap_or_default().into_iter();
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

const TOO_MANY: &str = "too many files are in transfer: try again later";

#[cfg(test)]
#[path = "request_queue_tests.rs"]
mod tests;
