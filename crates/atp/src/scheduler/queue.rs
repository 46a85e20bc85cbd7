//! One object queue: its objects in the orders that the policies need, and the recent demand of each class.

use std::collections::{BTreeMap, BTreeSet};

use remora_base::Time;

use super::paper::ScanStep;
use crate::object::{Priority, RequestId};

/// Position in the deadline order.
pub(super) type Key = (Time, RequestId);

/// Result of the last feasibility scan for an object with a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// Fits; sent in priority order.
    Fits,
    /// Fits; may precede higher classes.
    Urgent,
    /// Does not fit; sent when nothing else is waiting.
    Speculative,
    /// Does not fit; not sent.
    Deferred,
    /// Does not fit; suspended, with an upcall to the application.
    Suspended,
}

/// An object with a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) level: usize,
    /// Bytes not written.
    pub(super) left: u64,
    pub(super) admission: Admission,
    /// Its application chose [`OnShortage::Suspend`](crate::OnShortage::Suspend).
    pub(super) suspends: bool,
}

/// The next object to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) request: RequestId,
    pub(super) level: usize,
    pub(super) deadline: Option<Time>,
}

/// One queue. It holds the objects that may be sent: not suspended by the application, destination reachable, not
/// completely written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    timeline: BTreeMap<Key, Entry>,
    kept: [BTreeSet<Key>; Priority::LEVELS],
    urgent: BTreeSet<Key>,
    speculative: BTreeSet<Key>,
    bulk: [BTreeSet<(u64, RequestId)>; Priority::LEVELS],
    bulk_left: [u64; Priority::LEVELS],
    /// Objects by level, without suspended ones.
    present: [usize; Priority::LEVELS],
    /// Recent demand of the classes.
    pub(super) demand: ClassDemand,
    /// For each priority level, bytes that objects of lower priority may send before its objects (see `feasibility`).
    pub(super) reserve: [f64; Priority::LEVELS],
    /// All objects of the queue, including those that may not be sent.
    pub(super) members: usize,
    /// Time of the last feasibility scan.
    pub(super) planned: Time,
    /// Changed since the last scan.
    pub(super) dirty: bool,
    /// The greatest bandwidth that a kept object needs, in bytes per second (ATP 02's stored maximum);
    /// `u64::MAX` while unknown.
    pub(super) needed_max: u64,
}

impl Queue {
    /// Number of objects with deadlines.
    pub(super) fn timed(&self) -> usize {
        self.timeline.len()
    }

    /// The objects with deadlines, earliest first.
    pub(super) fn timeline(&self) -> impl Iterator<Item = (Key, Entry)> {
        self.timeline.iter().map(|(k, e)| (*k, *e))
    }

    /// The objects to send, in strict priority order.
    pub(super) fn steps(&self) -> impl Iterator<Item = ScanStep> {
        (0..Priority::LEVELS).rev().flat_map(move |level| {
            let timed = self.kept[level].iter().filter_map(move |key| {
                let left = self.timeline.get(key)?.left;
                Some(ScanStep { request: key.1, deadline: Some(key.0), left })
            });
            let bulk = self.bulk[level].iter();
            timed.chain(bulk.map(move |(left, id)| ScanStep { request: *id, deadline: None, left: *left }))
        })
    }

    /// Bytes left and number of the objects without deadlines at `level`.
    pub(super) fn bulk(&self, level: usize) -> (u64, usize) {
        (self.bulk_left[level], self.bulk[level].len())
    }

    /// Whether some objects are not sent for now.
    pub(super) fn has_deferred(&self) -> bool {
        self.timeline.len() > self.kept.iter().map(BTreeSet::len).sum()
    }

    /// Inserts an object.
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

    /// Removes an object, if present.
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

    /// Records that `bytes` of an object with `left` bytes were written.
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

    /// Sets the admission of an object with a deadline.
    pub(super) fn set_admission(&mut self, key: Key, admission: Admission) {
        let Some(entry) = self.timeline.get_mut(&key) else { return };
        if entry.admission == admission {
            return;
        }
        let (old, new) = (*entry, Entry { admission, ..*entry });
        *entry = new;
        self.unlist(key, old);
        self.list(key, new);
    }

    fn list(&mut self, key: Key, entry: Entry) {
        self.present[entry.level] += usize::from(entry.admission != Admission::Suspended);
        match entry.admission {
            Admission::Fits | Admission::Urgent => {
                self.kept[entry.level].insert(key);
                if entry.admission == Admission::Urgent {
                    self.urgent.insert(key);
                }
            }
            Admission::Speculative => {
                self.speculative.insert(key);
            }
            Admission::Deferred | Admission::Suspended => {}
        }
    }

    fn unlist(&mut self, key: Key, entry: Entry) {
        self.present[entry.level] -= usize::from(entry.admission != Admission::Suspended);
        self.kept[entry.level].remove(&key);
        self.urgent.remove(&key);
        self.speculative.remove(&key);
    }

    /// The highest level present, without suspended objects.
    pub(super) fn head_level(&self) -> Option<usize> {
        self.present.iter().rposition(|n| *n > 0)
    }

    /// The next object that fits, among those for which `ready` returns true.
    ///
    /// O(log n), and one more step for each object before it that is not ready.
    pub(super) fn next(&self, ready: &mut dyn FnMut(RequestId) -> bool) -> Option<Candidate> {
        let first = (0..Priority::LEVELS).rev().find_map(|level| {
            let timed = self.kept[level].iter().find(|key| ready(key.1));
            let timed = timed.map(|key| Candidate { request: key.1, level, deadline: Some(key.0) });
            timed.or_else(|| {
                let bulk = self.bulk[level].iter().find(|(_, id)| ready(*id));
                bulk.map(|(_, id)| Candidate { request: *id, level, deadline: None })
            })
        })?;
        Some(self.urgent_before(first, ready).unwrap_or(first))
    }

    /// The urgent object of a lower class that may precede `first`, while every class above it keeps its reserve.
    /// An object without a deadline never yields: it has no known reserve.
    fn urgent_before(&self, first: Candidate, ready: &mut dyn FnMut(RequestId) -> bool) -> Option<Candidate> {
        let deadline = first.deadline?;
        let key = self.urgent.range(..(deadline, RequestId(0))).find(|key| ready(key.1))?;
        let level = self.timeline.get(key)?.level;
        let safe = level < first.level && self.reserve[level + 1] > 0.0;
        safe.then_some(Candidate { request: key.1, level, deadline: Some(key.0) })
    }

    /// The object to send when none fits.
    pub(super) fn gamble(&self, ready: &mut dyn FnMut(RequestId) -> bool) -> Option<Candidate> {
        let key = self.speculative.iter().find(|key| ready(key.1))?;
        let level = self.timeline.get(key)?.level;
        Some(Candidate { request: key.1, level, deadline: Some(key.0) })
    }
}

/// Demand is measured over this window and the previous one, in nanoseconds.
const WINDOW_NS: u64 = 4_000_000_000;

/// Bytes submitted by level, in the current and the previous window. Lower classes leave this bandwidth to new
/// objects of higher ones.
#[derive(Debug, Default)]
pub(super) struct ClassDemand {
    window: u64,
    last: [u64; Priority::LEVELS],
    this: [u64; Priority::LEVELS],
}

impl ClassDemand {
    fn advance(&mut self, now: Time) {
        let window = now.as_nanos() / WINDOW_NS;
        if window != self.window {
            self.last = if window == self.window + 1 { self.this } else { [0; Priority::LEVELS] };
            self.this = [0; Priority::LEVELS];
            self.window = window;
        }
    }

    /// Records an object of `bytes` on the wire.
    pub(super) fn submitted(&mut self, now: Time, level: usize, bytes: u64) {
        self.advance(now);
        self.this[level] = self.this[level].saturating_add(bytes);
    }

    /// For each level, the demand of the higher levels in bytes per second.
    pub(super) fn above(&mut self, now: Time) -> [f64; Priority::LEVELS] {
        self.advance(now);
        let seconds = (WINDOW_NS + now.as_nanos() % WINDOW_NS) as f64 / 1e9;
        let mut above = [0.0; Priority::LEVELS];
        for level in (0..Priority::LEVELS - 1).rev() {
            let bytes = self.last[level + 1].saturating_add(self.this[level + 1]);
            above[level] = above[level + 1] + bytes as f64 / seconds;
        }
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_demand_is_seen_by_the_levels_below_it_and_forgotten() {
        let mut demand = ClassDemand::default();
        for half in 0..40 {
            demand.submitted(Time::from_millis(half * 500), 12, 4000);
        }
        let above = demand.above(Time::from_secs(20) - std::time::Duration::from_nanos(1));
        assert!((above[4] - 8000.0).abs() < 50.0 && above[4] == above[11], "{above:?}");
        assert_eq!(above[12], 0.0);
        assert_eq!(demand.above(Time::from_secs(28))[4], 0.0);
    }
}
