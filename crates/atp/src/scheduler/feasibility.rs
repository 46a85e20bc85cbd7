//! Feasibility of deadlines: which objects of a queue fit, and which may precede a higher class.
//!
//! The *set* is chosen by priority. A class keeps what fits beside the classes above it. Where a prefix of the
//! deadline order does not fit, the largest remaining object of the class in that prefix is dropped (Moore and
//! Hodgson's rule, which keeps the most objects of a class). The *order* is by priority, except that an object that
//! would miss its deadline behind the higher classes may go first while each of them keeps its reserve.
//!
//! A pure function: O(classes * n) in the objects with deadlines, plus O(n log n) for a class that drops some.

use std::collections::BinaryHeap;
use std::time::Duration;

use remora_base::{Rate, Time};

use super::config::Tuning;
use crate::object::Priority;

/// An object with a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedObject {
    /// When it must be acknowledged.
    pub(super) deadline: Time,
    /// Priority level, 0 to 15.
    pub(super) level: usize,
    /// Bytes left, on the wire.
    pub(super) wire: u64,
    /// Suspended for lack of bandwidth. It must fit with a reserve, so that it does not alternate with each change
    /// of the estimate.
    pub(super) short: bool,
}

/// The bandwidth until each deadline, and its other uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) now: Time,
    /// The queue's share of the rate.
    pub(super) rate: Rate,
    /// Time from the last byte written to its acknowledgement, without its transmission time.
    pub(super) latency: Duration,
    /// For each level, bytes on the wire of higher objects without deadlines.
    pub(super) ahead: [u64; Priority::LEVELS],
    /// For each level, expected demand of new higher objects, in bytes per second.
    pub(super) demand: [f64; Priority::LEVELS],
    pub(super) tuning: Tuning,
}

/// Result, in the order of the objects.
#[derive(Clone, Debug)]
pub(super) struct Feasibility {
    /// The object fits.
    pub(super) kept: Vec<bool>,
    /// It fits only if it precedes higher classes.
    pub(super) urgent: Vec<bool>,
    /// For each level, bytes that lower levels may send first while this level and those above stay safe; negative
    /// if they are not.
    pub(super) reserve: [f64; Priority::LEVELS],
}

impl Capacity {
    fn seconds(&self, deadline: Time) -> f64 {
        deadline.since(self.now).saturating_sub(self.latency).as_secs_f64()
    }

    /// Bytes that fit before the object's deadline even if the rate falls to the reserve.
    fn relied_on(&self, item: &TimedObject) -> f64 {
        let seconds = self.seconds(item.deadline).min(self.tuning.horizon.as_secs_f64());
        seconds * self.bytes_per_second() * self.tuning.reserve
    }

    fn bytes_per_second(&self) -> f64 {
        self.rate.bits() as f64 / 8.0
    }

    /// Bytes that objects of this level and above may use before the deadline.
    fn room(&self, item: &TimedObject) -> f64 {
        let rate = (self.bytes_per_second() * self.tuning.margin - self.demand[item.level]).max(0.0);
        self.seconds(item.deadline) * rate - self.ahead[item.level] as f64
    }
}

/// Assesses `items`, ordered by deadline.
pub(super) fn assess(items: &[TimedObject], capacity: &Capacity) -> Feasibility {
    let mut kept = vec![true; items.len()];
    if !all_fit(items, capacity) {
        kept.fill(false);
        for level in levels(items) {
            keep_level(items, capacity, level, &mut kept);
        }
    }
    let urgent = urgent(items, capacity, &kept);
    let reserve = reserve(items, capacity, &kept);
    Feasibility { kept, urgent, reserve }
}

/// Levels in use, highest first.
fn levels(items: &[TimedObject]) -> impl Iterator<Item = usize> {
    let occurs = items.iter().fold([false; Priority::LEVELS], |mut seen, i| {
        seen[i.level] = true;
        seen
    });
    (0..Priority::LEVELS).rev().filter(move |l| occurs[*l])
}

/// Bytes that an object counts for.
fn weight(item: &TimedObject, capacity: &Capacity) -> f64 {
    if item.short { item.wire as f64 * capacity.tuning.return_margin } else { item.wire as f64 }
}

fn all_fit(items: &[TimedObject], capacity: &Capacity) -> bool {
    let mut sum = 0.0;
    items.iter().all(|item| {
        sum += weight(item, capacity);
        sum <= capacity.room(item)
    })
}

/// An object that may be dropped: the largest first, of equals the later.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Largest {
    wire: u64,
    index: usize,
}

/// Adds as many objects of `level` as fit to `kept`.
fn keep_level(items: &[TimedObject], capacity: &Capacity, level: usize, kept: &mut [bool]) {
    let mut heap = BinaryHeap::new();
    let mut sum = 0.0;
    for (index, item) in items.iter().enumerate() {
        let candidate = item.level == level;
        if !candidate && !kept[index] {
            continue;
        }
        sum += weight(item, capacity);
        if candidate {
            kept[index] = true;
            heap.push(Largest { wire: item.wire, index });
        }
        while sum > capacity.room(item) {
            let Some(Largest { index, .. }) = heap.pop() else { break };
            kept[index] = false;
            sum -= weight(&items[index], capacity);
        }
    }
}

/// Finds the kept objects that would miss their deadlines behind all higher classes.
fn urgent(items: &[TimedObject], capacity: &Capacity, kept: &[bool]) -> Vec<bool> {
    let mut by_level = [0.0; Priority::LEVELS];
    for (item, _) in items.iter().zip(kept).filter(|(_, kept)| **kept) {
        by_level[item.level] += item.wire as f64;
    }
    let mut before = [0.0; Priority::LEVELS];
    for level in (0..Priority::LEVELS - 1).rev() {
        before[level] = before[level + 1] + by_level[level + 1];
    }
    let urgent = items.iter().zip(kept).map(|(item, kept)| {
        if *kept {
            before[item.level] += item.wire as f64;
        }
        *kept && before[item.level] > capacity.room(item)
    });
    urgent.collect()
}

fn reserve(items: &[TimedObject], capacity: &Capacity, kept: &[bool]) -> [f64; Priority::LEVELS] {
    let mut least = [f64::INFINITY; Priority::LEVELS];
    let mut sum = [0.0; Priority::LEVELS];
    let mut order: Vec<usize> = levels(items).collect();
    order.reverse(); // lowest first: an item counts for its own level and those below
    for (item, _) in items.iter().zip(kept).filter(|(_, kept)| **kept) {
        let safe = capacity.relied_on(item) - capacity.ahead[item.level] as f64;
        for level in order.iter().copied().take_while(|l| *l <= item.level) {
            sum[level] += item.wire as f64;
            least[level] = least[level].min(safe - sum[level]);
        }
    }
    // An unused level is as safe as the one above it.
    for level in (0..Priority::LEVELS - 1).rev() {
        if !order.contains(&level) {
            least[level] = least[level + 1];
        }
    }
    least
}
