//! The scheduler: which object gets the next packet, and which cannot be had in time
//! (ATP 02, sections 2.2, 2.3, 3.2 and 3.3).
//!
//! One scheduler serves one bottleneck and every destination behind it. It knows sizes, not
//! bytes: the session holds those, asks [`Scheduler::pick`] before each packet, and reports what
//! it wrote and what was acknowledged. The law is `remora_base::Core`'s: mutate once, then drain
//! [`Scheduler::poll_upcall`], [`Scheduler::poll_reset`], then [`Scheduler::poll_timeout`].
//!
//! Each request ends in exactly one [`Upcall::Final`], also one that was never accepted.
//!
//! | module | what it decides |
//! |---|---|
//! | `queue` | the orders in which a queue's objects are kept |
//! | `plan` | `remora`: what fits, and what may go before a higher class |
//! | `paper` | `paper`: deadline safety and send intervals |
//! | `admit` | applies either to a queue: rejects, evicts, suspends, resumes |
//! | `fair` | shares between queues |
//! | `bounds` | the bandwidth upcall |

mod admit;
mod bounds;
mod config;
mod control;
mod demand;
mod fair;
mod paper;
mod pick;
mod plan;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use remora_base::{Rate, Time};

use crate::estimate::{Forecast, Knowledge};
use crate::object::{Dest, Final, OnShortage, Options, Outcome, Priority, QueueId, Rejection, RequestId, Upcall};

pub use config::{Config, Policy, Tuning};
pub use pick::Pick;

use bounds::Bounds;
use fair::Fair;
use paper::Interval;
use queue::{Entry, Queue, Standing};

/// Decides what is sent next and what is given up; see the module.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    next: u64,
    objects: BTreeMap<RequestId, Object>,
    bytes: u64,
    queues: BTreeMap<QueueId, Queue>,
    away: BTreeSet<Dest>,
    expiries: BTreeSet<(Time, RequestId)>,
    fair: Fair,
    interval: Interval,
    bounds: Bounds,
    forecast: Forecast,
    upcalls: VecDeque<Upcall>,
    resets: VecDeque<(RequestId, Dest)>,
    short_of_bandwidth: u32,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct Object {
    dest: Dest,
    queue: QueueId,
    on_shortage: OnShortage,
    priority: Priority,
    deadline: Option<Time>,
    size: u64,
    written: u64,
    acknowledged: u64,
    /// The application suspended it.
    asked: bool,
    /// It is suspended for lack of bandwidth.
    short: bool,
    /// All of it is written.
    finishing: bool,
}

impl Object {
    fn level(&self) -> usize {
        usize::from(self.priority.level())
    }

    fn left(&self) -> u64 {
        self.size - self.written
    }
}

impl Scheduler {
    /// A scheduler without objects that does not know its link yet.
    pub fn new(config: Config) -> Scheduler {
        Scheduler {
            config,
            next: 0,
            objects: BTreeMap::new(),
            bytes: 0,
            queues: BTreeMap::new(),
            away: BTreeSet::new(),
            expiries: BTreeSet::new(),
            fair: Fair::default(),
            interval: Interval::default(),
            bounds: Bounds::default(),
            forecast: Forecast {
                rate: None,
                available: None,
                at_most: None,
                state: Knowledge::Unknown,
                measured: None,
            },
            upcalls: VecDeque::new(),
            resets: VecDeque::new(),
            short_of_bandwidth: 0,
        }
    }

    /// The next request has number `next` at least: whoever has several schedulers, and one count for
    /// all of them, can tell their requests apart.
    pub fn number_from(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Takes an object of `size` bytes for `dest`. Whether it is accepted is told by upcall: one
    /// that is not ends in [`Outcome::Rejected`].
    pub fn submit(&mut self, now: Time, dest: Dest, size: u64, options: Options) -> RequestId {
        self.expire(now);
        let id = RequestId(self.next);
        self.next += 1;
        let object = Object {
            dest,
            queue: options.queue,
            on_shortage: options.on_shortage,
            priority: options.priority,
            deadline: options.deadline.map(|d| now + d),
            size,
            written: 0,
            acknowledged: 0,
            asked: false,
            short: false,
            finishing: false,
        };
        match self.bounded(&object).or_else(|| self.hopeless(now, &object)) {
            Some(why) => self.reject(now, id, &object, why),
            None => self.accept(now, id, object),
        }
        self.refresh(now, false);
        id
    }

    /// Why there is no room for an object, if there is none.
    fn bounded(&mut self, object: &Object) -> Option<Rejection> {
        if object.size > self.config.size_max {
            return Some(Rejection::TooLarge);
        }
        if self.objects.len() >= self.config.objects_max {
            return Some(Rejection::TooMany);
        }
        if self.bytes.saturating_add(object.size) > self.config.bytes_max {
            return Some(Rejection::TooManyBytes);
        }
        if !self.queues.contains_key(&object.queue) && self.queues.len() >= self.config.queues_max {
            self.sweep_queues();
            if self.queues.len() >= self.config.queues_max {
                return Some(Rejection::TooManyQueues);
            }
        }
        None
    }

    /// Drops queues without objects whose tags no longer matter.
    fn sweep_queues(&mut self) {
        let idle = self.queues.values().all(|q| q.members == 0);
        let fair = &mut self.fair;
        self.queues.retain(|id, queue| {
            let stays = queue.members > 0 || !(idle || fair.settled(*id));
            if !stays {
                fair.forget(*id);
            }
            stays
        });
    }

    fn accept(&mut self, now: Time, id: RequestId, object: Object) {
        self.bytes += object.size;
        self.objects.insert(id, object);
        if let Some(at) = object.deadline {
            self.expiries.insert((at, id));
        }
        let wire = self.config.wire(object.size);
        let queue = self.queues.entry(object.queue).or_default();
        queue.members += 1;
        queue.demand.submitted(now, object.level(), wire);
        self.enqueue(id, &object);
        if let Some(why) = self.displaces(now, id) {
            self.remove(id);
            self.reject(now, id, &object, why);
        }
    }

    fn reject(&mut self, now: Time, id: RequestId, object: &Object, why: Rejection) {
        if matches!(why, Rejection::InsufficientBandwidth { .. } | Rejection::WouldDisplace(_)) {
            self.short_of_bandwidth = self.short_of_bandwidth.saturating_add(1);
        }
        self.tell_final(now, id, object, Outcome::Rejected(why));
    }

    /// Puts an object into its queue, if it may be sent.
    fn enqueue(&mut self, id: RequestId, object: &Object) {
        if object.asked || object.finishing || self.away.contains(&object.dest) {
            return;
        }
        let standing = if object.short { Standing::Short } else { Standing::Kept };
        let asks = object.on_shortage == OnShortage::Suspend;
        let entry = Entry { level: object.level(), left: object.left(), standing, asks };
        self.queues.entry(object.queue).or_default().insert(id, object.deadline, entry);
    }

    fn dequeue(&mut self, id: RequestId, object: &Object) {
        if let Some(queue) = self.queues.get_mut(&object.queue) {
            queue.remove(id, object.deadline, object.level(), object.left());
        }
    }

    /// `bytes` more of the object were acknowledged.
    pub fn acknowledged(&mut self, now: Time, id: RequestId, bytes: u64) {
        self.expire(now);
        if let Some(o) = self.objects.get_mut(&id) {
            o.acknowledged = o.acknowledged.saturating_add(bytes).min(o.written);
        }
    }

    /// All of the object was acknowledged.
    pub fn delivered(&mut self, now: Time, id: RequestId) {
        self.expire(now);
        self.end(now, id, Outcome::Delivered);
        self.refresh(now, false);
    }

    /// The session gives the object up.
    pub fn failed(&mut self, now: Time, id: RequestId, outcome: Outcome) {
        self.expire(now);
        self.end(now, id, outcome);
        self.refresh(now, false);
    }

    /// The estimator's word on the link.
    pub fn forecast(&mut self, now: Time, forecast: Forecast) {
        self.expire(now);
        let before = std::mem::replace(&mut self.forecast, forecast);
        let crossed = match forecast.state {
            Knowledge::Known => self.bounds.estimate(now, forecast.rate),
            Knowledge::Blackout { .. } => self.bounds.estimate(now, None),
            Knowledge::Unknown => None,
        };
        self.upcalls.extend(crossed);
        self.reforecast(now, &before);
        self.refresh(now, false);
    }

    /// The destination cannot be reached for now: its objects are held where they are.
    pub fn dest_down(&mut self, now: Time, dest: Dest) {
        self.expire(now);
        for (id, object) in self.of(dest) {
            self.dequeue(id, &object);
        }
        self.away.insert(dest);
        self.refresh(now, false);
    }

    /// The destination can be reached again: its objects go on where they were.
    pub fn dest_up(&mut self, now: Time, dest: Dest) {
        self.expire(now);
        if self.away.remove(&dest) {
            for (id, object) in self.of(dest) {
                self.enqueue(id, &object);
            }
        }
        self.refresh(now, false);
    }

    /// The destination is gone for good: its objects end as [`Outcome::Lost`].
    pub fn forget(&mut self, now: Time, dest: Dest) {
        self.expire(now);
        for (id, _) in self.of(dest) {
            self.end(now, id, Outcome::Lost);
        }
        self.away.remove(&dest);
        self.refresh(now, false);
    }

    fn of(&self, dest: Dest) -> Vec<(RequestId, Object)> {
        self.objects.iter().filter(|(_, o)| o.dest == dest).map(|(id, o)| (*id, *o)).collect()
    }

    /// Registers bounds for the bandwidth (the paper's `callback`): one upcall when the estimate
    /// is outside of them, then they are registered no more. Neither bound unregisters.
    pub fn bounds(&mut self, now: Time, low: Option<Rate>, high: Option<Rate>) {
        let crossed = self.bounds.register(now, low, high);
        self.upcalls.extend(crossed);
    }

    /// Acts on every timer that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
        self.refresh(now, false);
        self.turn_interval(now);
        let crossed = self.bounds.check(now);
        self.upcalls.extend(crossed);
    }

    /// When [`Scheduler::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        let waits = [expiry, self.bounds.poll_timeout(), self.next_plan(), self.next_interval()];
        waits.into_iter().flatten().min()
    }

    /// The next thing to tell the application.
    pub fn poll_upcall(&mut self) -> Option<Upcall> {
        self.upcalls.pop_front()
    }

    /// The next request that ended before it was delivered: the session resets its stream, if it
    /// has one.
    pub fn poll_reset(&mut self) -> Option<(RequestId, Dest)> {
        self.resets.pop_front()
    }

    /// Whether an estimate of the link is of use: objects wait, or bounds are registered.
    pub fn waiting(&self) -> bool {
        !self.objects.is_empty() || self.bounds.is_registered()
    }

    /// Objects rejected, evicted or suspended for lack of bandwidth since this was last asked.
    pub fn take_rejected(&mut self) -> u32 {
        std::mem::take(&mut self.short_of_bandwidth)
    }

    /// Requests that have not ended.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends what is past its deadline.
    fn expire(&mut self, now: Time) {
        while let Some((at, id)) = self.expiries.first().copied()
            && at <= now
        {
            self.end(now, id, Outcome::Expired);
        }
    }

    /// Takes a request out of all tables.
    fn remove(&mut self, id: RequestId) -> Option<Object> {
        let object = self.objects.remove(&id)?;
        self.dequeue(id, &object);
        if let Some(at) = object.deadline {
            self.expiries.remove(&(at, id));
        }
        if let Some(queue) = self.queues.get_mut(&object.queue) {
            queue.members = queue.members.saturating_sub(1);
        }
        self.bytes = self.bytes.saturating_sub(object.size);
        Some(object)
    }

    /// The one way a request that was accepted ends.
    fn end(&mut self, now: Time, id: RequestId, outcome: Outcome) {
        let Some(object) = self.remove(id) else { return };
        if outcome != Outcome::Delivered {
            self.resets.push_back((id, object.dest));
        }
        self.tell_final(now, id, &object, outcome);
    }

    fn tell_final(&mut self, now: Time, request: RequestId, object: &Object, outcome: Outcome) {
        let Object { dest, written, size, .. } = *object;
        self.upcalls.push_back(Upcall::Final(Final { request, dest, outcome, at: now, written, size }));
    }
}
