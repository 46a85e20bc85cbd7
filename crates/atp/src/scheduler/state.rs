//! The scheduler's state: requests, queues, and the calls of the session.

use super::config::{Config, Policy};
use super::fair::Fair;
use super::paper::SendInterval;
use super::queue::{Admission, Entry, Queue};
use super::rate_bounds::RateBounds;
use crate::estimate::{Forecast, Knowledge};
use crate::object::{
    Command, Dest, Final, Gone, OnShortage, Options, Outcome, Priority, Progress, QueueId, Rejection, RequestId, State,
    Upcall, Why,
};
use remora_base::{Rate, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Decides what is sent next and what is given up; see the module.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: Config,
    pub(super) next: u64,
    pub(super) objects: BTreeMap<RequestId, Object>,
    pub(super) bytes: u64,
    pub(super) queues: BTreeMap<QueueId, Queue>,
    pub(super) unreachable: BTreeSet<Dest>,
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
    /// The application suspended it.
    pub(super) asked: bool,
    /// It is suspended for lack of bandwidth.
    pub(super) short: bool,
    /// All of it is written.
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
    /// A scheduler without objects that does not know its link yet.
    pub fn new(config: Config) -> Scheduler {
        Scheduler {
            config,
            next: 0,
            objects: BTreeMap::new(),
            bytes: 0,
            queues: BTreeMap::new(),
            unreachable: BTreeSet::new(),
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
        match self.exceeded_bound(&object).or_else(|| self.infeasible(now, &object)) {
            Some(why) => self.reject(now, id, &object, why),
            None => self.accept(now, id, object),
        }
        self.refresh(now, false);
        id
    }

    /// Why there is no room for an object, if there is none.
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
        if let Some(why) = self.displacement(now, id) {
            self.remove(id);
            self.reject(now, id, &object, why);
        }
    }

    fn reject(&mut self, now: Time, id: RequestId, object: &Object, why: Rejection) {
        if matches!(why, Rejection::InsufficientBandwidth { .. } | Rejection::WouldDisplace(_)) {
            self.short_of_bandwidth = self.short_of_bandwidth.saturating_add(1);
        }
        self.push_final(now, id, object, Outcome::Rejected(why));
    }

    /// Puts an object into its queue, if it may be sent.
    fn enqueue(&mut self, id: RequestId, object: &Object) {
        if object.asked || object.finishing || self.unreachable.contains(&object.dest) {
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
        self.unreachable.insert(dest);
        self.refresh(now, false);
    }

    /// The destination can be reached again: its objects go on where they were.
    pub fn dest_up(&mut self, now: Time, dest: Dest) {
        self.expire(now);
        if self.unreachable.remove(&dest) {
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
        self.unreachable.remove(&dest);
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
    /// object passed over because its destination is not ready; a plan (see `plan`) at most_bytes every
    /// 20 ms while there are deadlines.
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
            self.advance_interval(now);
            self.interval.sent(self.config.packet());
        }
    }

    fn spends_intervals(&self) -> bool {
        self.config.policy == Policy::Paper && self.forecast.state != Knowledge::Unknown
    }

    /// Begins a new send interval if it is time; whether a packet may leave in this one.
    pub(super) fn advance_interval(&mut self, now: Time) -> bool {
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

impl Scheduler {
    /// Asks something of a request (the paper's `reqctl`), and tells how far it was.
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
            // Without a deadline any bandwidth will do.
            object.short = false;
            self.upcalls.push_back(Upcall::Resumed { request: id });
        }
        self.replace(id, object);
        // A deadline that has passed already is no lack of bandwidth.
        self.expire(now);
        let asks_again = matches!(command, Command::Restart | Command::Prioritise(_) | Command::Deadline(_));
        if asks_again && !object.short {
            self.readmit(now, id);
        }
        self.refresh(now, false);
        Ok(self.progress(id).unwrap_or(before))
    }

    /// Changes a request in all tables at once.
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

    /// How far a request is; `None` when it has ended.
    pub fn progress(&self, id: RequestId) -> Option<Progress> {
        let o = self.objects.get(&id)?;
        let state = match o {
            _ if o.finishing => State::Finishing,
            _ if o.asked => State::Suspended(Why::Asked),
            _ if self.unreachable.contains(&o.dest) => State::Suspended(Why::Disconnected),
            _ if o.short => State::Suspended(Why::InsufficientBandwidth),
            _ if o.written == 0 => State::Waiting,
            _ => State::Sending,
        };
        let Object { size, written, acknowledged, dest, priority, deadline, .. } = *o;
        Some(Progress { size, written, acknowledged, state, dest, priority, deadline })
    }
}
