//! Comparison of model and simulation.

use remora_model::{Reason, Report, Topology};
use serde::Serialize;

use super::run::Simulated;
use super::series::Stat;

/// Model and simulation agree within this relative difference.
pub const NEAR: f64 = 0.1;

/// The subject of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
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
pub struct Line {
    pub what: What,
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

impl Line {
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

    fn new(what: What, name: String, model_s: Option<f64>, outside: &[Reason], stat: Option<Stat>) -> Line {
        let simulated_s = stat.map(|s| s.mean);
        let off = model_s.zip(simulated_s).map(|(m, s)| m / s - 1.0);
        let (within_s, p95_s) = (stat.and_then(|s| s.within), stat.map(|s| s.p95));
        Line { what, name, model_s, outside: outside.to_vec(), simulated_s, within_s, p95_s, off }
    }
}

/// All results of both.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Media, gateways, flows, copies.
    pub lines: Vec<Line>,
}

impl Comparison {
    /// Compares `report` and `run`, both of `topology`.
    pub fn of(topology: &Topology, report: &Report, run: &Simulated) -> Comparison {
        let mut lines = Vec::new();
        for (model, run) in report.media.iter().zip(&run.media) {
            if let Some(delay) = &model.delay_s {
                let (value, outside) = (delay.value().copied(), delay.outside());
                lines.push(Line::new(What::Medium, model.name.clone(), value, outside, run.delay_s));
            }
        }
        for (model, run) in report.gateways.iter().zip(&run.gateways).filter(|(m, _)| m.packets_per_s > 0.0) {
            let (value, outside) = (model.delay_s.value().copied(), model.delay_s.outside());
            lines.push(Line::new(What::Gateway, model.name.clone(), value, outside, *run));
        }
        for (model, run) in report.flows.iter().zip(&run.flows).filter(|(m, _)| m.packets_per_s > 0.0) {
            let (name, value) = (format!("{} > {}", model.from, model.to), model.delay_s.value().copied());
            lines.push(Line::new(What::Flow, name, value, model.delay_s.outside(), *run));
        }
        for ((model, run), copy) in report.copies.iter().zip(&run.copies).zip(&topology.copies) {
            // A file that fits into the window takes a round.
            let blocks = (copy.file_bytes as f64 / copy.block_bytes as f64).max(f64::from(copy.under_way()));
            let name = format!("{} > {}", model.from, model.to);
            let value = model.outcome.value().map(|o| o.seconds);
            let mut line = Line::new(What::Copy, name, value, model.outcome.outside(), None);
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
