//! The scheduler's requests and the calls of the session.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use remora_base::{Rate, Time};

use super::config::{Config, Policy};
use super::fair::Fair;
use super::paper::SendInterval;
use super::queue::{Admission, Entry, Queue};
use super::rate_bounds::RateBounds;
use crate::estimate::{Forecast, Knowledge, Outage};
use crate::object::{
    Command, Dest, Final, Gone, OnShortage, Options, Outcome, Priority, Progress, QueueId, Rejection, RequestId, State,
    Upcall, Why,
};

/// Selects the object for each packet and gives up objects whose deadlines cannot be met.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: Config,
    pub(super) next: u64,
    pub(super) objects: BTreeMap<RequestId, Object>,
    pub(super) bytes: u64,
    pub(super) queues: BTreeMap<QueueId, Queue>,
    /// Destinations that cannot be reached, with their outages.
    pub(super) unreachable: BTreeMap<Dest, Outage>,
    pub(super) expiries: BTreeSet<(Time, RequestId)>,
    pub(super) fair: Fair,
    pub(super) interval: SendInterval,
    pub(super) bounds: RateBounds,
    pub(super) forecast: Forecast,
    pub(super) upcalls: VecDeque<Upcall>,
    pub(super) resets: VecDeque<(RequestId, Dest)>,
    pub(super) short_of_bandwidth: u32,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) dest: Dest,
    pub(super) queue: QueueId,
    pub(super) on_shortage: OnShortage,
    pub(super) priority: Priority,
    pub(super) deadline: Option<Time>,
    pub(super) size: u64,
    pub(super) written: u64,
    pub(super) acknowledged: u64,
    /// Suspended by the application.
    pub(super) asked: bool,
    /// Suspended for lack of bandwidth.
    pub(super) short: bool,
    /// All bytes are written.
    pub(super) finishing: bool,
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
    /// Creates a scheduler without objects and without an estimate.
    pub fn new(config: Config) -> Scheduler {
        Scheduler {
            config,
            next: 0,
            objects: BTreeMap::new(),
            bytes: 0,
            queues: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            expiries: BTreeSet::new(),
            fair: Fair::default(),
            interval: SendInterval::default(),
            bounds: RateBounds::default(),
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

    /// Sets the minimum number of the next request. A caller with several schedulers thus numbers the requests of
    /// all of them uniquely.
    pub fn number_from(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Submits an object of `size` bytes for `dest`. A rejection comes as an upcall with [`Outcome::Rejected`].
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
        match self.exceeded_bound(&object).or_else(|| self.infeasible(now, &object)) {
            Some(why) => self.reject(now, id, &object, why),
            None => self.accept(now, id, object),
        }
        self.refresh(now, false);
        id
    }

    /// The bound that the object exceeds.
    fn exceeded_bound(&mut self, object: &Object) -> Option<Rejection> {
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

    /// Removes queues without objects whose fair-queueing tags have expired.
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
        match self.displacement(now, id) {
            Some(why) => {
                self.remove(id);
                self.reject(now, id, &object, why);
            }
            None => self.warn(now, id),
        }
    }

    fn reject(&mut self, now: Time, id: RequestId, object: &Object, why: Rejection) {
        if matches!(why, Rejection::InsufficientBandwidth { .. } | Rejection::WouldDisplace(_)) {
            self.short_of_bandwidth = self.short_of_bandwidth.saturating_add(1);
        }
        self.push_final(now, id, object, Outcome::Rejected(why));
    }

    /// Adds an object to its queue, if it may be sent.
    fn enqueue(&mut self, id: RequestId, object: &Object) {
        if object.asked || object.finishing || self.unreachable.contains_key(&object.dest) {
            return;
        }
        let admission = if object.short { Admission::Suspended } else { Admission::Fits };
        let suspends = object.on_shortage == OnShortage::Suspend;
        let entry = Entry { level: object.level(), left: object.left(), admission, suspends };
        self.queues.entry(object.queue).or_default().insert(id, object.deadline, entry);
    }

    fn dequeue(&mut self, id: RequestId, object: &Object) {
        if let Some(queue) = self.queues.get_mut(&object.queue) {
            queue.remove(id, object.deadline, object.level(), object.left());
        }
    }

    /// Records that `bytes` more of the object were acknowledged.
    pub fn acknowledged(&mut self, now: Time, id: RequestId, bytes: u64) {
        self.expire(now);
        if let Some(o) = self.objects.get_mut(&id) {
            o.acknowledged = o.acknowledged.saturating_add(bytes).min(o.written);
        }
    }

    /// Ends the request: all of the object was acknowledged.
    pub fn delivered(&mut self, now: Time, id: RequestId) {
        self.expire(now);
        self.end(now, id, Outcome::Delivered);
        self.refresh(now, false);
    }

    /// Ends the request with a failure that the session found.
    pub fn failed(&mut self, now: Time, id: RequestId, outcome: Outcome) {
        self.expire(now);
        self.end(now, id, outcome);
        self.refresh(now, false);
    }

    /// Sets the estimator's forecast.
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

    /// Holds the objects of an unreachable destination, and warns of their deadlines.
    pub fn dest_down(&mut self, now: Time, dest: Dest, outage: Outage) {
        self.expire(now);
        let held = self.of(dest);
        for (id, object) in &held {
            self.dequeue(*id, object);
        }
        self.unreachable.insert(dest, outage);
        for (id, _) in held {
            self.warn(now, id);
        }
        self.refresh(now, false);
    }

    /// Resumes the objects of a destination.
    pub fn dest_up(&mut self, now: Time, dest: Dest) {
        self.expire(now);
        if self.unreachable.remove(&dest).is_some() {
            for (id, object) in self.of(dest) {
                self.enqueue(id, &object);
            }
        }
        self.refresh(now, false);
    }

    /// Ends the objects of a destination as [`Outcome::Lost`].
    pub fn forget(&mut self, now: Time, dest: Dest) {
        self.expire(now);
        for (id, _) in self.of(dest) {
            self.end(now, id, Outcome::Lost);
        }
        self.unreachable.remove(&dest);
        self.refresh(now, false);
    }

    fn of(&self, dest: Dest) -> Vec<(RequestId, Object)> {
        self.objects.iter().filter(|(_, o)| o.dest == dest).map(|(id, o)| (*id, *o)).collect()
    }

    /// Registers bandwidth bounds (`callback` in ATP 02). One upcall is sent when the estimate is outside of them,
    /// which removes them. Without any bound, removes them.
    pub fn bounds(&mut self, now: Time, low: Option<Rate>, high: Option<Rate>) {
        let crossed = self.bounds.register(now, low, high);
        self.upcalls.extend(crossed);
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
        self.refresh(now, false);
        self.advance_interval(now);
        let crossed = self.bounds.check(now);
        self.upcalls.extend(crossed);
    }

    /// When [`Scheduler::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        let waits = [expiry, self.bounds.poll_timeout(), self.next_plan(), self.next_interval()];
        waits.into_iter().flatten().min()
    }

    /// The next upcall for the application.
    pub fn poll_upcall(&mut self) -> Option<Upcall> {
        self.upcalls.pop_front()
    }

    /// The next request that ended without delivery. The session resets its stream.
    pub fn poll_reset(&mut self) -> Option<(RequestId, Dest)> {
        self.resets.pop_front()
    }

    /// Whether an estimate is needed: objects are waiting, or bounds are registered.
    pub fn waiting(&self) -> bool {
        !self.objects.is_empty() || self.bounds.is_registered()
    }

    /// Objects rejected, evicted or suspended for lack of bandwidth since the last call.
    pub fn take_rejected(&mut self) -> u32 {
        std::mem::take(&mut self.short_of_bandwidth)
    }

    /// Requests that have not ended.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Bytes of the requests that have not ended.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the requests whose deadlines have passed.
    fn expire(&mut self, now: Time) {
        while let Some((at, id)) = self.expiries.first().copied()
            && at <= now
        {
            self.end(now, id, Outcome::Expired);
        }
    }

    /// Removes a request from all tables.
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

    /// Ends an accepted request.
    pub(super) fn end(&mut self, now: Time, id: RequestId, outcome: Outcome) {
        let Some(object) = self.remove(id) else { return };
        if outcome != Outcome::Delivered {
            self.resets.push_back((id, object.dest));
        }
        self.push_final(now, id, &object, outcome);
    }

    fn push_final(&mut self, now: Time, request: RequestId, object: &Object, outcome: Outcome) {
        let Object { dest, written, size, .. } = *object;
        self.upcalls.push_back(Upcall::Final(Final { request, dest, outcome, at: now, written, size }));
    }
}

/// The object selected for the next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    /// The request of the object.
    pub request: RequestId,
    /// Where it is sent.
    pub dest: Dest,
    /// Offset of the first byte not written.
    pub offset: u64,
    /// Bytes not written; 0 only for an empty object.
    pub remaining: u64,
    /// The priority of the object.
    pub priority: Priority,
}

impl Scheduler {
    /// Selects the object for the next packet among the destinations for which `ready` returns true. `None` if
    /// there is none, or, under the policy `paper`, if the current send interval (ATP 02) has no bytes left.
    ///
    /// Usually O(log n) in the objects and O(q) in the queues; one more step for each object skipped because its
    /// destination is not ready. With deadlines, a feasibility scan at most every 20 ms.
    pub fn pick(&mut self, now: Time, ready: &mut dyn FnMut(Dest) -> bool) -> Option<Pick> {
        self.expire(now);
        self.refresh(now, true);
        if !self.advance_interval(now) {
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

    /// Records that `bytes` more of the object were written into a packet.
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
            self.advance_interval(now);
            self.interval.sent(self.config.packet());
        }
    }

    fn spends_intervals(&self) -> bool {
        self.config.policy == Policy::Paper && self.forecast.state != Knowledge::Unknown
    }

    /// Starts a new send interval if it is due; returns whether a packet may be sent in the current one.
    pub(super) fn advance_interval(&mut self, now: Time) -> bool {
        if !self.spends_intervals() {
            return true;
        }
        let available = self.forecast.available.map_or(0, |r| r.bits() / 8);
        self.interval.open(now, available, self.config.packet())
    }

    /// Start of the next send interval, if this one is spent and objects wait.
    pub(super) fn next_interval(&self) -> Option<Time> {
        let waits = self.spends_intervals() && self.queues.values().any(|q| q.head_level().is_some());
        if waits { self.interval.next(self.config.packet()) } else { None }
    }
}

impl Scheduler {
    /// Runs a command on a request (`reqctl` in ATP 02); returns its progress before.
    pub fn control(&mut self, now: Time, id: RequestId, command: Command) -> Result<Progress, Gone> {
        self.expire(now);
        let mut object = *self.objects.get(&id).ok_or(Gone)?;
        let before = self.progress(id).ok_or(Gone)?;
        match command {
            Command::Inspect => return Ok(before),
            Command::Cancel => {
                self.end(now, id, Outcome::Cancelled);
                return Ok(before);
            }
            Command::Suspend => object.asked = !object.finishing,
            Command::Restart => (object.asked, object.short) = (false, false),
            Command::Prioritise(priority) => object.priority = priority,
            Command::Deadline(limit) => object.deadline = limit.map(|d| now + d),
        }
        if object.short && object.deadline.is_none() {
            // Without a deadline any bandwidth suffices.
            object.short = false;
            self.upcalls.push_back(Upcall::Resumed { request: id });
        }
        self.replace(id, object);
        // A deadline in the past is an expiry, not a lack of bandwidth.
        self.expire(now);
        let asks_again = matches!(command, Command::Restart | Command::Prioritise(_) | Command::Deadline(_));
        if asks_again && !object.short {
            self.readmit(now, id);
        }
        if matches!(command, Command::Restart | Command::Deadline(_)) {
            self.warn(now, id);
        }
        self.refresh(now, false);
        Ok(self.progress(id).unwrap_or(before))
    }

    /// Replaces a request in all tables.
    fn replace(&mut self, id: RequestId, object: Object) {
        let Some(old) = self.objects.insert(id, object) else { return };
        self.dequeue(id, &old);
        if let Some(at) = old.deadline {
            self.expiries.remove(&(at, id));
        }
        if let Some(at) = object.deadline {
            self.expiries.insert((at, id));
        }
        self.enqueue(id, &object);
    }

    /// Progress of a request; `None` after its end.
    pub fn progress(&self, id: RequestId) -> Option<Progress> {
        let o = self.objects.get(&id)?;
        let state = match o {
            _ if o.finishing => State::Finishing,
            _ if o.asked => State::Suspended(Why::Asked),
            _ if self.unreachable.contains_key(&o.dest) => State::Suspended(Why::Disconnected),
            _ if o.short => State::Suspended(Why::InsufficientBandwidth),
            _ if o.written == 0 => State::Waiting,
            _ => State::Sending,
        };
        let Object { size, written, acknowledged, dest, priority, deadline, .. } = *o;
        Some(Progress { size, written, acknowledged, state, dest, priority, deadline })
    }
}
