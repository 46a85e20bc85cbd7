//! Which objects of a queue can be had in time, and which of them may go before a higher class.
//!
//! The *set* is chosen by priority: a class keeps what fits beside what the classes above it
//! keep, and where a prefix of the order by deadline does not fit, the largest remaining object
//! of that class in the prefix is given up (Moore and Hodgson's rule, which keeps the greatest
//! number of one class). The *order* is by priority, but for an object that would miss its
//! deadline behind all of the classes above it: it may go first while each of them keeps its
//! reserve.
//!
//! A pure function: O(classes * n) in the objects with deadlines, O(n log n) more for a class
//! in which something has to go.

use std::collections::BinaryHeap;
use std::time::Duration;

use remora_base::{Rate, Time};

use super::config::Tuning;
use crate::object::Priority;

/// One object with a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedObject {
    /// When it has to be acknowledged.
    pub(super) deadline: Time,
    /// Its priority, 0 to 15.
    pub(super) level: usize,
    /// Bytes on the wire that remain of it.
    pub(super) wire: u64,
    /// Suspended for lack of bandwidth: it has to fit with room to spare, so that it does not
    /// come and go with every wavering of the estimate.
    pub(super) short: bool,
}

/// What stands between the objects and their deadlines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) now: Time,
    /// What the queue may count on.
    pub(super) rate: Rate,
    /// From the last byte written to its acknowledgement, beyond its time on the wire.
    pub(super) latency: Duration,
    /// Bytes on the wire of objects without deadlines, for each level those of the levels above.
    pub(super) ahead: [u64; Priority::LEVELS],
    /// Bytes a second that newcomers of the levels above each level are expected to ask for.
    pub(super) demand: [f64; Priority::LEVELS],
    pub(super) tuning: Tuning,
}

/// The verdict, in the order of the items.
#[derive(Clone, Debug)]
pub(super) struct Feasibility {
    /// It fits.
    pub(super) kept: Vec<bool>,
    /// It fits only if it may go before higher classes.
    pub(super) urgent: Vec<bool>,
    /// For each level: bytes that lower levels may send first while the objects of this level and
    /// above stay safe; less than zero if they are not.
    pub(super) reserve: [f64; Priority::LEVELS],
}

impl Capacity {
    fn seconds(&self, deadline: Time) -> f64 {
        deadline.since(self.now).saturating_sub(self.latency).as_secs_f64()
    }

    /// Bytes that fit before `item`'s deadline even if the forecast proves too good.
    fn relied_on(&self, item: &TimedObject) -> f64 {
        let seconds = self.seconds(item.deadline).min(self.tuning.horizon.as_secs_f64());
        seconds * self.bytes_per_second() * self.tuning.reserve
    }

    fn bytes_per_second(&self) -> f64 {
        self.rate.bits() as f64 / 8.0
    }

    /// Bytes that objects of `item`'s level and above may count on before its deadline.
    fn room(&self, item: &TimedObject) -> f64 {
        let rate = (self.bytes_per_second() * self.tuning.margin - self.demand[item.level]).max(0.0);
        self.seconds(item.deadline) * rate - self.ahead[item.level] as f64
    }
}

/// Plans `items`, which come in order of their deadlines.
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

/// The levels that occur, highest first.
fn levels(items: &[TimedObject]) -> impl Iterator<Item = usize> {
    let occurs = items.iter().fold([false; Priority::LEVELS], |mut seen, i| {
        seen[i.level] = true;
        seen
    });
    (0..Priority::LEVELS).rev().filter(move |l| occurs[*l])
}

/// Bytes an item counts for.
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

/// A candidate to go, the largest first; of equals the later.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Largest {
    wire: u64,
    index: usize,
}

/// Adds to what is kept as many objects of `level` as fit.
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

/// Which of the kept would miss their deadlines if everything above them went first.
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
    // A level that does not occur is as safe as the one above it.
    for level in (0..Priority::LEVELS - 1).rev() {
        if !order.contains(&level) {
            least[level] = least[level + 1];
        }
    }
    least
}
