//! A run of a part of a network that can go on, with marks to count from.

use remora_model::Network;

use super::super::run::{Passage, TooMuch};
use super::super::selection::Selection;
use super::super::series::Tail;
use super::super::simulation::{Span, World};

/// Independent runs of one network.
pub(super) const REPLICATIONS: u64 = 8;

/// The random numbers of a replication: `base` sets apart the purposes, `number` the replications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed {
    pub base: u64,
    pub number: u64,
}

impl Seed {
    fn get(self) -> u64 {
        self.base.wrapping_mul(1_000_003).wrapping_add(self.number)
    }
}

/// A run from an empty network, without end.
pub struct Replication<'a> {
    world: World<'a>,
    /// Counts at the last calls of [`Replication::advance`], the latest last.
    marks: Vec<Counts>,
    /// Whether it can go on.
    open: bool,
}

/// Counts since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) seconds: f64,
    pub(super) passages: Vec<Passage>,
    /// Packets out of each medium and gateway.
    pub(super) crossed: Vec<u64>,
    pub(super) forwarded: Vec<u64>,
    pub(super) held_s: Vec<f64>,
    /// Blocks of each copy.
    pub(super) blocks: Vec<u64>,
}

/// Counts at the ends of a part of a run.
pub(super) struct Window {
    pub(super) from: Counts,
    pub(super) to: Counts,
}

impl Window {
    pub(super) fn seconds(&self) -> f64 {
        self.to.seconds - self.from.seconds
    }
}

/// The packets of all flows in a run without its start.
pub(super) struct SteadyPart {
    from: Vec<Passage>,
    to: Vec<Passage>,
}

impl SteadyPart {
    /// Packets of a flow that passed an element of its route, and the sum of their times there.
    pub(super) fn passed(&self, flow: usize, element: usize) -> (u64, f64) {
        let (from, to) = (self.from[flow].passed[element], self.to[flow].passed[element]);
        (to.packets - from.packets, to.sum_s - from.sum_s)
    }
}

/// The start of a run, in which queues fill, is at least this share of it.
const START: f64 = 0.2;
/// A window is at least this share of the run.
const WINDOW_LEAST: f64 = 0.25;

impl<'a> Replication<'a> {
    pub fn new(network: &'a Network, selection: &Selection, seed: Seed) -> Result<Replication<'a>, TooMuch> {
        let world = World::new(network, selection, Span::ENDLESS, seed.get())?;
        Ok(Replication { world, marks: Vec::new(), open: true })
    }

    /// Goes on for so many events, unless `expired` says that there is no time left.
    pub fn advance(&mut self, events: u64, expired: &dyn Fn() -> bool) {
        if self.open {
            self.marks.push(self.counts());
            self.open = self.world.advance(events, expired);
        }
    }

    pub fn events(&self) -> u64 {
        self.world.run.events
    }

    /// Seconds of network time.
    pub fn seconds(&self) -> f64 {
        self.world.seconds()
    }

    fn counts(&self) -> Counts {
        let run = &self.world.run;
        Counts {
            seconds: self.world.seconds(),
            passages: run.passages.clone(),
            crossed: run.crossed.clone(),
            forwarded: run.forwarded.clone(),
            held_s: self.world.held_s(),
            blocks: self.world.copies().map(|(intervals, _)| intervals.count()).collect(),
        }
    }

    /// The counts from the latest mark that leaves enough of the run.
    pub(super) fn window(&self) -> Window {
        let to = self.counts();
        let early = |mark: &&Counts| to.seconds - mark.seconds >= WINDOW_LEAST * to.seconds;
        let from = self.marks.iter().rev().find(early).cloned();
        let from = from.unwrap_or_else(|| Counts { seconds: 0.0, ..zeroed(&to) });
        Window { from, to }
    }

    /// The run from the first mark behind its start.
    pub(super) fn steady_part(&self) -> SteadyPart {
        let Counts { seconds, passages: to, .. } = self.counts();
        let behind = |mark: &&Counts| mark.seconds >= START * seconds;
        let from = self.marks.iter().find(behind).map(|mark| mark.passages.clone());
        let from = from.unwrap_or_else(|| zeroed(&self.counts()).passages);
        SteadyPart { from, to }
    }

    /// The whole run.
    pub(super) fn passages(&self) -> &[Passage] {
        &self.world.run.passages
    }

    pub(super) fn flow(&self, flow: usize) -> Option<[Tail; 2]> {
        self.world.run.flows.get(flow)?.tails()
    }

    pub(super) fn medium(&self, medium: usize) -> Option<[Tail; 2]> {
        self.world.run.media.get(medium)?.tails()
    }

    pub(super) fn gateway(&self, gateway: usize) -> Option<[Tail; 2]> {
        self.world.run.gateways.get(gateway)?.tails()
    }

    /// The 95th percentile of the time in a gateway.
    pub(super) fn gateway_p95(&self, gateway: usize) -> Option<f64> {
        self.world.run.gateways.get(gateway)?.p95()
    }

    /// Times between blocks, and response times of blocks.
    pub(super) fn copy(&self, copy: usize) -> Option<[[Tail; 2]; 2]> {
        let (intervals, responses) = self.world.copies().nth(copy)?;
        Some([intervals.tails()?, responses.tails()?])
    }
}

fn zeroed(of: &Counts) -> Counts {
    let passage = |p: &Passage| Passage { passed: vec![Default::default(); p.passed.len()], ..Passage::default() };
    Counts {
        seconds: 0.0,
        passages: of.passages.iter().map(passage).collect(),
        crossed: vec![0; of.crossed.len()],
        forwarded: vec![0; of.forwarded.len()],
        held_s: vec![0.0; of.held_s.len()],
        blocks: vec![0; of.blocks.len()],
    }
}
