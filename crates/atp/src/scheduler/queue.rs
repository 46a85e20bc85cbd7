//! One object queue: its objects in the orders the scheduler asks for.

use std::collections::{BTreeMap, BTreeSet};

use remora_base::Time;

use super::demand::Demand;
use super::paper::Step;
use crate::object::{Priority, RequestId};

/// Where an object with a deadline is in the order of deadlines.
pub(super) type Key = (Time, RequestId);

/// How an object with a deadline stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// To be sent.
    Kept,
    /// To be sent, before higher classes if it must.
    Pressed,
    /// Does not fit; to be sent if nothing else is there.
    Gamble,
    /// Does not fit.
    Parked,
    /// Does not fit, and the application has been told: suspended.
    Short,
}

/// An object with a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) level: usize,
    /// Bytes of it not written yet.
    pub(super) left: u64,
    pub(super) standing: Standing,
    /// Its application wants to be asked when it does not fit.
    pub(super) asks: bool,
}

/// What a queue would send next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) request: RequestId,
    pub(super) level: usize,
    pub(super) deadline: Option<Time>,
}

/// One queue. An object is in it while it may be sent: not when the application suspended it, its
/// destination is away, or all of it is written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    timeline: BTreeMap<Key, Entry>,
    kept: [BTreeSet<Key>; Priority::LEVELS],
    pressed: BTreeSet<Key>,
    gambles: BTreeSet<Key>,
    bulk: [BTreeSet<(u64, RequestId)>; Priority::LEVELS],
    bulk_left: [u64; Priority::LEVELS],
    /// Objects by level, those that are suspended apart.
    present: [usize; Priority::LEVELS],
    /// What its objects lately asked for.
    pub(super) demand: Demand,
    /// For each level: bytes lower levels may send first (see `plan`).
    pub(super) reserve: [f64; Priority::LEVELS],
    /// Objects that belong here, in it or not.
    pub(super) members: usize,
    /// When it was last planned.
    pub(super) planned: Time,
    /// Something changed since.
    pub(super) dirty: bool,
    /// The greatest bandwidth a kept object needs, bytes a second (the paper's stored maximum);
    /// the greatest number while that is not known.
    pub(super) needed_max: u64,
}

impl Queue {
    /// Objects with deadlines in it.
    pub(super) fn timed(&self) -> usize {
        self.timeline.len()
    }

    /// The objects with deadlines, earliest first.
    pub(super) fn timeline(&self) -> impl Iterator<Item = (Key, Entry)> {
        self.timeline.iter().map(|(k, e)| (*k, *e))
    }

    /// The objects to be sent, in strict order of priority.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step> {
        (0..Priority::LEVELS).rev().flat_map(move |level| {
            let timed = self.kept[level].iter().filter_map(move |key| {
                let left = self.timeline.get(key)?.left;
                Some(Step { request: key.1, deadline: Some(key.0), left })
            });
            let bulk = self.bulk[level].iter();
            timed.chain(bulk.map(move |(left, id)| Step { request: *id, deadline: None, left: *left }))
        })
    }

    /// Bytes left of objects without deadlines at `level`, and how many those are.
    pub(super) fn bulk(&self, level: usize) -> (u64, usize) {
        (self.bulk_left[level], self.bulk[level].len())
    }

    /// Whether some of it is not to be sent for now: room may come, or hope go.
    pub(super) fn has_parked(&self) -> bool {
        self.timeline.len() > self.kept.iter().map(BTreeSet::len).sum()
    }

    /// Takes an object in.
    pub(super) fn insert(&mut self, id: RequestId, deadline: Option<Time>, entry: Entry) {
        self.dirty = true;
        self.needed_max = u64::MAX;
        match deadline {
            Some(at) => {
                self.timeline.insert((at, id), entry);
                self.list((at, id), entry);
            }
            None => {
                self.bulk[entry.level].insert((entry.left, id));
                self.present[entry.level] += 1;
                self.bulk_left[entry.level] = self.bulk_left[entry.level].saturating_add(entry.left);
            }
        }
    }

    /// Takes an object out, if it is in.
    pub(super) fn remove(&mut self, id: RequestId, deadline: Option<Time>, level: usize, left: u64) {
        match deadline {
            Some(at) => {
                if let Some(entry) = self.timeline.remove(&(at, id)) {
                    self.unlist((at, id), entry);
                }
            }
            None => {
                if self.bulk[level].remove(&(left, id)) {
                    self.present[level] -= 1;
                    self.bulk_left[level] = self.bulk_left[level].saturating_sub(left);
                }
            }
        }
    }

    /// Notes that `bytes` of an object with `left` bytes to go were written.
    pub(super) fn written(&mut self, id: RequestId, deadline: Option<Time>, level: usize, left: u64, bytes: u64) {
        match deadline {
            Some(at) => {
                if let Some(entry) = self.timeline.get_mut(&(at, id)) {
                    entry.left = left.saturating_sub(bytes);
                }
            }
            None => {
                if self.bulk[level].remove(&(left, id)) {
                    self.bulk[level].insert((left.saturating_sub(bytes), id));
                    self.bulk_left[level] = self.bulk_left[level].saturating_sub(bytes.min(left));
                }
            }
        }
    }

    /// Changes how an object with a deadline stands.
    pub(super) fn set_standing(&mut self, key: Key, standing: Standing) {
        let Some(entry) = self.timeline.get_mut(&key) else { return };
        if entry.standing == standing {
            return;
        }
        let (old, new) = (*entry, Entry { standing, ..*entry });
        *entry = new;
        self.unlist(key, old);
        self.list(key, new);
    }

    fn list(&mut self, key: Key, entry: Entry) {
        self.present[entry.level] += usize::from(entry.standing != Standing::Short);
        match entry.standing {
            Standing::Kept | Standing::Pressed => {
                self.kept[entry.level].insert(key);
                if entry.standing == Standing::Pressed {
                    self.pressed.insert(key);
                }
            }
            Standing::Gamble => {
                self.gambles.insert(key);
            }
            Standing::Parked | Standing::Short => {}
        }
    }

    fn unlist(&mut self, key: Key, entry: Entry) {
        self.present[entry.level] -= usize::from(entry.standing != Standing::Short);
        self.kept[entry.level].remove(&key);
        self.pressed.remove(&key);
        self.gambles.remove(&key);
    }

    /// The highest level in it, but for what is suspended.
    pub(super) fn head_level(&self) -> Option<usize> {
        self.present.iter().rposition(|n| *n > 0)
    }

    /// What to send next of what fits, among the objects that `ready` lets pass.
    ///
    /// O(log n), and one step more for each object before it that is not ready.
    pub(super) fn next(&self, ready: &mut dyn FnMut(RequestId) -> bool) -> Option<Candidate> {
        let first = (0..Priority::LEVELS).rev().find_map(|level| {
            let timed = self.kept[level].iter().find(|key| ready(key.1));
            let timed = timed.map(|key| Candidate { request: key.1, level, deadline: Some(key.0) });
            timed.or_else(|| {
                let bulk = self.bulk[level].iter().find(|(_, id)| ready(*id));
                bulk.map(|(_, id)| Candidate { request: *id, level, deadline: None })
            })
        })?;
        Some(self.stepping_back(first, ready).unwrap_or(first))
    }

    /// The object that may go before `first`, of a lower class but pressed, while every class
    /// above it keeps its reserve. An object without a deadline never steps back: how long it can
    /// wait is not known.
    fn stepping_back(&self, first: Candidate, ready: &mut dyn FnMut(RequestId) -> bool) -> Option<Candidate> {
        let deadline = first.deadline?;
        let key = self.pressed.range(..(deadline, RequestId(0))).find(|key| ready(key.1))?;
        let level = self.timeline.get(key)?.level;
        let safe = level < first.level && self.reserve[level + 1] > 0.0;
        safe.then_some(Candidate { request: key.1, level, deadline: Some(key.0) })
    }

    /// What to send when there is nothing that fits.
    pub(super) fn gamble(&self, ready: &mut dyn FnMut(RequestId) -> bool) -> Option<Candidate> {
        let key = self.gambles.iter().find(|key| ready(key.1))?;
        let level = self.timeline.get(key)?.level;
        Some(Candidate { request: key.1, level, deadline: Some(key.0) })
    }
}
