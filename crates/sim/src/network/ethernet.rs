//! A shared Ethernet (IEEE 802.3 clause 4, half duplex). The rules are those of the emulated one
//! ([`csma`](remora_channel::csma)); this module has the contention. All stations are equally far
//! apart, as on equal cables to a hub.
//!
//! A station that starts within one propagation time of the first start collides with it, so one
//! event resolves each contention, one propagation time after the first start.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use remora_base::Rng;
use remora_channel::csma::{BackOff, Timing};

use super::event::Tick;
use super::event::{Crossing, Event, Plan};

/// Capacity of a station's queue in frames.
const QUEUE_MAX: usize = 100_000;

#[derive(Clone, Debug, Default)]
struct Station {
    queue: VecDeque<Crossing>,
    /// End of the station's back-off.
    ready: Tick,
    back_off: BackOff,
}

#[derive(Clone, Debug)]
pub(crate) struct Ethernet {
    number: u32,
    bits_per_s: f64,
    propagation: Tick,
    timing: Timing,
    stations: Vec<Station>,
    /// Backlogged stations, by when they are ready.
    contenders: BinaryHeap<Reverse<(Tick, u32)>>,
    /// When all stations sense the medium free, including the gap.
    free: Tick,
    /// When the next contention resolves; earlier timers are stale.
    settles: Option<Tick>,
    asked: u64,
    /// Time of frames, gaps and collisions.
    pub(crate) held: Tick,
    /// Frames given up after sixteen attempts, or dropped at a full queue.
    pub(crate) lost: u64,
}

impl Ethernet {
    pub(crate) fn new(number: u32, bits_per_s: f64, propagation_s: f64, stations: usize) -> Ethernet {
        Ethernet {
            number,
            bits_per_s,
            propagation: Tick::of(propagation_s),
            timing: Timing::new(1e12 / bits_per_s, Tick::of(propagation_s).picoseconds()),
            stations: vec![Station::default(); stations],
            contenders: BinaryHeap::new(),
            free: Tick::ZERO,
            settles: None,
            asked: 0,
            held: Tick::ZERO,
            lost: 0,
        }
    }

    pub(crate) fn offer(&mut self, now: Tick, frame: Crossing, plan: &mut Plan) {
        let Some(station) = self.stations.get_mut(frame.from as usize) else { return };
        if station.queue.len() >= QUEUE_MAX {
            self.lost += 1;
            return;
        }
        station.queue.push_back(frame);
        if station.queue.len() == 1 {
            station.ready = station.ready.max(now);
            self.contenders.push(Reverse((station.ready, frame.from)));
            self.plan(plan);
        }
    }

    /// Sets a timer for the next contention.
    fn plan(&mut self, plan: &mut Plan) {
        let first = self.contenders.peek().map(|Reverse((ready, _))| (*ready).max(self.free));
        let settles = first.map(|first| first + self.propagation);
        if let (Some(at), true) = (settles, settles != self.settles) {
            self.asked += 1;
            plan.at(at, Event::Wakes(self.number, self.asked));
        }
        self.settles = settles;
    }

    pub(crate) fn wake(&mut self, asked: u64, rng: &mut Rng, plan: &mut Plan) {
        if asked != self.asked {
            return;
        }
        self.settles = None;
        let Some(Reverse((ready, station))) = self.contenders.pop() else { return };
        let first = ready.max(self.free);
        let mut senders = vec![(first, station)];
        while let Some(Reverse((ready, station))) = self.contenders.peek().copied() {
            let start = ready.max(self.free);
            if !self.timing.collides(first.picoseconds(), start.picoseconds()) {
                break;
            }
            senders.push((start, station));
            self.contenders.pop();
        }
        match senders[..] {
            [(start, station)] => self.send(start, station, plan),
            _ => self.collide(first, &senders, rng, plan),
        }
        self.held += self.free.since(first);
        self.plan(plan);
    }

    fn send(&mut self, start: Tick, sender: u32, plan: &mut Plan) {
        let station = &mut self.stations[sender as usize];
        let Some(frame) = station.queue.pop_front() else { return };
        let end = start + Tick::of(frame.packet.bits / self.bits_per_s);
        station.ready = end + Tick::of_picoseconds(self.timing.gap);
        station.back_off.sent();
        if !station.queue.is_empty() {
            self.contenders.push(Reverse((station.ready, sender)));
        }
        self.free = Tick::of_picoseconds(self.timing.free_after(end.picoseconds()));
        plan.at(end + self.propagation, Event::Crossed(frame.packet));
    }

    fn collide(&mut self, first: Tick, senders: &[(Tick, u32)], rng: &mut Rng, plan: &mut Plan) {
        let starts = [first, senders.get(1).map_or(first, |s| s.0)].map(Tick::picoseconds);
        let mut over = 0;
        for (i, (start, sender)) in senders.iter().enumerate() {
            let end = self.timing.collision_end(start.picoseconds(), i == 0, starts);
            over = over.max(end);
            let station = &mut self.stations[*sender as usize];
            let slots = station.back_off.collided(rng);
            station.ready =
                Tick::of_picoseconds(end) + Tick::of_picoseconds(self.timing.slot).times(slots.unwrap_or(0));
            if slots.is_none() {
                self.lost += 1;
                // A copy's sender retries: its transport detects that the block is lost.
                if let Some(packet) = station.queue.front().map(|f| f.packet).filter(|p| p.block.is_none()) {
                    station.queue.pop_front();
                    plan.at(Tick::of_picoseconds(end), Event::Lost(packet));
                }
            }
            if !station.queue.is_empty() {
                self.contenders.push(Reverse((station.ready, *sender)));
            }
        }
        self.free = Tick::of_picoseconds(self.timing.free_after(over));
    }
}
