//! A wireless cell: one half-duplex medium that its queues use in turn, and for each station a
//! channel that is good or bad by time (NFS/W 95). Each pair of stations has a queue of its own, so
//! that nobody waits behind a packet for a station that can't be heard. A frame that any part of a
//! bad period meets is lost and sent again once the channel is good; its airtime is spent.

use std::collections::{BTreeMap, VecDeque};

use remora_base::Rng;
use remora_model::wifi::{Periods, TwoStateChannel};

use super::clock::Tick;
use super::draw::exponential;
use super::packet::{Crossing, Event, Plan};

/// Frames that wait in one queue at most.
const QUEUE_MAX: usize = 100_000;

/// A station's channel, drawn as far as it has been asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Channel {
    good_from: Tick,
    good_until: Tick,
    next_good: Tick,
}

impl Channel {
    /// Goes on to the period of `now`.
    fn advance(&mut self, now: Tick, weather: &TwoStateChannel, rng: &mut Rng) {
        while self.next_good <= now {
            self.good_from = self.next_good;
            self.good_until = self.good_from + Tick::of(exponential(rng, weather.good_s));
            let bad = match weather.bad {
                Periods::Exponential => exponential(rng, weather.bad_s),
                Periods::Uniform => 2.0 * weather.bad_s * rng.unit(),
                Periods::Constant => weather.bad_s,
            };
            self.next_good = self.good_until + Tick::of(bad);
        }
    }
}

#[derive(Clone, Debug)]
struct Queue {
    frames: VecDeque<Crossing>,
    /// Whose channel its frames cross.
    mobile: u32,
}

/// The cell and its stations.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    number: u32,
    bits_per_s: f64,
    overhead: Tick,
    weather: TwoStateChannel,
    /// Which stations are the base.
    base: Vec<bool>,
    channels: BTreeMap<u32, Channel>,
    queues: Vec<Queue>,
    by_pair: BTreeMap<(u32, u32), usize>,
    /// Queues that have something, in turn.
    waiting: VecDeque<usize>,
    /// The frame under way, and whether it gets through.
    sending: Option<(usize, bool)>,
    asked: u64,
    /// Airtime taken, that of lost frames included.
    pub(crate) held: Tick,
    /// Frames for which there was no room.
    pub(crate) lost: u64,
}

impl Cell {
    pub(crate) fn new(
        number: u32,
        bits_per_s: f64,
        overhead_s: f64,
        weather: TwoStateChannel,
        base: Vec<bool>,
    ) -> Cell {
        Cell {
            number,
            bits_per_s,
            overhead: Tick::of(overhead_s),
            weather,
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

    /// Whether that queue's channel is good at `now`, until when, and when it will be if not.
    fn channel(&mut self, queue: usize, now: Tick, rng: &mut Rng) -> Channel {
        if self.weather.bad_s <= 0.0 {
            return Channel { good_from: Tick::ZERO, good_until: Tick::MAX, next_good: Tick::MAX };
        }
        let start = Channel { good_from: Tick::ZERO, good_until: Tick::ZERO, next_good: Tick::ZERO };
        let channel = self.channels.entry(self.queues[queue].mobile).or_insert(start);
        channel.advance(now, &self.weather, rng);
        *channel
    }

    /// Sends the next frame whose channel is good, or waits for the first one that gets good.
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
