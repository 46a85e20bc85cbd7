//! The length of a run, its results, their combination, and their comparison with the model.

use remora_model::{NEAR, Network, Reason, Report, Route, Topology};
use serde::Serialize;

use super::series::{Series, Stat};

/// Warm-up as a share of the measured time, in which queues fill.
const WARM_UP: f64 = 0.2;

/// Length of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Measured seconds of network time (above 0, to 1e6); the warm-up precedes them.
    pub seconds: f64,
}

impl Options {
    pub fn warm_up_s(&self) -> f64 {
        self.seconds * WARM_UP
    }
}

/// A network too large to simulate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooMuch {
    /// More stations than fit in memory.
    #[error("{stations} stations are too many to simulate; {most} are possible")]
    Stations { stations: u64, most: u64 },
    /// More events than feasible.
    #[error("more than {most} events: simulate less time")]
    Events { most: u64 },
}

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Run {
    seconds: f64,
    pub(super) events: u64,
    pub(super) media: Vec<Series>,
    pub(super) held_s: Vec<f64>,
    pub(super) lost: Vec<u64>,
    pub(super) carried_bits: Vec<f64>,
    /// Times in each gateway: of flows' packets, or of copies' if there are no flows.
    pub(super) gateways: Vec<Series>,
    /// Packets out of each medium and gateway, of flows and copies.
    pub(super) crossed: Vec<u64>,
    pub(super) forwarded: Vec<u64>,
    pub(super) flows: Vec<Series>,
    /// The packets of each flow, place by place.
    pub(super) passages: Vec<Passage>,
    /// Times between blocks, and response times of blocks.
    pub(super) copies: Vec<(Series, Series)>,
}

/// The packets of a flow: how many were generated, lost, and passed its sender's processor and each
/// element of its route, and the time that they took.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Passage {
    pub(super) generated: u64,
    /// By element; 0 is the processor.
    pub(super) passed: Vec<Passed>,
}

/// The packets that passed one element.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Passed {
    pub(super) packets: u64,
    /// Packets given up there after sixteen collisions.
    pub(super) lost: u64,
    pub(super) sum_s: f64,
}

impl Passage {
    pub(super) fn lose(&mut self, element: usize) {
        self.passed.get_mut(element).into_iter().for_each(|passed| passed.lost += 1);
    }

    pub(super) fn pass(&mut self, element: usize, seconds: f64) {
        if let Some(passed) = self.passed.get_mut(element) {
            passed.packets += 1;
            passed.sum_s += seconds;
        }
    }
}

/// The combined result of all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Simulated {
    /// Measured seconds of network time, of all seeds.
    pub seconds: f64,
    pub events: u64,
    pub media: Vec<MediumRun>,
    /// Time in each gateway.
    pub gateways: Vec<Option<Stat>>,
    /// End-to-end time of each flow, without the stations' software.
    pub flows: Vec<Option<Stat>>,
    pub copies: Vec<Option<CopyRun>>,
}

/// A medium in a simulation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MediumRun {
    /// Time across it of the packets of all flows; `None` without any.
    pub delay_s: Option<Stat>,
    /// Share of time that it is busy, including gaps, collisions and overheads; for a switch the
    /// sum of all ports, which may exceed 1.
    pub busy: f64,
    pub carried_bits_per_s: f64,
    /// Packets given up or dropped at full queues.
    pub lost: u64,
}

/// A copy in a simulation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CopyRun {
    pub blocks_per_s: f64,
    /// Time between blocks.
    pub interval_s: Stat,
    /// Response time of a block.
    pub response_s: Stat,
}

impl Run {
    pub(super) fn new(network: &Network, seconds: f64) -> Run {
        let topology = network.topology();
        let series = |n: usize| vec![Series::new(); n];
        let passage = |route: &Route| Passage {
            passed: vec![Passed::default(); 1 + route.hops.len() + route.gateways.len()],
            ..Passage::default()
        };
        Run {
            seconds,
            events: 0,
            media: series(topology.media.len()),
            held_s: vec![0.0; topology.media.len()],
            lost: vec![0; topology.media.len()],
            carried_bits: vec![0.0; topology.media.len()],
            gateways: series(topology.gateways.len()),
            crossed: vec![0; topology.media.len()],
            forwarded: vec![0; topology.gateways.len()],
            flows: series(topology.flows.len()),
            passages: network.flow_routes().iter().map(passage).collect(),
            copies: vec![(Series::new(), Series::new()); topology.copies.len()],
        }
    }
}

impl Simulated {
    /// Combines runs of the same network with different seeds.
    pub fn of(runs: &[Run]) -> Simulated {
        let seconds: f64 = runs.iter().map(|r| r.seconds).sum();
        let each = |of: fn(&Run) -> &[Series]| -> Vec<Option<Stat>> {
            let count = runs.first().map_or(0, |r| of(r).len());
            (0..count).map(|i| Series::together(&runs.iter().map(|r| &of(r)[i]).collect::<Vec<_>>())).collect()
        };
        let media = each(|r| &r.media).into_iter().enumerate().map(|(i, delay_s)| MediumRun {
            delay_s,
            busy: runs.iter().map(|r| r.held_s[i]).sum::<f64>() / seconds,
            carried_bits_per_s: runs.iter().map(|r| r.carried_bits[i]).sum::<f64>() / seconds,
            lost: runs.iter().map(|r| r.lost[i]).sum(),
        });
        let copies = (0..runs.first().map_or(0, |r| r.copies.len())).map(|i| {
            let interval_s = Series::together(&runs.iter().map(|r| &r.copies[i].0).collect::<Vec<_>>())?;
            let response_s = Series::together(&runs.iter().map(|r| &r.copies[i].1).collect::<Vec<_>>())?;
            Some(CopyRun { blocks_per_s: 1.0 / interval_s.mean, interval_s, response_s })
        });
        Simulated {
            seconds,
            events: runs.iter().map(|r| r.events).sum(),
            media: media.collect(),
            gateways: each(|r| &r.gateways),
            flows: each(|r| &r.flows),
            copies: copies.collect(),
        }
    }
}

/// The subject of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Mean time across a medium.
    Medium,
    /// Mean time in a gateway.
    Gateway,
    /// Mean end-to-end time of a flow.
    Flow,
    /// Time of a file copy.
    Copy,
}

/// One result of both.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ComparisonLine {
    pub what: Subject,
    pub name: String,
    /// The model's, in seconds; `None` where it has none, such as for saturated queues.
    pub model_s: Option<f64>,
    /// Reasons to doubt it.
    pub outside: Vec<Reason>,
    /// The simulation's mean in seconds; `None` if nothing arrived.
    pub simulated_s: Option<f64>,
    /// Half-width of the 95 % confidence interval, in seconds.
    pub within_s: Option<f64>,
    /// The simulation's 95th percentile, in seconds; none for a copy.
    pub p95_s: Option<f64>,
    /// Model over simulation, minus 1.
    pub off: Option<f64>,
}

impl ComparisonLine {
    /// Whether the model claims validity and is off by more than [`NEAR`] and by more than chance
    /// explains.
    pub fn wrong(&self) -> bool {
        let chance = self.within_s.zip(self.simulated_s).map_or(0.0, |(w, s)| w / s);
        self.outside.is_empty() && self.off.is_some_and(|off| off.abs() > NEAR + chance)
    }

    /// Whether the simulation's relative confidence interval is below `share`.
    pub fn sure(&self, share: f64) -> bool {
        self.within_s.zip(self.simulated_s).is_some_and(|(within, mean)| within <= share * mean)
    }

    /// Whether both agree.
    pub fn near(&self) -> bool {
        self.off.is_some_and(|off| off.abs() <= NEAR)
    }

    fn new(
        what: Subject,
        name: String,
        model_s: Option<f64>,
        outside: &[Reason],
        stat: Option<Stat>,
    ) -> ComparisonLine {
        let simulated_s = stat.map(|s| s.mean);
        let off = model_s.zip(simulated_s).map(|(m, s)| m / s - 1.0);
        let (within_s, p95_s) = (stat.and_then(|s| s.within), stat.map(|s| s.p95));
        ComparisonLine { what, name, model_s, outside: outside.to_vec(), simulated_s, within_s, p95_s, off }
    }
}

/// All results of both.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Media, gateways, flows, copies.
    pub lines: Vec<ComparisonLine>,
}

impl Comparison {
    /// Compares `report` and `run`, both of `topology`.
    pub fn of(topology: &Topology, report: &Report, run: &Simulated) -> Comparison {
        let mut lines = Vec::new();
        for (model, run) in report.media.iter().zip(&run.media) {
            if let Some(delay) = &model.delay_s {
                let (value, outside) = (delay.value().copied(), delay.outside());
                lines.push(ComparisonLine::new(Subject::Medium, model.name.clone(), value, outside, run.delay_s));
            }
        }
        for (model, run) in report.gateways.iter().zip(&run.gateways).filter(|(m, _)| m.packets_per_s > 0.0) {
            let (value, outside) = (model.delay_s.value().copied(), model.delay_s.outside());
            lines.push(ComparisonLine::new(Subject::Gateway, model.name.clone(), value, outside, *run));
        }
        for (model, run) in report.flows.iter().zip(&run.flows).filter(|(m, _)| m.packets_per_s > 0.0) {
            let (name, value) = (format!("{} > {}", model.from, model.to), model.delay_s.value().copied());
            lines.push(ComparisonLine::new(Subject::Flow, name, value, model.delay_s.outside(), *run));
        }
        for ((model, run), copy) in report.copies.iter().zip(&run.copies).zip(&topology.copies) {
            // A file that fits into the window takes a round.
            let blocks = (copy.file_bytes as f64 / copy.block_bytes as f64).max(f64::from(copy.under_way()));
            let name = format!("{} > {}", model.from, model.to);
            let value = model.outcome.value().map(|o| o.seconds);
            let mut line = ComparisonLine::new(Subject::Copy, name, value, model.outcome.outside(), None);
            if let Some(run) = run {
                let mean = blocks * run.interval_s.mean;
                line.simulated_s = Some(mean);
                line.within_s = run.interval_s.within.map(|w| w * blocks);
                line.off = value.map(|v| v / mean - 1.0);
            }
            lines.push(line);
        }
        Comparison { lines }
    }
}
