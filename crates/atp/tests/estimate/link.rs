//! A link in virtual time: a bottleneck whose rate changes, a delay, jitter and loss; a receiver
//! that acknowledges as QUIC does and reports arrivals; a sender that does what the estimator says.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use remora_atp::estimate::{Arrival, Config, Demand, Estimator, Gate, Kind, Knowledge, Probe};
use remora_base::{Rng, Time};

pub(crate) const MTU: u64 = 1280;
/// The receiver's clock is not ours.
const OFFSET: Duration = Duration::from_secs(12_345);
const SMALL: u64 = 98;
const REPORT_AFTER: Duration = Duration::from_millis(10);
const ACK_DELAY: Duration = Duration::from_millis(25);

pub(crate) struct Link {
    /// Bytes a second from each moment on, the first at zero; 0 is a blackout.
    pub(crate) rate: Vec<(Time, f64)>,
    pub(crate) round_trip: Duration,
    /// Uniform in 0..this, after the bottleneck, without reordering.
    pub(crate) jitter: Duration,
    /// Chance of a packet to be lost after the bottleneck.
    pub(crate) loss: f64,
    /// Whether the bottleneck throws away what comes during a blackout, rather than queue it.
    pub(crate) drops: bool,
    /// Packets that its queue holds.
    pub(crate) queue: usize,
}

impl Link {
    pub(crate) fn steady(rate: f64, round_trip_ms: u64) -> Link {
        Link::steps(&[(0, rate)], round_trip_ms)
    }

    /// Rates from milliseconds on.
    pub(crate) fn steps(steps: &[(u64, f64)], round_trip_ms: u64) -> Link {
        Link {
            rate: steps.iter().map(|(ms, r)| (Time::from_millis(*ms), *r)).collect(),
            round_trip: Duration::from_millis(round_trip_ms),
            jitter: Duration::ZERO,
            loss: 0.0,
            drops: false,
            queue: 100,
        }
    }

    pub(crate) fn rate_at(&self, t: Time) -> f64 {
        self.rate.iter().rev().find(|(from, _)| *from <= t).map_or(0.0, |(_, r)| *r)
    }

    /// When a packet that begins to be carried at `start` is out.
    fn carried(&self, start: Time, bytes: u64) -> Time {
        let (mut t, mut left) = (start, bytes as f64);
        loop {
            let next = self.rate.iter().map(|(at, _)| *at).find(|at| *at > t).unwrap_or(Time::MAX);
            let (rate, span) = (self.rate_at(t), next.since(t).as_secs_f64());
            if rate > 0.0 && rate * span >= left {
                return t + Duration::from_secs_f64(left / rate);
            }
            assert!(next < Time::MAX, "the link never comes back");
            (left, t) = (left - rate * span, next);
        }
    }
}

/// What the sender has to send.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// Objects are always waiting.
    Greedy,
    /// An object of so many bytes this often.
    Objects(u64, Duration),
    /// Greedy until then; afterwards objects that are refused, ten a second.
    Until(Time),
    /// Greedy until then, nothing but the wish to know afterwards.
    Idle(Time),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(u64),
    AckTimer,
    Report,
    Back(usize),
    Object,
}

#[derive(Clone)]
enum Answer {
    Acks(Vec<u64>),
    Report(Vec<Arrival>),
}

/// What was seen every 10 ms.
pub(crate) struct Seen {
    pub(crate) at: Time,
    /// The estimate, in bytes a second; 0 for none.
    pub(crate) rate: f64,
    pub(crate) state: Knowledge,
    /// How long a new packet would wait at the bottleneck; only where it has a rate.
    pub(crate) wait: Duration,
}

pub(crate) struct Run {
    pub(crate) seen: Vec<Seen>,
    /// When data arrived (not probes), and how many bytes.
    pub(crate) arrived: Vec<(Time, u64)>,
    pub(crate) estimator: Estimator,
    pub(crate) probe_bytes: u64,
}

impl Run {
    /// Bytes of data that arrived in this span, as a share of what the link could carry.
    pub(crate) fn utilization(&self, link: &Link, from: Time, to: Time) -> f64 {
        let got: u64 = self.arrived.iter().filter(|(t, _)| (from..to).contains(t)).map(|(_, b)| b).sum();
        let step = Duration::from_millis(1);
        let (mut t, mut could) = (from, 0.0);
        while t < to {
            could += link.rate_at(t) * 0.001;
            t += step;
        }
        got as f64 / could
    }

    /// How long after `from` the estimate came within `share` of `rate` to stay there for `hold`.
    pub(crate) fn settled(&self, from: Time, rate: f64, share: f64, hold: Duration) -> Option<Duration> {
        let mut since = None;
        for s in self.seen.iter().filter(|s| s.at >= from) {
            match ((s.rate / rate - 1.0).abs() <= share, since) {
                (false, _) => since = None,
                (true, None) => since = Some(s.at),
                (true, Some(began)) if s.at.since(began) >= hold => return Some(began.since(from)),
                (true, Some(_)) => {}
            }
        }
        None
    }

    /// The share of samples from `from` on for which `test` holds.
    pub(crate) fn share(&self, from: Time, test: impl Fn(&Seen) -> bool) -> f64 {
        let all: Vec<&Seen> = self.seen.iter().filter(|s| s.at >= from).collect();
        all.iter().filter(|s| test(s)).count() as f64 / all.len() as f64
    }

    /// The quantile of the waits from `from` on.
    pub(crate) fn wait(&self, from: Time, quantile: f64) -> Duration {
        let mut waits: Vec<Duration> = self.seen.iter().filter(|s| s.at >= from).map(|s| s.wait).collect();
        waits.sort();
        waits[((waits.len() - 1) as f64 * quantile) as usize]
    }
}

struct World<'a> {
    link: &'a Link,
    load: Load,
    rng: Rng,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    answers: Vec<Answer>,
    /// Bytes that wait to be sent.
    waiting: u64,
    /// By number: when sent, bytes, is data. Removed when acknowledged or lost.
    outstanding: BTreeMap<u64, (Time, u64)>,
    sizes: BTreeMap<u64, (Time, u64, bool)>,
    next: u64,
    /// When the bottleneck is done with each packet it holds.
    done: Vec<Time>,
    last_arrival: Time,
    unacked: Vec<u64>,
    highest: Option<u64>,
    unreported: Vec<Arrival>,
    total: u64,
    run: Run,
}

/// Runs a sender over `link` until `until`.
pub(crate) fn run(kind: Kind, link: &Link, load: Load, until: Time, seed: u64) -> Run {
    let config = Config { mtu: MTU, ..Config::new(kind) };
    let mut w = World {
        link,
        load,
        rng: Rng::stream(seed, "link"),
        now: Time::ZERO,
        events: BinaryHeap::new(),
        sequence: 0,
        answers: Vec::new(),
        waiting: 0,
        outstanding: BTreeMap::new(),
        sizes: BTreeMap::new(),
        next: 0,
        done: Vec::new(),
        last_arrival: Time::ZERO,
        unacked: Vec::new(),
        highest: None,
        unreported: Vec::new(),
        total: 0,
        run: Run {
            seen: Vec::new(),
            arrived: Vec::new(),
            estimator: Estimator::new(config, Time::ZERO),
            probe_bytes: 0,
        },
    };
    w.run.estimator.demand(Time::ZERO, Demand { waiting: true, rejected: 0 });
    w.at(Time::ZERO, Event::Object);
    w.work(until);
    w.run
}

impl World<'_> {
    fn at(&mut self, t: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((t, self.sequence, event)));
    }

    fn work(&mut self, until: Time) {
        let mut look = Time::ZERO;
        let mut steps = 0u64;
        loop {
            let wake = self.drain();
            steps += 1;
            assert!(steps < 20_000_000, "no progress");
            let timer = self.run.estimator.poll_timeout();
            let event = self.events.peek().map(|Reverse((t, _, _))| *t);
            let next = [wake, timer, event, Some(look)].into_iter().flatten().min().unwrap_or(look).max(self.now);
            if next > until {
                return;
            }
            self.now = next;
            if look <= self.now {
                self.look();
                look += Duration::from_millis(10);
            }
            while let Some(Reverse((t, _, event))) = self.events.peek().copied()
                && t <= self.now
            {
                self.events.pop();
                self.handle(event);
            }
            self.run.estimator.handle_timeout(self.now);
        }
    }

    fn look(&mut self) {
        let f = self.run.estimator.forecast();
        self.done.retain(|t| *t > self.now);
        let wait = if self.link.rate_at(self.now) > 0.0 {
            self.done.last().map_or(Duration::ZERO, |t| t.since(self.now))
        } else {
            Duration::ZERO
        };
        let rate = f.rate.map_or(0.0, |r| r.bits() as f64 / 8.0);
        self.run.seen.push(Seen { at: self.now, rate, state: f.state, wait });
    }

    fn has_data(&self) -> bool {
        match self.load {
            Load::Greedy => true,
            Load::Objects(..) => self.waiting > 0,
            Load::Until(t) | Load::Idle(t) => self.now < t,
        }
    }

    /// Sends what may be sent; when to look again.
    fn drain(&mut self) -> Option<Time> {
        while let Some(probe) = self.run.estimator.poll_probe(self.now) {
            let (n, bytes) = match probe {
                Probe::Small => (1, SMALL),
                Probe::Pair => (2, MTU),
                Probe::Train => (4, MTU),
            };
            for _ in 0..n {
                self.run.probe_bytes += bytes;
                self.send(bytes, false);
            }
        }
        while self.has_data() {
            match self.run.estimator.gate(self.now) {
                Gate::Open => {}
                Gate::At(t) => return Some(t),
                Gate::Shut => return None,
            }
            let bytes = if matches!(self.load, Load::Objects(..)) { self.waiting.min(MTU) } else { MTU };
            self.waiting = self.waiting.saturating_sub(bytes);
            self.send(bytes, true);
        }
        None
    }

    fn send(&mut self, bytes: u64, is_data: bool) {
        let n = self.next;
        self.next += 1;
        self.run.estimator.sent(self.now, bytes);
        self.outstanding.insert(n, (self.now, bytes));
        self.sizes.insert(n, (self.now, bytes, is_data));
        self.done.retain(|t| *t > self.now);
        let is_dropped = self.link.drops && self.link.rate_at(self.now) == 0.0;
        if is_dropped || self.done.len() >= self.link.queue {
            return;
        }
        let start = self.done.last().copied().unwrap_or(self.now).max(self.now);
        let out = self.link.carried(start, bytes);
        self.done.push(out);
        if self.rng.chance(self.link.loss) {
            return;
        }
        let jitter = self.link.jitter.mul_f64(self.rng.unit());
        let arrives = (out + self.link.round_trip / 2 + jitter).max(self.last_arrival);
        self.last_arrival = arrives;
        self.at(arrives, Event::Arrives(n));
    }

    fn back(&mut self, answer: Answer) {
        self.answers.push(answer);
        self.at(self.now + self.link.round_trip / 2, Event::Back(self.answers.len() - 1));
    }

    fn acknowledge(&mut self) {
        let acks = std::mem::take(&mut self.unacked);
        if !acks.is_empty() {
            self.back(Answer::Acks(acks));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrives(n) => self.arrives(n),
            Event::AckTimer => self.acknowledge(),
            Event::Report => {
                let report = std::mem::take(&mut self.unreported);
                if !report.is_empty() {
                    self.back(Answer::Report(report));
                }
            }
            Event::Back(i) => match self.answers[i].clone() {
                Answer::Acks(acks) => self.acknowledged(&acks),
                Answer::Report(r) => self.run.estimator.arrivals(self.now, &r),
            },
            Event::Object => self.object(),
        }
    }

    fn object(&mut self) {
        match self.load {
            Load::Objects(bytes, every) => {
                self.waiting += bytes;
                self.at(self.now + every, Event::Object);
            }
            Load::Until(t) => {
                let rejected = u32::from(self.now >= t);
                self.run.estimator.demand(self.now, Demand { waiting: true, rejected });
                self.at(self.now + Duration::from_millis(100), Event::Object);
            }
            Load::Greedy | Load::Idle(_) => {}
        }
    }

    fn arrives(&mut self, n: u64) {
        let (sent, bytes, is_data) = self.sizes[&n];
        self.total += bytes;
        if is_data {
            self.run.arrived.push((self.now, bytes));
        }
        if self.unreported.is_empty() {
            let after = if is_data { REPORT_AFTER } else { Duration::ZERO };
            self.at(self.now + after, Event::Report);
        }
        // In microseconds, as the session has it.
        let received = Time::from_micros((self.now + OFFSET).as_nanos() / 1000);
        self.unreported.push(Arrival { sent, received, total: self.total });
        let in_order = self.highest.is_none_or(|h| n == h + 1);
        self.highest = Some(n);
        self.unacked.push(n);
        if self.unacked.len() >= 2 || !in_order {
            self.acknowledge();
        } else {
            self.at(self.now + ACK_DELAY, Event::AckTimer);
        }
    }

    fn acknowledged(&mut self, acks: &[u64]) {
        for n in acks {
            if let Some((sent, bytes)) = self.outstanding.remove(n) {
                self.run.estimator.acknowledged(self.now, sent, bytes);
            }
        }
        let Some(highest) = acks.iter().max() else { return };
        let lost: BTreeSet<u64> = self.outstanding.range(..highest.saturating_sub(2)).map(|(n, _)| *n).collect();
        for n in lost {
            if let Some((_, bytes)) = self.outstanding.remove(&n) {
                self.run.estimator.lost(self.now, bytes);
                self.waiting += if self.sizes[&n].2 { bytes } else { 0 };
            }
        }
    }
}
