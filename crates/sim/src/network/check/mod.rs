//! What the model and the simulation are held to: topologies that nobody chose, drawn from a seed
//! within the model's stated bands, and the closed forms that the simulation itself must meet.

mod draw;

use remora_model::{Network, Reason, Topology};
use serde::Serialize;

use super::{Comparison, Options, Simulated, TooMuch, What, run};

pub use draw::Submodel;

/// A case is run longer until its means are this sure, as a share of them.
const SURE: f64 = 0.015;
/// Or until it has taken so many events.
const EVENTS: u64 = 24_000_000;
/// Packets and blocks of the first run.
const FIRST: f64 = 60_000.0;
/// Draws at most to find a case within the bands.
const DRAWS: usize = 10_000;

/// A topology that was drawn.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is about.
    pub submodel: Submodel,
    /// Whether a file is copied in it.
    pub copies: bool,
    /// Which of its kind.
    pub number: u64,
    /// The network.
    pub topology: Topology,
}

/// What became of a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The case: submodel, flows or copy, number.
    pub case: String,
    /// The figures of flows and copies, from both.
    pub comparison: Comparison,
    /// Events that it took.
    pub events: u64,
}

impl Case {
    /// Case `number` of its kind in the grid of `seed`: the first draw that the model says it holds
    /// for.
    pub fn draw(submodel: Submodel, copies: bool, seed: u64, number: u64) -> Case {
        let mut rng = remora_base::Rng::stream(seed, &format!("{submodel:?} {copies} {number}"));
        let mut topology = draw::topology(submodel, copies, &mut rng);
        for _ in 0..DRAWS {
            if Network::new(topology.clone()).is_ok_and(|n| within(&n)) {
                break;
            }
            topology = draw::topology(submodel, copies, &mut rng);
        }
        Case { submodel, copies, number, topology }
    }

    /// Solves and simulates it, until chance is small.
    pub fn run(&self) -> Result<Verdict, TooMuch> {
        let case = format!("{} {} {}", self.submodel, if self.copies { "copy" } else { "delay" }, self.number);
        let Ok(network) = Network::new(self.topology.clone()) else {
            return Ok(Verdict { case, comparison: Comparison { lines: Vec::new() }, events: 0 });
        };
        let report = network.solve();
        let packets: f64 = report.flows.iter().map(|f| f.packets_per_s).sum();
        let blocks: f64 = report.copies.iter().filter_map(|c| c.outcome.value()).map(|o| o.bits_per_s).sum();
        let block_bits = self.topology.copies.first().map_or(1.0, |c| c.block_bytes as f64 * 8.0);
        let busiest = packets.max(blocks / block_bits).max(1e-3);
        let mut options = Options { seconds: FIRST / busiest };
        let (mut runs, mut seed) = (Vec::new(), self.number);
        loop {
            runs.push(run(&network, &options, seed)?);
            let simulated = Simulated::of(&runs);
            let mut comparison = Comparison::of(&self.topology, &report, &simulated);
            let about = if self.copies { What::Copy } else { What::Flow };
            comparison.lines.retain(|l| l.what == about);
            if simulated.events > EVENTS || comparison.lines.iter().all(|l| l.sure(SURE)) {
                return Ok(Verdict { case, comparison, events: simulated.events });
            }
            seed += 1_000_000;
            options.seconds *= 2.0;
        }
    }
}

/// Whether the model says that it holds for all of the network.
fn within(network: &Network) -> bool {
    let report = network.solve();
    let holds = |reasons: &[Reason]| reasons.iter().all(|r| *r == Reason::BesideCopy);
    let flows = report.flows.iter().all(|f| holds(f.delay_s.outside()));
    flows && report.copies.iter().all(|c| holds(c.outcome.outside()))
}
