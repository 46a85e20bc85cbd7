//! The networks of the analytic model, packet by packet: the same topology, drawn arrivals and
//! sizes, the media's own rules instead of formulas. What a formula says stands beside what
//! happened ([`Comparison`]).
//!
//! Event by event over a heap: shared Ethernet (IEEE 802.3 clause 4, half duplex), token rings,
//! switches, wireless cells with the two-state channel of NFS/W 95, gateways with unbounded
//! buffers, hosts that take their time for each packet, copies with a window. A seed gives the same
//! run on every machine.

pub mod check;
mod clock;
mod compare;
mod copies;
mod draw;
mod ethernet;
mod fifo;
mod media;
mod packet;
mod ring;
mod series;
mod switch;
#[cfg(test)]
mod tests;
mod wifi;
mod world;

use remora_model::Network;
use serde::Serialize;

pub use compare::{Comparison, Line, NEAR, What};
pub use series::Stat;

use series::Series;

/// Of the time that is measured, so much goes before it so that queues fill.
const WARM_UP: f64 = 0.2;

/// How long to run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Seconds of network time that are measured (above 0, to 1e6); a fifth as many go before.
    pub seconds: f64,
}

impl Options {
    /// Seconds that pass before measuring begins.
    pub fn warm_up_s(&self) -> f64 {
        self.seconds * WARM_UP
    }
}

/// Why a network is not simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooMuch {
    /// More stations than there is memory for.
    #[error("{stations} stations are too many to simulate; {most} are possible")]
    Stations {
        /// How many there are.
        stations: u64,
        /// How many there may be.
        most: u64,
    },
    /// More events than anybody waits for.
    #[error("more than {most} events: simulate less time")]
    Events {
        /// How many there may be.
        most: u64,
    },
}

/// What one seed gave.
#[derive(Clone, Debug)]
pub struct Run {
    seconds: f64,
    events: u64,
    media: Vec<Series>,
    held_s: Vec<f64>,
    lost: Vec<u64>,
    carried_bits: Vec<f64>,
    gateways: Vec<Series>,
    flows: Vec<Series>,
    /// From block to block, and each block's own time.
    copies: Vec<(Series, Series)>,
}

/// What all seeds gave.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Simulated {
    /// Seconds of network time that were measured, of all seeds together.
    pub seconds: f64,
    /// Events that it took.
    pub events: u64,
    pub media: Vec<MediumRun>,
    /// Each gateway: time in it.
    pub gateways: Vec<Option<Stat>>,
    /// Each flow: time from end to end, the stations' software not included.
    pub flows: Vec<Option<Stat>>,
    pub copies: Vec<Option<CopyRun>>,
}

/// A medium in a simulation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MediumRun {
    /// Time across it for the packets of all flows; `None` if there were none.
    pub delay_s: Option<Stat>,
    /// Share of the time that it is held, with gaps, collisions and overheads; of a switch, of all
    /// ports together, so that it may be above 1.
    pub busy: f64,
    /// Bits a second that came across.
    pub carried_bits_per_s: f64,
    /// Packets given up, or for which there was no room.
    pub lost: u64,
}

/// A copy in a simulation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CopyRun {
    /// Blocks a second.
    pub blocks_per_s: f64,
    /// The time from block to block.
    pub interval_s: Stat,
    /// The time of a block from its beginning to its reply.
    pub response_s: Stat,
}

/// Runs the network once.
pub fn run(network: &Network, options: &Options, seed: u64) -> Result<Run, TooMuch> {
    world::World::new(network, options, seed)?.run()
}

impl Run {
    fn new(network: &Network, seconds: f64) -> Run {
        let topology = network.topology();
        let series = |n: usize| vec![Series::new(); n];
        Run {
            seconds,
            events: 0,
            media: series(topology.media.len()),
            held_s: vec![0.0; topology.media.len()],
            lost: vec![0; topology.media.len()],
            carried_bits: vec![0.0; topology.media.len()],
            gateways: series(topology.gateways.len()),
            flows: series(topology.flows.len()),
            copies: vec![(Series::new(), Series::new()); topology.copies.len()],
        }
    }
}

impl Simulated {
    /// What runs of the same network, each with a seed of its own, say together.
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
