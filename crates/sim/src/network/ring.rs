//! A token ring. The token takes `walk` from one station to the next; a station that holds it sends
//! by the ring's discipline. While no station is backlogged the token's position is calculated.

use std::collections::{BTreeSet, VecDeque};

use remora_model::ring::Discipline;

use super::event::Tick;
use super::event::{Crossing, Event, Plan};

/// Capacity of a station's queue in packets.
const QUEUE_MAX: usize = 100_000;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Token {
    /// Left this station at that time.
    Walks { from: u32, since: Tick },
    /// Held by this station, which may send `more` packets.
    Held { by: u32, more: usize },
}

#[derive(Clone, Debug)]
pub(crate) struct Ring {
    number: u32,
    bits_per_s: f64,
    walk: Tick,
    discipline: Discipline,
    stations: Vec<VecDeque<Crossing>>,
    waiting: BTreeSet<u32>,
    token: Token,
    /// Where and when the token is expected; earlier timers are stale.
    expected: Option<(Tick, u32)>,
    asked: u64,
    /// Time of transmissions.
    pub(crate) held: Tick,
    /// Packets dropped at a full queue.
    pub(crate) lost: u64,
}

impl Ring {
    pub(crate) fn new(number: u32, bits_per_s: f64, walk_s: f64, discipline: Discipline, stations: usize) -> Ring {
        Ring {
            number,
            bits_per_s,
            walk: Tick::of(walk_s),
            discipline,
            stations: vec![VecDeque::new(); stations],
            waiting: BTreeSet::new(),
            token: Token::Walks { from: 0, since: Tick::ZERO },
            expected: None,
            asked: 0,
            held: Tick::ZERO,
            lost: 0,
        }
    }

    pub(crate) fn offer(&mut self, now: Tick, packet: Crossing, plan: &mut Plan) {
        let Some(queue) = self.stations.get_mut(packet.from as usize) else { return };
        if queue.len() >= QUEUE_MAX {
            self.lost += 1;
            return;
        }
        queue.push_back(packet);
        if self.waiting.insert(packet.from) {
            self.expect(now, plan);
        }
    }

    /// Distance between stations in the token's direction.
    fn distance(&self, from: u32, to: u32) -> u64 {
        let n = self.stations.len().max(1) as u64;
        (u64::from(to) + n - u64::from(from) % n) % n
    }

    /// Sets a timer for the token's arrival at a backlogged station.
    fn expect(&mut self, now: Tick, plan: &mut Plan) {
        let Token::Walks { from, since } = self.token else { return };
        let n = self.stations.len().max(1) as u64;
        // It reaches the next station first, and has passed some since.
        let passed = now.since(since).steps(self.walk).max(1);
        let at = ((u64::from(from) + passed) % n) as u32;
        let next = self.waiting.range(at..).next().or_else(|| self.waiting.first()).copied();
        let Some(next) = next else { return };
        // Without a walk it is everywhere at once, and arrives now.
        let arrives = since + self.walk.times(passed + self.distance(at, next));
        let expected = (arrives.max(now), next);
        if self.expected != Some(expected) {
            self.expected = Some(expected);
            self.asked += 1;
            plan.at(expected.0, Event::Wakes(self.number, self.asked));
        }
    }

    pub(crate) fn wake(&mut self, now: Tick, asked: u64, plan: &mut Plan) {
        if asked != self.asked {
            return;
        }
        match self.token {
            Token::Walks { .. } => {
                let Some((_, station)) = self.expected.take() else { return };
                let waiting = self.stations[station as usize].len();
                let may = match self.discipline {
                    Discipline::Exhaustive => usize::MAX,
                    Discipline::Gated => waiting,
                    Discipline::OneLimited => 1,
                };
                self.send(now, station, may, plan);
            }
            Token::Held { by, more } => self.sent(now, by, more, plan),
        }
    }

    fn send(&mut self, now: Tick, by: u32, may: usize, plan: &mut Plan) {
        let Some(packet) = self.stations[by as usize].front() else { return };
        let service = Tick::of(packet.packet.bits / self.bits_per_s);
        self.held += service;
        self.token = Token::Held { by, more: may.saturating_sub(1) };
        self.asked += 1;
        plan.at(now + service, Event::Wakes(self.number, self.asked));
    }

    fn sent(&mut self, now: Tick, by: u32, more: usize, plan: &mut Plan) {
        if let Some(packet) = self.stations[by as usize].pop_front() {
            let travel = self.walk.times(self.distance(packet.from, packet.to));
            plan.at(now + travel, Event::Crossed(packet.packet));
        }
        let empty = self.stations[by as usize].is_empty();
        if !empty && more > 0 {
            self.send(now, by, more, plan);
            return;
        }
        if empty {
            self.waiting.remove(&by);
        }
        self.token = Token::Walks { from: by, since: now };
        self.expect(now, plan);
    }
}
