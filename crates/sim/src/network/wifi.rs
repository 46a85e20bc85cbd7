//! A wireless cell: one half-duplex medium whose queues take turns, and for each station a channel
//! that is good or bad by time (NFS/W 95). Each pair of stations has its own queue, so that no
//! packet waits behind one for an unreachable station. A frame that overlaps a bad period is lost,
//! spends its airtime, and is retransmitted in the next good one.

use std::collections::{BTreeMap, VecDeque};

use remora_base::Rng;
use remora_model::wifi::{Periods, TwoStateChannel};

use super::draw::exponential;
use super::event::Tick;
use super::event::{Crossing, Event, Plan};

/// Capacity of a queue in frames.
const QUEUE_MAX: usize = 100_000;

/// A station's channel, drawn as far as needed.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Channel {
    good_from: Tick,
    good_until: Tick,
    next_good: Tick,
}

impl Channel {
    /// The channel at the start of a run, at any point of its periods.
    fn start(states: &TwoStateChannel, rng: &mut Rng) -> Channel {
        let mut next_good = Tick::ZERO;
        if rng.chance(states.bad_s / (states.good_s + states.bad_s)) {
            // What is left of a bad period.
            let share = match states.bad {
                Periods::Exponential => exponential(rng, 1.0),
                Periods::Uniform => 2.0 * (1.0 - rng.unit().sqrt()),
                Periods::Constant => rng.unit(),
            };
            next_good = Tick::of(states.bad_s * share);
        }
        Channel { good_from: Tick::ZERO, good_until: Tick::ZERO, next_good }
    }

    /// Advances to the period of `now`.
    fn advance(&mut self, now: Tick, states: &TwoStateChannel, rng: &mut Rng) {
        while self.next_good <= now {
            self.good_from = self.next_good;
            self.good_until = self.good_from + Tick::of(exponential(rng, states.good_s));
            let bad = match states.bad {
                Periods::Exponential => exponential(rng, states.bad_s),
                Periods::Uniform => 2.0 * states.bad_s * rng.unit(),
                Periods::Constant => states.bad_s,
            };
            self.next_good = self.good_until + Tick::of(bad);
        }
    }
}

#[derive(Clone, Debug)]
struct Queue {
    frames: VecDeque<Crossing>,
    /// The station whose channel its frames cross.
    mobile: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    number: u32,
    bits_per_s: f64,
    overhead: Tick,
    states: TwoStateChannel,
    /// Stations that are the base.
    base: Vec<bool>,
    channels: BTreeMap<u32, Channel>,
    queues: Vec<Queue>,
    by_pair: BTreeMap<(u32, u32), usize>,
    /// Backlogged queues, in order of their turns.
    waiting: VecDeque<usize>,
    /// The queue in transmission, and whether its frame arrives.
    sending: Option<(usize, bool)>,
    asked: u64,
    /// Airtime used, including that of lost frames.
    pub(crate) held: Tick,
    /// Frames dropped at a full queue.
    pub(crate) lost: u64,
}

impl Cell {
    pub(crate) fn new(number: u32, bits_per_s: f64, overhead_s: f64, states: TwoStateChannel, base: Vec<bool>) -> Cell {
        Cell {
            number,
            bits_per_s,
            overhead: Tick::of(overhead_s),
            states,
            base,
            channels: BTreeMap::new(),
            queues: Vec::new(),
            by_pair: BTreeMap::new(),
            waiting: VecDeque::new(),
            sending: None,
            asked: 0,
            held: Tick::ZERO,
            lost: 0,
        }
    }

    pub(crate) fn offer(&mut self, now: Tick, frame: Crossing, rng: &mut Rng, plan: &mut Plan) {
        let queues = &mut self.queues;
        let is_base = self.base.get(frame.to as usize).copied().unwrap_or(false);
        let at = *self.by_pair.entry((frame.from, frame.to)).or_insert_with(|| {
            queues.push(Queue { frames: VecDeque::new(), mobile: if is_base { frame.from } else { frame.to } });
            queues.len() - 1
        });
        let queue = &mut self.queues[at];
        if queue.frames.len() >= QUEUE_MAX {
            self.lost += 1;
            return;
        }
        queue.frames.push_back(frame);
        if queue.frames.len() == 1 {
            self.waiting.push_back(at);
            if self.sending.is_none() {
                self.next(now, rng, plan);
            }
        }
    }

    /// Whether the queue's channel is good at `now`, until when, and when it will be good
    /// otherwise.
    fn channel(&mut self, queue: usize, now: Tick, rng: &mut Rng) -> Channel {
        if self.states.bad_s <= 0.0 {
            return Channel { good_from: Tick::ZERO, good_until: Tick::MAX, next_good: Tick::MAX };
        }
        let mobile = self.queues[queue].mobile;
        let channel = self.channels.entry(mobile).or_insert_with(|| Channel::start(&self.states, rng));
        channel.advance(now, &self.states, rng);
        *channel
    }

    /// Sends the next frame whose channel is good, or waits for the first channel to become good.
    fn next(&mut self, now: Tick, rng: &mut Rng, plan: &mut Plan) {
        let mut wake = Tick::MAX;
        for i in 0..self.waiting.len() {
            let queue = self.waiting[i];
            let channel = self.channel(queue, now, rng);
            if now >= channel.good_until {
                wake = wake.min(channel.next_good);
                continue;
            }
            let Some(bits) = self.queues[queue].frames.front().map(|f| f.packet.bits) else { continue };
            let airtime = Tick::of(bits / self.bits_per_s) + self.overhead;
            self.waiting.remove(i);
            self.held += airtime;
            self.sending = Some((queue, now + airtime <= channel.good_until));
            wake = now + airtime;
            break;
        }
        self.asked += 1;
        plan.at(wake, Event::Wakes(self.number, self.asked));
    }

    pub(crate) fn wake(&mut self, now: Tick, asked: u64, rng: &mut Rng, plan: &mut Plan) {
        if asked != self.asked {
            return;
        }
        if let Some((at, through)) = self.sending.take() {
            let queue = &mut self.queues[at];
            if through && let Some(frame) = queue.frames.pop_front() {
                plan.at(now, Event::Crossed(frame.packet));
            }
            if !queue.frames.is_empty() {
                self.waiting.push_back(at);
            }
        }
        if !self.waiting.is_empty() {
            self.next(now, rng, plan);
        }
    }
}
