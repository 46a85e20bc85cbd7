//! Validation of the model by simulation: topologies drawn at random from all that a user could
//! enter. Those for which the model claims validity are simulated until the means are well known.

mod draw;

use remora_model::{Copy, CopyReport, Kind, Medium, Network, Report, Topology};
use serde::Serialize;

use super::{Comparison, ComparisonLine, NEAR, Options, Simulated, Subject, TooMuch, run};

pub use draw::Submodel;

/// A case runs until the relative confidence intervals of its means are below this, so that the
/// verdict does not depend on chance.
const SURE: f64 = 0.035;
/// Or until it has taken this many events.
const EVENTS: u64 = 8_000_000;
/// Packets or blocks of the first run.
const FIRST: f64 = 30_000.0;
/// Maximum of packets of all kinds in the first run.
const FIRST_ALL: f64 = 150_000.0;
/// Minimum of a copy's rounds in the first run.
const ROUNDS: f64 = 50.0;
/// Minimum of good and bad periods in the first run.
const PERIODS: f64 = 3000.0;
/// Minimum of packets at a switch's busiest port in the first run.
const PORT: f64 = 10_000.0;
/// Minimum of packets of a half-busy queue in the first run: the memory of a queue grows with the
/// inverse square of its idle share.
const QUEUE: f64 = 40_000.0;
/// Cases whose first run has more packets are infeasible, and are not drawn.
const AFFORDABLE: f64 = 2e6;
/// Maximum of draws for a case within the bands.
const DRAWS: u64 = 10_000;

/// A random topology.
#[derive(Clone, Debug)]
pub struct Case {
    pub submodel: Submodel,
    /// Whether it has a file copy.
    pub copies: bool,
    /// Its number within its kind.
    pub number: u64,
    pub topology: Topology,
    /// Draws until the model claimed validity.
    pub draws: u64,
}

/// The result of a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The case: submodel, flows or copy, number.
    pub case: String,
    /// Its kind: submodel, flows or copy.
    pub kind: String,
    /// Draws until the model claimed validity.
    pub draws: u64,
    /// The results of flows or copies, from both.
    pub comparison: Comparison,
    pub events: u64,
    /// Measured seconds of network time.
    pub seconds: f64,
    /// The network, to run it alone.
    #[serde(skip)]
    pub topology: Topology,
}

impl Verdict {
    /// Whether the model is off by more than [`NEAR`] anywhere.
    pub fn beyond(&self) -> bool {
        !self.comparison.lines.iter().all(ComparisonLine::near)
    }
}

impl Case {
    /// Case `number` of its kind under `seed`: the first draw for which the model claims validity.
    pub fn draw(submodel: Submodel, copies: bool, seed: u64, number: u64) -> Case {
        let mut rng = remora_base::Rng::stream(seed, &format!("{submodel:?} {copies} {number}"));
        let mut draws = 0;
        loop {
            let topology = draw::topology(submodel, copies, &mut rng);
            let case = Case { submodel, copies, number, topology, draws: draws + 1 };
            let report = Network::new(case.topology.clone()).map(|n| n.solve());
            let affordable = report.as_ref().is_ok_and(|r| case.affordable(r));
            draws += u64::from(affordable);
            if affordable && report.is_ok_and(|r| case.within(&r)) || draws == DRAWS {
                return case;
            }
        }
    }

    /// Whether the model claims validity for all that is compared.
    fn within(&self, report: &Report) -> bool {
        if self.copies {
            !report.copies.is_empty() && report.copies.iter().all(|c| c.outcome.outside().is_empty())
        } else {
            !report.flows.is_empty() && report.flows.iter().all(|f| f.delay_s.outside().is_empty())
        }
    }

    /// Solves and simulates it until the means are well known.
    pub fn run(&self) -> Result<Verdict, TooMuch> {
        let kind = format!("{}, {}", self.submodel, if self.copies { "copies" } else { "delay" });
        let case = format!("{kind} {}", self.number);
        let (draws, topology) = (self.draws, self.topology.clone());
        let verdict = |lines, events, seconds| {
            let comparison = Comparison { lines };
            Verdict { case, kind, draws, comparison, events, seconds, topology }
        };
        let Ok(network) = Network::new(self.topology.clone()) else {
            return Ok(verdict(Vec::new(), 0, 0.0));
        };
        let report = network.solve();
        let mut options = Options { seconds: self.first(&report).0 };
        let (mut runs, mut seed) = (Vec::new(), self.number);
        loop {
            runs.push(run(&network, &options, seed)?);
            let simulated = Simulated::of(&runs);
            let mut lines = Comparison::of(&self.topology, &report, &simulated).lines;
            lines.retain(|l| l.what == self.about());
            if simulated.events > EVENTS || lines.iter().all(settled) {
                return Ok(verdict(lines, simulated.events, simulated.seconds));
            }
            seed += 1_000_000;
            options.seconds *= 2.0;
        }
    }

    fn about(&self) -> Subject {
        if self.copies { Subject::Copy } else { Subject::Flow }
    }

    /// Seconds of the first run, and packets of all kinds a second: enough packets or blocks of
    /// what is compared, and a bounded number of packets of all kinds.
    fn first(&self, report: &Report) -> (f64, f64) {
        let flows: f64 = report.flows.iter().map(|f| f.packets_per_s).sum();
        let (mut blocks, mut packets) = (0.0, flows);
        for (copy, copied) in self.topology.copies.iter().zip(&report.copies) {
            let rate = copied.outcome.value().map_or(0.0, |o| o.bits_per_s / (copy.block_bytes as f64 * 8.0));
            blocks += rate;
            packets += rate * (copy.data.packets + copy.reply.packets);
        }
        let compared = if self.copies { blocks } else { flows };
        let first = (FIRST / compared.max(1e-3)).min(FIRST_ALL / packets.max(1e-3));
        let most = [self.rounds_s(report), self.periods_s(), self.ports_s(), queues_s(report)];
        (most.into_iter().fold(first, f64::max), packets)
    }

    /// Seconds of a copy's first rounds, in which all blocks begin at once: the warm-up must cover
    /// them.
    fn rounds_s(&self, report: &Report) -> f64 {
        let round = |(copy, copied): (&Copy, &CopyReport)| {
            let outcome = copied.outcome.value()?;
            Some(f64::from(copy.under_way()) * copy.block_bytes as f64 * 8.0 / outcome.bits_per_s)
        };
        ROUNDS * self.topology.copies.iter().zip(&report.copies).filter_map(round).fold(0.0, f64::max)
    }

    /// Seconds that contain many good and bad periods.
    fn periods_s(&self) -> f64 {
        let of = |m: &Medium| match m.kind {
            Kind::Wifi { channel: states, .. } if states.bad_s > 0.0 => PERIODS * (states.good_s + states.bad_s),
            _ => 0.0,
        };
        self.topology.media.iter().map(of).fold(0.0, f64::max)
    }

    /// Seconds until each port of a switch has handled many packets: queues that begin empty must
    /// fill.
    fn ports_s(&self) -> f64 {
        let switch = self.topology.media.iter().any(|m| matches!(m.kind, Kind::Switch { .. }));
        let most = self.topology.flows.iter().map(|f| f.rate.get()).fold(0.0, f64::max);
        if switch && most > 0.0 { PORT / most } else { 0.0 }
    }

    /// Whether the means become well known within a feasible number of events.
    fn affordable(&self, report: &Report) -> bool {
        let (seconds, packets) = self.first(report);
        seconds * packets < AFFORDABLE
    }
}

/// Seconds until the busiest medium or gateway has forgotten its start many times.
fn queues_s(report: &Report) -> f64 {
    let seconds = |busy: f64, packets_per_s: f64| {
        let left = 2.0 * (1.0 - busy).max(1e-3);
        if packets_per_s > 0.0 { busy * QUEUE / (left * left * packets_per_s) } else { 0.0 }
    };
    let media = report.media.iter().filter_map(|m| Some((m.busy?, m.offered_packets_per_s)));
    let gateways = report.gateways.iter().map(|g| (g.utilisation, g.packets_per_s));
    media.chain(gateways).map(|(busy, packets_per_s)| seconds(busy, packets_per_s)).fold(0.0, f64::max)
}

/// Whether a result is known well enough to judge the model.
fn settled(line: &ComparisonLine) -> bool {
    let chance = line.within_s.zip(line.simulated_s).map_or(f64::INFINITY, |(within, mean)| within / mean);
    let off = line.off.map_or(f64::INFINITY, f64::abs);
    line.sure(SURE) && (off - NEAR).abs() > chance
}
