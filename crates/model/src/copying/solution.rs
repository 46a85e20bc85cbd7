//! The rates of all copies beside the flows, by relaxation and bisection.

use super::round::{CopyRound, traffic};
use crate::formula::{Estimate, Reason};
use crate::loads::Loads;
use crate::network::{Hop, Network, Route};
use crate::report::Outcome;
use crate::topology::Kind;

/// Maximum of rounds for each copy: a step is the distance over the number of copies.
const ROUNDS: usize = 12;
/// Relative distance at which the rates have converged.
const SETTLED: f64 = 1e-4;
/// From this utilisation on a place counts as saturated.
const FILLED: f64 = 0.9;
/// A copy below this share of its rate alone is slowed by others.
const HELD_UP: f64 = 0.98;
const HALVINGS: usize = 32;

/// The solution of all copies.
pub(crate) struct Solved {
    /// Blocks a second of each.
    pub(crate) rates: Vec<f64>,
    pub(crate) outcomes: Vec<Estimate<Outcome>>,
    /// Whether the rates converged.
    pub(crate) settled: bool,
}

/// Solves all copies beside the flows' loads `flows`.
pub(crate) fn solve(network: &Network, flows: &Loads) -> Solved {
    let count = network.copies.len();
    let all = |rates: &[f64]| -> Vec<(f64, Estimate<Outcome>)> {
        (0..count).map(|i| one(network, i, others(network, flows, rates, i))).collect()
    };
    let alone: Vec<f64> = all(&vec![0.0; count]).into_iter().map(|(rate, _)| rate).collect();
    let mut solved = Solved { rates: alone.clone(), outcomes: Vec::new(), settled: false };
    for _ in 0..ROUNDS * count.max(1) {
        let found = all(&solved.rates);
        let close = |(old, (new, _)): (&f64, &(f64, _))| (old - new).abs() <= SETTLED * old.max(*new);
        solved.settled = solved.rates.iter().zip(&found).all(close);
        solved.outcomes.clear();
        for (i, (rate, outcome)) in found.into_iter().enumerate() {
            // A full step would make all of them yield and return together.
            solved.rates[i] += (rate - solved.rates[i]) / count as f64;
            let filled = outcome.value().and_then(Outcome::bottleneck).is_some_and(|b| b.busy > FILLED);
            let shared = count > 1 && filled && rate < HELD_UP * alone[i];
            let meets = (0..count).any(|j| j != i && meet(network, i, j));
            solved.outcomes.push(match (shared, meets) {
                (true, _) => outcome.doubt(Reason::SharedBottleneck),
                (false, true) => outcome.doubt(Reason::BesideCopy),
                (false, false) => outcome,
            });
        }
        if solved.settled {
            break;
        }
    }
    solved
}

/// Whether two copies share a place.
fn meet(network: &Network, i: usize, j: usize) -> bool {
    let ways = |i: usize| [&network.copies[i].0, &network.copies[i].1];
    let switch = |medium: usize| matches!(network.topology.media[medium].kind, Kind::Switch { .. });
    let hops = |a: &Hop, b: &Hop| a.medium == b.medium && (!switch(a.medium) || a.from == b.from || a.to == b.to);
    let routes = |a: &Route, b: &Route| {
        a.hops.iter().any(|a| b.hops.iter().any(|b| hops(a, b))) || a.gateways.iter().any(|g| b.gateways.contains(g))
    };
    ways(i).iter().any(|a| ways(j).iter().any(|b| routes(a, b)))
}

/// The loads of the flows and of all copies but `i`.
fn others(network: &Network, flows: &Loads, rates: &[f64], i: usize) -> Loads {
    let mut loads = flows.clone();
    for (j, (there, back)) in network.copies.iter().enumerate().filter(|(j, _)| *j != i) {
        let (data, reply) = traffic(&network.topology.copies[j], rates[j]);
        loads.add(network, there, data);
        loads.add(network, back, reply);
    }
    loads
}

/// The rate and outcome of a copy beside `loads`.
fn one(network: &Network, i: usize, loads: Loads) -> (f64, Estimate<Outcome>) {
    let round = CopyRound { network, copy: &network.topology.copies[i], ways: &network.copies[i], loads: &loads };
    let cells = loads.cells(network);
    let at = |rate: f64| round.pace(&cells, rate);
    let reached = |rate: f64| at(rate).value().map_or(0.0, |(_, pace)| pace.requests_per_s);
    // At a negligible rate the copy meets only the others, which bounds its rate.
    let (mut low, mut high) = (0.0, reached(1e-9));
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if reached(middle) > middle { low = middle } else { high = middle }
    }
    let outcome = at(low.max(1e-9)).map(|(demand, pace)| round.outcome(low.max(1e-9), demand, pace));
    (low, outcome)
}
