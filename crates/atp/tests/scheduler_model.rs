//! Random commands against a model of what has to hold whatever the policy does: each request
//! ends once, bytes are conserved, and nothing is picked that may not be.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use remora_atp::estimate::{Forecast, Knowledge, Outage};
use remora_atp::{
    Command, Config, Dest, OnShortage, Options, Outcome, Pick, Policy, Priority, QueueId, RequestId, Scheduler, State,
    Upcall, Why,
};
use remora_base::{Rate, Time};

#[derive(Clone, Debug)]
enum Op {
    Submit {
        dest: u32,
        size: u64,
        level: u8,
        deadline_ms: Option<u64>,
        queue: u32,
        ask: bool,
    },
    Control {
        which: usize,
        command: Command,
    },
    Send {
        packets: usize,
    },
    Deliver {
        which: usize,
    },
    Fail {
        which: usize,
    },
    Forecast {
        kbyte: Option<u64>,
        state: u8,
    },
    Dest {
        dest: u32,
        what: u8,
    },
    Bounds {
        low: u64,
        high: u64,
    },
    Wait {
        ms: u64,
    },
    /// As `Wait`, by a caller who is late for every timer.
    Doze {
        ms: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let command = prop_oneof![
        Just(Command::Inspect),
        Just(Command::Cancel),
        Just(Command::Suspend),
        Just(Command::Restart),
        (0..16u8).prop_map(|l| Command::Prioritise(Priority::new(l).unwrap())),
        prop::option::of(0..5000u64).prop_map(|ms| Command::Deadline(ms.map(Duration::from_millis))),
    ];
    let size = prop_oneof![Just(0u64), 1..3000u64, 3000..200_000u64];
    let submit = (0..3u32, size, 0..16u8, prop::option::of(0..4000u64), 0..3u32, any::<bool>()).prop_map(
        |(dest, size, level, deadline_ms, queue, ask)| Op::Submit { dest, size, level, deadline_ms, queue, ask },
    );
    prop_oneof![
        6 => submit,
        3 => (any::<usize>(), command).prop_map(|(which, command)| Op::Control { which, command }),
        6 => (1..30usize).prop_map(|packets| Op::Send { packets }),
        3 => any::<usize>().prop_map(|which| Op::Deliver { which }),
        1 => any::<usize>().prop_map(|which| Op::Fail { which }),
        2 => (prop::option::of(1..300u64), 0..4u8).prop_map(|(kbyte, state)| Op::Forecast { kbyte, state }),
        1 => (0..3u32, 0..5u8).prop_map(|(dest, what)| Op::Dest { dest, what }),
        1 => (0..200u64, 0..400u64).prop_map(|(low, high)| Op::Bounds { low, high }),
        3 => (0..800u64).prop_map(|ms| Op::Wait { ms }),
        1 => (0..800u64).prop_map(|ms| Op::Doze { ms }),
    ]
}

/// What is known of a request from outside.
#[derive(Clone, Debug)]
struct Known {
    dest: Dest,
    size: u64,
    written: u64,
    priority: Priority,
    queue: QueueId,
    deadline: Option<Time>,
    asked: bool,
    short: bool,
    ended: Option<Outcome>,
}

struct Model {
    scheduler: Scheduler,
    config: Config,
    now: Time,
    known: BTreeMap<RequestId, Known>,
    away: Vec<Dest>,
    certain: bool,
}

impl Model {
    fn new(policy: Policy) -> Model {
        let config = Config {
            policy,
            objects_max: 40,
            bytes_max: 1 << 20,
            queues_max: 2,
            size_max: 150_000,
            ..Config::default()
        };
        let scheduler = Scheduler::new(config);
        Model { scheduler, config, now: Time::from_secs(1), known: BTreeMap::new(), away: vec![], certain: false }
    }

    fn live(&self, which: usize) -> Option<RequestId> {
        let live: Vec<RequestId> = self.known.iter().filter(|(_, k)| k.ended.is_none()).map(|(id, _)| *id).collect();
        (!live.is_empty()).then(|| live[which % live.len()])
    }

    fn step(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Submit { dest, size, level, deadline_ms, queue, ask } => {
                let options = Options {
                    priority: Priority::new(level).unwrap(),
                    deadline: deadline_ms.map(Duration::from_millis),
                    queue: QueueId(queue),
                    on_shortage: if ask { OnShortage::Suspend } else { OnShortage::Drop },
                };
                let id = self.scheduler.submit(now, Dest(dest), size, options);
                let known = Known {
                    dest: Dest(dest),
                    size,
                    written: 0,
                    priority: options.priority,
                    queue: options.queue,
                    deadline: options.deadline.map(|d| now + d),
                    asked: false,
                    short: false,
                    ended: None,
                };
                assert!(self.known.insert(id, known).is_none(), "an id used twice");
            }
            Op::Control { which, command } => self.control(which, command),
            Op::Send { packets } => (0..packets).for_each(|_| self.send()),
            Op::Deliver { which } => {
                let id = self.live(which);
                if let Some(id) = id.filter(|id| self.known[id].written == self.known[id].size) {
                    self.scheduler.acknowledged(now, id, self.known[&id].size);
                    self.scheduler.delivered(now, id);
                }
            }
            Op::Fail { which } => {
                if let Some(id) = self.live(which) {
                    self.scheduler.failed(now, id, Outcome::Lost);
                }
            }
            Op::Forecast { kbyte, state } => {
                let rate = kbyte.and_then(|k| Rate::from_bits(k * 8000));
                self.certain = state > 1 && rate.is_some();
                let state = match state {
                    0 => Knowledge::Unknown,
                    1 => Knowledge::Blackout { since: now },
                    _ => Knowledge::Known,
                };
                self.scheduler.forecast(now, Forecast { rate, available: rate, at_most: rate, state, measured: None });
            }
            Op::Dest { dest, what } => {
                let dest = Dest(dest);
                self.away.retain(|d| *d != dest);
                match what {
                    0 => self.scheduler.forget(now, dest),
                    1 | 2 => {
                        self.away.push(dest);
                        self.scheduler.dest_down(now, dest, Outage::new(now));
                    }
                    _ => self.scheduler.dest_up(now, dest),
                }
            }
            Op::Bounds { low, high } => {
                let rate = |kbyte: u64| Rate::from_bits(kbyte * 8000);
                self.scheduler.bounds(now, rate(low), rate(high));
            }
            Op::Wait { ms } => self.wait(now + Duration::from_millis(ms)),
            Op::Doze { ms } => self.now += Duration::from_millis(ms),
        }
        self.drain();
    }

    fn control(&mut self, which: usize, command: Command) {
        let Some(id) = self.live(which) else { return };
        let finished = self.scheduler.progress(id).is_some_and(|p| p.state == State::Finishing);
        let told = self.scheduler.control(self.now, id, command);
        let (Ok(progress), Some(k)) = (told, self.known.get_mut(&id)) else { return };
        assert_eq!((progress.size, progress.written), (k.size, k.written));
        match command {
            Command::Suspend => k.asked = !finished,
            Command::Restart => (k.asked, k.short) = (false, false),
            Command::Prioritise(priority) => k.priority = priority,
            Command::Deadline(limit) => k.deadline = limit.map(|d| self.now + d),
            Command::Inspect | Command::Cancel => {}
        }
    }

    fn may_be_sent(&self, k: &Known, id: RequestId) -> bool {
        let finishing = self.scheduler.progress(id).is_none_or(|p| p.state == State::Finishing);
        let held = k.asked || k.short || finishing || self.away.contains(&k.dest);
        k.ended.is_none() && !held && k.deadline.is_none_or(|d| d > self.now)
    }

    fn send(&mut self) {
        let Some(Pick { request, dest, offset, remaining, priority }) =
            self.scheduler.pick(self.now, &mut |d| d != Dest(2))
        else {
            return;
        };
        self.drain(); // what the pick suspended or ended is known before it is judged
        let k = self.known.get(&request).expect("picked what was never submitted");
        assert!(self.may_be_sent(k, request), "picked {k:?}");
        assert_eq!((dest, offset, remaining, priority), (k.dest, k.written, k.size - k.written, k.priority));
        assert_ne!(dest, Dest(2), "it was not ready");
        if self.config.policy == Policy::Paper || !self.certain {
            let first = self.first_of(k.queue);
            assert_eq!(Some(request), first, "strict order: priority, deadline, shortest");
        }
        let bytes = remaining.min(self.config.payload);
        self.scheduler.written(self.now, request, bytes);
        self.known.get_mut(&request).unwrap().written += bytes;
    }

    fn first_of(&self, queue: QueueId) -> Option<RequestId> {
        let candidates =
            self.known.iter().filter(|(id, k)| k.queue == queue && k.dest != Dest(2) && self.may_be_sent(k, **id));
        let rank = |id: RequestId, k: &Known| {
            let left = if k.deadline.is_none() { k.size - k.written } else { 0 };
            (std::cmp::Reverse(k.priority), k.deadline.unwrap_or(Time::MAX), left, id)
        };
        candidates.min_by_key(|(id, k)| rank(**id, k)).map(|(id, _)| *id)
    }

    fn wait(&mut self, until: Time) {
        let mut turns = 0;
        while let Some(at) = self.scheduler.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.scheduler.handle_timeout(self.now);
            self.drain();
            let next = self.scheduler.poll_timeout();
            assert!(next.is_none_or(|at| at > self.now), "a timer that does not go off");
            turns += 1;
            assert!(turns < 5000, "too many timers");
        }
        self.now = until;
    }

    fn drain(&mut self) {
        while let Some(upcall) = self.scheduler.poll_upcall() {
            match upcall {
                Upcall::Final(f) => {
                    let k = self.known.entry(f.request).or_insert_with(|| panic!("unknown {f:?}"));
                    assert_eq!(k.ended.replace(f.outcome), None, "two final upcalls");
                    assert_eq!((f.written, f.size), (k.written, k.size));
                    assert!(!matches!(f.outcome, Outcome::Rejected(_)) || f.written == 0);
                    assert!(f.outcome != Outcome::Expired || k.deadline.is_some_and(|d| d <= f.at));
                    assert!(f.outcome != Outcome::Delivered || k.deadline.is_none_or(|d| d > f.at));
                }
                Upcall::InsufficientBandwidth { request, needed, available } => {
                    let k = self.known.get_mut(&request).unwrap();
                    assert!(!k.short && k.ended.is_none() && self.certain, "{k:?}");
                    assert!(needed.bits() > 0 && available.bits() > 0);
                    k.short = true;
                }
                Upcall::Resumed { request } => {
                    let k = self.known.get_mut(&request).unwrap();
                    assert!(k.short && k.ended.is_none(), "{k:?}");
                    k.short = false;
                }
                Upcall::Uncertain { request, probability } => {
                    let known = &self.known[&request];
                    assert!(known.ended.is_none() && known.deadline.is_some() && !known.asked && !known.short);
                    assert!((0.0..=1.0).contains(&probability.get()));
                }
                Upcall::Bandwidth { .. } => {}
            }
        }
        while let Some((id, dest)) = self.scheduler.poll_reset() {
            let k = &self.known[&id];
            assert!(k.dest == dest && !matches!(k.ended, None | Some(Outcome::Delivered | Outcome::Rejected(_))));
        }
        for (id, k) in self.known.iter().filter(|(_, k)| k.ended.is_none()) {
            let progress = self.scheduler.progress(*id).expect("neither ended nor there");
            let expected = k.short && !k.asked && !self.away.contains(&k.dest) && progress.state != State::Finishing;
            assert_eq!(progress.state == State::Suspended(Why::InsufficientBandwidth), expected, "{k:?} {progress:?}");
        }
        let live = self.known.values().filter(|k| k.ended.is_none());
        assert_eq!(self.scheduler.bytes(), live.clone().map(|k| k.size).sum::<u64>());
        assert_eq!(self.scheduler.objects(), live.count());
        assert!(self.scheduler.objects() <= self.config.objects_max && self.scheduler.bytes() <= self.config.bytes_max);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn each_request_ends_once_and_nothing_is_picked_that_may_not_be(
        paper in any::<bool>(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut model = Model::new(if paper { Policy::Paper } else { Policy::Remora });
        for op in &ops {
            model.step(op);
        }
        for dest in 0..3 {
            model.step(&Op::Dest { dest, what: 0 });
        }
        model.step(&Op::Bounds { low: 0, high: 0 });
        prop_assert!(model.known.values().all(|k| k.ended.is_some()));
        prop_assert_eq!(model.scheduler.objects(), 0);
        model.wait(model.now + Duration::from_millis(100));
        prop_assert_eq!(model.scheduler.poll_timeout(), None);
        prop_assert!(!model.scheduler.waiting());
    }
}
