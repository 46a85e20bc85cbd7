//! Admission control: applies a policy to a queue, and rejects, evicts, suspends and resumes its objects.

use std::time::Duration;

use remora_base::{Rate, Time};

use super::config::Policy;
use super::fair;
use super::feasibility::{self, Capacity, TimedObject};
use super::paper::{self, ScanStep};
use super::queue::{Admission, Entry, Key, Queue};
use super::state::{Object, Scheduler};
use crate::estimate::{Forecast, Knowledge};
use crate::object::{OnShortage, Outcome, Priority, QueueId, Rejection, RequestId, Upcall};

/// Interval of feasibility scans while packets are sent or objects are deferred.
const PLAN_EVERY: Duration = Duration::from_millis(20);
/// Minimum pause between scans for each object beyond [`PLAN_FEW`], which bounds the share of processor time.
const PLAN_REST: Duration = Duration::from_micros(4);
/// Objects that are scanned after every change.
const PLAN_FEW: usize = 64;

/// Result of a feasibility scan for an object.
enum Verdict {
    Stands(Admission),
    Resumes(Admission),
    Suspended { needed: Rate },
    Evicted,
}

/// `bytes` per second as a rate, at least one bit per second.
fn rate_of_bytes(bytes: u64) -> Rate {
    Rate::from_bits(bytes.saturating_mul(8).max(1)).unwrap_or(Rate::mbit(1))
}

impl Scheduler {
    /// The queue's share of the rate, by the weights of the queues that have objects. `None` while the rate is
    /// unknown.
    fn share(&self, id: QueueId) -> Option<Rate> {
        let rate = self.forecast.rate.filter(|_| self.forecast.state == Knowledge::Known)?;
        let weight = |q: &Queue| q.head_level().map_or(0, fair::weight);
        let own = self.queues.get(&id).map_or(0, weight).max(1);
        let all = self.queues.values().map(weight).sum::<u64>().max(own);
        let bits = u128::from(rate.bits()) * u128::from(own) / u128::from(all);
        Rate::from_bits(u64::try_from(bits).unwrap_or(u64::MAX).max(1))
    }

    /// Policy `remora`: rejects an object whose deadline could not be met even alone. An object with
    /// [`OnShortage::Suspend`] is accepted, and suspended.
    pub(super) fn infeasible(&self, now: Time, object: &Object) -> Option<Rejection> {
        if self.config.policy != Policy::Remora || object.on_shortage == OnShortage::Suspend {
            return None;
        }
        let available = self.forecast.rate.filter(|_| self.forecast.state == Knowledge::Known)?;
        let deadline = object.deadline?;
        let wire = self.config.wire(object.size);
        let needed = rate_of_bytes(paper::needed(now, deadline, wire));
        let is_infeasible =
            self.most_bytes(now, deadline).is_some_and(|most_bytes| wire as f64 > most_bytes * self.hope());
        is_infeasible.then_some(Rejection::InsufficientBandwidth { needed, available })
    }

    /// Runs the scans that are due.
    pub(super) fn refresh(&mut self, now: Time, picking: bool) {
        if self.config.policy != Policy::Remora {
            return;
        }
        while let Some(id) = self.queues.iter().find(|(_, q)| self.due(q, now, picking)).map(|(id, _)| *id) {
            self.replan(now, id);
        }
    }

    fn due(&self, queue: &Queue, now: Time, picking: bool) -> bool {
        let old = picking && queue.timed() > 0 && now >= Self::aged(queue);
        old || self.due_of_itself(queue).is_some_and(|at| at <= now)
    }

    /// When a queue is scanned without a call of `pick`.
    fn due_of_itself(&self, queue: &Queue) -> Option<Time> {
        if queue.dirty {
            return Some(Self::rested(queue));
        }
        let may_change = self.forecast.state == Knowledge::Known && queue.has_deferred();
        may_change.then(|| Self::aged(queue))
    }

    fn rested(queue: &Queue) -> Time {
        let objects = u32::try_from(queue.timed().saturating_sub(PLAN_FEW)).unwrap_or(u32::MAX);
        queue.planned + PLAN_REST.saturating_mul(objects)
    }

    fn aged(queue: &Queue) -> Time {
        Self::rested(queue).max(queue.planned + PLAN_EVERY)
    }

    /// When the next scan is due without a call of `pick`.
    pub(super) fn next_plan(&self) -> Option<Time> {
        let due = self.queues.values().filter_map(|q| self.due_of_itself(q)).min();
        if self.config.policy == Policy::Remora { due } else { None }
    }

    fn replan(&mut self, now: Time, id: QueueId) {
        let share = self.share(id);
        let Some(queue) = self.queues.get_mut(&id) else { return };
        (queue.planned, queue.dirty) = (now, false);
        let Some(rate) = share else {
            self.keep_all(id);
            return;
        };
        let capacity = self.capacity(now, id, rate);
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let config = &self.config;
        let entries: Vec<(Key, Entry)> = queue.timeline().collect();
        let items: Vec<TimedObject> = entries
            .iter()
            .map(|(key, e)| {
                let short = e.admission == Admission::Suspended;
                TimedObject { deadline: key.0, level: e.level, wire: config.wire(e.left), short }
            })
            .collect();
        let plan = feasibility::assess(&items, &capacity);
        queue.reserve = plan.reserve;
        let mut changes = Vec::new();
        for (index, (key, entry)) in entries.into_iter().enumerate() {
            let fits = plan.kept[index].then_some(plan.urgent[index]);
            let verdict = self.verdict(&capacity, &items[index], entry, fits);
            if !matches!(verdict, Verdict::Stands(s) if s == entry.admission) {
                changes.push((key, verdict));
            }
        }
        for (key, verdict) in changes {
            self.apply(now, id, key, verdict, rate);
        }
    }

    fn capacity(&mut self, now: Time, id: QueueId, rate: Rate) -> Capacity {
        let tuning = self.config.tuning;
        let mut ahead = [0u64; Priority::LEVELS];
        let mut demand = [0.0; Priority::LEVELS];
        if let Some(queue) = self.queues.get_mut(&id) {
            demand = queue.demand.above(now).map(|d| d * tuning.foresight);
            for level in (0..Priority::LEVELS - 1).rev() {
                let (left, objects) = queue.bulk(level + 1);
                let packets = left / self.config.payload.max(1) + objects as u64;
                let wire = left.saturating_add(packets.saturating_mul(self.config.overhead));
                ahead[level] = ahead[level + 1].saturating_add(wire);
            }
        }
        Capacity { now, rate, latency: self.config.latency, ahead, demand, tuning }
    }

    fn verdict(&self, capacity: &Capacity, item: &TimedObject, entry: Entry, fits: Option<bool>) -> Verdict {
        let short = entry.admission == Admission::Suspended;
        if let Some(urgent) = fits {
            let admission = if urgent { Admission::Urgent } else { Admission::Fits };
            return if short { Verdict::Resumes(admission) } else { Verdict::Stands(admission) };
        }
        if short {
            return Verdict::Stands(Admission::Suspended);
        }
        let wire = item.wire as f64;
        let Some(most_bytes) = self.most_bytes(capacity.now, item.deadline) else {
            return Verdict::Stands(Admission::Speculative); // which shows what the link carries
        };
        if entry.suspends {
            let needed = paper::needed(capacity.now, item.deadline, item.wire);
            return Verdict::Suspended { needed: rate_of_bytes(needed) };
        }
        // Other queues may become empty, so the whole link counts, not the share.
        if wire > most_bytes * self.hope() {
            Verdict::Evicted
        } else if wire <= most_bytes * capacity.tuning.gamble {
            Verdict::Stands(Admission::Speculative)
        } else {
            Verdict::Stands(Admission::Deferred)
        }
    }

    /// Maximum bytes that the link carries until `deadline`; `None` while the rate has no upper bound.
    fn most_bytes(&self, now: Time, deadline: Time) -> Option<f64> {
        let seconds = deadline.since(now).saturating_sub(self.config.latency).as_secs_f64();
        self.forecast.at_most.map(|most_bytes| seconds * (most_bytes.bits() as f64 / 8.0))
    }

    fn hope(&self) -> f64 {
        self.config.tuning.hope.max(1.0)
    }

    fn apply(&mut self, now: Time, queue: QueueId, key: Key, verdict: Verdict, available: Rate) {
        let request = key.1;
        let admission = match verdict {
            Verdict::Stands(admission) => admission,
            Verdict::Resumes(admission) => {
                self.upcalls.push_back(Upcall::Resumed { request });
                admission
            }
            Verdict::Suspended { needed } => {
                self.upcalls.push_back(Upcall::InsufficientBandwidth { request, needed, available });
                self.short_of_bandwidth = self.short_of_bandwidth.saturating_add(1);
                Admission::Suspended
            }
            Verdict::Evicted => {
                self.short_of_bandwidth = self.short_of_bandwidth.saturating_add(1);
                self.end(now, request, Outcome::Evicted);
                return;
            }
        };
        if let Some(object) = self.objects.get_mut(&request) {
            object.short = admission == Admission::Suspended;
        }
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.set_admission(key, admission);
        }
    }

    /// Without a known rate, sends everything in strict priority order. Suspended objects stay suspended.
    fn keep_all(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.reserve = [0.0; Priority::LEVELS];
        let held: Vec<Key> =
            queue.timeline().filter(|(_, e)| e.admission != Admission::Suspended).map(|(k, _)| k).collect();
        for key in held {
            queue.set_admission(key, Admission::Fits);
        }
    }

    /// Applies a new forecast.
    pub(super) fn reforecast(&mut self, now: Time, before: &Forecast) {
        let bits = |f: &Forecast| f.rate.map_or(0, Rate::bits);
        let (old, new) = (bits(before), bits(&self.forecast));
        match self.config.policy {
            Policy::Remora => {
                let moved = old.abs_diff(new) > old / 64 || before.state != self.forecast.state;
                self.queues.values_mut().for_each(|q| q.dirty |= moved);
            }
            Policy::Paper if new < old || before.state != Knowledge::Known => {
                let ids: Vec<QueueId> = self.queues.keys().copied().collect();
                for id in ids {
                    self.check_safety(now, id);
                }
            }
            Policy::Paper => {}
        }
    }

    /// Deadline safety after the rate has fallen (ATP 02, section 3.3).
    fn check_safety(&mut self, now: Time, id: QueueId) {
        let (Some(rate), Some(queue)) = (self.share(id), self.queues.get(&id)) else { return };
        let curbw = rate.bits() / 8;
        if queue.needed_max <= curbw {
            return;
        }
        let found = paper::scan(now, curbw, queue.steps());
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.needed_max = found.needed_max;
        }
        for (request, needed) in found.unsafe_ {
            self.shed(now, request, needed, rate);
        }
    }

    /// Policy `paper`: the reason to reject a new object, if any. Discards objects of lower priority that it
    /// displaces.
    pub(super) fn displacement(&mut self, now: Time, id: RequestId) -> Option<Rejection> {
        if self.config.policy != Policy::Paper {
            return None;
        }
        let newcomer = *self.objects.get(&id)?;
        let available = self.share(newcomer.queue)?;
        let curbw = available.bits() / 8;
        let queue = self.queues.get(&newcomer.queue)?;
        let with = paper::scan(now, curbw, queue.steps());
        if with.unsafe_.is_empty() {
            self.queues.get_mut(&newcomer.queue)?.needed_max = with.needed_max;
            return None;
        }
        if let Some((_, needed)) = with.unsafe_.iter().find(|(victim, _)| *victim == id) {
            return Some(Rejection::InsufficientBandwidth { needed: rate_of_bytes(*needed), available });
        }
        let without = paper::scan(now, curbw, queue.steps().filter(|s: &ScanStep| s.request != id));
        let lost: Vec<(RequestId, u64)> =
            with.unsafe_.into_iter().filter(|(v, _)| without.unsafe_.iter().all(|(u, _)| u != v)).collect();
        let peer = lost.iter().find(|(v, _)| self.objects.get(v).is_some_and(|o| o.priority == newcomer.priority));
        if let Some((victim, _)) = peer {
            return Some(Rejection::WouldDisplace(*victim));
        }
        self.queues.get_mut(&newcomer.queue)?.needed_max = with.needed_max;
        for (victim, needed) in lost {
            self.shed(now, victim, needed, available);
        }
        None
    }

    /// Policy `paper`: repeats admission after the application changed priority, deadline or state.
    pub(super) fn readmit(&mut self, now: Time, id: RequestId) {
        match self.displacement(now, id) {
            Some(Rejection::InsufficientBandwidth { needed, available }) => {
                self.shed(now, id, needed.bits() / 8, available);
            }
            // Accepted before, but it would now displace an object of its priority.
            Some(_) => {
                let available = self.forecast.rate.unwrap_or(Rate::mbit(1));
                self.shed(now, id, available.bits() / 8, available);
            }
            None => {}
        }
    }

    /// Policy `paper`: suspends the object with an upcall, or evicts it, as the application chose.
    fn shed(&mut self, now: Time, id: RequestId, needed: u64, available: Rate) {
        let Some(object) = self.objects.get(&id) else { return };
        let (queue, key) = (object.queue, object.deadline.map(|at| (at, id)));
        let verdict = match object.on_shortage {
            OnShortage::Drop => Verdict::Evicted,
            OnShortage::Suspend => Verdict::Suspended { needed: rate_of_bytes(needed) },
        };
        if let Some(key) = key {
            self.apply(now, queue, key, verdict, available);
        }
    }
}
