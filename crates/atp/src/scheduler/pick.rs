//! Which object gets the next packet.

use remora_base::Time;

use super::{Knowledge, Policy, Scheduler};
use crate::object::{Dest, Priority, QueueId, RequestId};

/// The object that gets the next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    /// The request.
    pub request: RequestId,
    /// Where it goes.
    pub dest: Dest,
    /// The first byte of it not written yet.
    pub offset: u64,
    /// Bytes of it not written yet; zero only for an empty object.
    pub remaining: u64,
    /// Its priority.
    pub priority: Priority,
}

impl Scheduler {
    /// The object that gets the next packet, among those whose destination `ready` lets pass;
    /// `None` when there is none, or when the paper's send interval is spent.
    ///
    /// O(log n) in the objects and O(q) in the queues in the usual case; one step more for each
    /// object passed over because its destination is not ready; a plan (see `plan`) at most every
    /// 20 ms while there are deadlines.
    pub fn pick(&mut self, now: Time, ready: &mut dyn FnMut(Dest) -> bool) -> Option<Pick> {
        self.expire(now);
        self.refresh(now, true);
        if !self.turn_interval(now) {
            return None;
        }
        let objects = &self.objects;
        let mut ready = |id: RequestId| objects.get(&id).is_some_and(|o| ready(o.dest));
        let mut best: Option<(bool, u128, QueueId, RequestId)> = None;
        for (id, queue) in &self.queues {
            let (gamble, candidate) = match queue.next(&mut ready) {
                Some(c) => (false, c),
                None => match queue.gamble(&mut ready) {
                    Some(c) => (true, c),
                    None => continue,
                },
            };
            let rank = (gamble, self.fair.start(*id), *id, candidate.request);
            if best.is_none_or(|b| (rank.0, rank.1, rank.2) < (b.0, b.1, b.2)) {
                best = Some(rank);
            }
        }
        let (.., request) = best?;
        let o = self.objects.get(&request)?;
        Some(Pick { request, dest: o.dest, offset: o.written, remaining: o.left(), priority: o.priority })
    }

    /// `bytes` more of the object went into a packet.
    pub fn written(&mut self, now: Time, id: RequestId, bytes: u64) {
        let Some(o) = self.objects.get_mut(&id) else { return };
        let bytes = bytes.min(o.left());
        let (left, level, deadline, queue_id) = (o.left(), o.level(), o.deadline, o.queue);
        o.written += bytes;
        o.finishing = o.written == o.size;
        let finishing = o.finishing;
        if let Some(queue) = self.queues.get_mut(&queue_id) {
            queue.written(id, deadline, level, left, bytes);
            if finishing {
                queue.remove(id, deadline, level, left - bytes);
            }
        }
        self.fair.served(queue_id, bytes.saturating_add(self.config.overhead), level);
        if self.spends_intervals() {
            self.turn_interval(now);
            self.interval.sent(self.config.packet());
        }
    }

    fn spends_intervals(&self) -> bool {
        self.config.policy == Policy::Paper && self.forecast.state != Knowledge::Unknown
    }

    /// Begins a new send interval if it is time; whether a packet may leave in this one.
    pub(super) fn turn_interval(&mut self, now: Time) -> bool {
        if !self.spends_intervals() {
            return true;
        }
        let available = self.forecast.available.map_or(0, |r| r.bits() / 8);
        self.interval.open(now, available, self.config.packet())
    }

    /// When the next send interval begins, if this one is spent and something waits.
    pub(super) fn next_interval(&self) -> Option<Time> {
        let waits = self.spends_intervals() && self.queues.values().any(|q| q.head_level().is_some());
        if waits { self.interval.next(self.config.packet()) } else { None }
    }
}
