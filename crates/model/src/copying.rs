//! Copies in a network: each as a closed network beside the flows and the other copies.
//!
//! A copy's own packets change what the media do to it (its replies contend with its data), so its
//! rate is the fixed point of rate -> what it needs -> rate. More rate never makes it need less, so
//! there is one, and halving an interval finds it.
//!
//! Several copies are solved together, each beside the others' last rates, and take a step towards
//! what they find until they stay where they are. Where two fill the same place any split between
//! them would do as far as this goes; equal ones get equal shares, unequal ones keep the difference
//! of what each gets alone, and both are marked ([`Reason::SharedBottleneck`]).

use crate::cell::Cell;
use crate::formula::{Estimate, Reason};
use crate::mva::{Centre, Closed, PACE, Pace};
use crate::network::{Network, Route};
use crate::quantity::Traffic;
use crate::report::{Outcome, Place};
use crate::solve::Loads;
use crate::topology::Copy;

/// Rounds at most, for each copy: a step is the distance over their number.
const ROUNDS: usize = 12;
/// They stay where they are when none is further than this share from what it finds.
const SETTLED: f64 = 1e-4;
/// From here on a place counts as filled.
const FILLED: f64 = 0.9;
/// A copy that gets less than this share of what it gets alone is held up by others.
const HELD_UP: f64 = 0.98;
/// Halvings of the interval that the rate is in.
const HALVINGS: usize = 32;

/// All copies.
pub(crate) struct Solved {
    /// Blocks a second of each.
    pub(crate) rates: Vec<f64>,
    pub(crate) outcomes: Vec<Estimate<Outcome>>,
    /// Whether the rates stayed where they were at last.
    pub(crate) settled: bool,
}

/// What a copy sends there and back at so many blocks a second.
pub(crate) fn traffic(copy: &Copy, blocks_per_s: f64) -> (Traffic, Traffic) {
    let of = |burst: &crate::topology::Burst| Traffic::of(blocks_per_s * burst.packets, burst.size);
    (of(&copy.data), of(&copy.reply))
}

/// Solves all copies beside the flows, whose loads are `flows`.
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
            // The whole way at once would make all of them yield and come back together.
            solved.rates[i] += (rate - solved.rates[i]) / count as f64;
            let filled = outcome.value().and_then(Outcome::bottleneck).is_some_and(|b| b.busy > FILLED);
            let shared = count > 1 && filled && rate < HELD_UP * alone[i];
            solved.outcomes.push(if shared { outcome.doubt(Reason::SharedBottleneck) } else { outcome });
        }
        if solved.settled {
            break;
        }
    }
    solved
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

/// The rate of a copy beside `loads`, and what comes of it.
fn one(network: &Network, i: usize, loads: Loads) -> (f64, Estimate<Outcome>) {
    let round = Round { network, copy: &network.topology.copies[i], ways: &network.copies[i], loads: &loads };
    let cells = loads.cells(network);
    let at = |rate: f64| round.pace(&cells, rate);
    let reached = |rate: f64| at(rate).value().map_or(0.0, |(_, pace)| pace.requests_per_s);
    // At a rate next to nothing the copy meets only the others: it is no faster than that.
    let (mut low, mut high) = (0.0, reached(1e-9));
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if reached(middle) > middle { low = middle } else { high = middle }
    }
    let outcome = at(low.max(1e-9)).map(|(needs, pace)| round.outcome(low.max(1e-9), needs, pace));
    (low, outcome)
}

/// A block's way round.
struct Round<'a> {
    network: &'a Network,
    copy: &'a Copy,
    ways: &'a (Route, Route),
    loads: &'a Loads,
}

/// Where a block queues, each with its name, and what nothing queues for.
struct Needs {
    names: Vec<String>,
    centres: Vec<Centre>,
    think_s: f64,
}

impl Needs {
    fn queue(&mut self, name: String, demand_s: f64, open: f64) {
        if demand_s > 0.0 {
            self.names.push(name);
            self.centres.push(Centre { demand_s, open });
        }
    }
}

impl Round<'_> {
    /// The pace that the copy would have if it loaded the network with `rate` blocks a second.
    fn pace(&self, cells: &[Cell<'_>], rate: f64) -> Estimate<(Needs, Pace)> {
        let (data, reply) = traffic(self.copy, rate);
        let think_s = self.copy.think.get();
        let mut needs = Estimate::given(Needs { names: Vec::new(), centres: Vec::new(), think_s });
        let (there, back) = self.ways;
        needs = needs.map(|n| self.processor(n, there.from, self.copy.software.get(), 0.0));
        needs = self.way(needs, cells, there, (data, reply), self.copy.data.packets);
        needs = needs.map(|n| self.processor(n, there.to, 0.0, self.copy.disk.get()));
        needs = self.way(needs, cells, back, (reply, data), self.copy.reply.packets);
        let pace = match needs.value() {
            Some(n) => PACE.at(&Closed { window: self.copy.window, think_s: n.think_s, centres: n.centres.clone() }),
            None => PACE.at(&Closed { window: 1, think_s: 0.0, centres: Vec::new() }),
        };
        needs.with(pace, |n, p| (n, p))
    }

    /// A station's software handles all packets of a block; `more_s` and its disk come on top.
    fn processor(&self, mut needs: Needs, group: usize, more_s: f64, disk_s: f64) -> Needs {
        let about = &self.network.topology.groups[group];
        let packets = self.copy.data.packets + self.copy.reply.packets;
        let open = self.loads.handled[group] * about.cost.get();
        needs.queue(format!("{} software", about.name), packets * about.cost.get() + more_s, open);
        needs.queue(format!("{} disk", about.name), disk_s, 0.0);
        needs
    }

    fn way(
        &self,
        mut needs: Estimate<Needs>,
        cells: &[Cell<'_>],
        route: &Route,
        (mine, other): (Traffic, Traffic),
        packets: f64,
    ) -> Estimate<Needs> {
        if packets <= 0.0 {
            return needs;
        }
        for (at, hop) in route.hops.iter().enumerate() {
            let ports = &self.loads.ports[hop.medium];
            let (from, to) = (&ports[hop.from], &ports[hop.to]);
            let need = cells[hop.medium].with(mine.plus(other), [from, to]).need(from, to, mine);
            let name = &self.network.topology.media[hop.medium].name;
            needs = needs.with(need, |mut n, need| {
                need.centres.iter().for_each(|c| n.queue(name.clone(), packets * c.demand_s, c.open));
                n.think_s += need.delay_s;
                n
            });
            if let Some(gateway) = route.gateways.get(at) {
                let about = &self.network.topology.gateways[*gateway];
                let open = (self.loads.gateways[*gateway].packets_per_s() + other.packets_per_s()) * about.cost.get();
                needs = needs.map(|mut n| {
                    n.queue(about.name.clone(), packets * about.cost.get(), open);
                    n
                });
            }
        }
        needs
    }

    fn outcome(&self, rate: f64, needs: Needs, pace: Pace) -> Outcome {
        let blocks = self.copy.file_bytes as f64 / self.copy.block_bytes as f64;
        let places = needs.names.into_iter().zip(&needs.centres).zip(pace.busy.iter().zip(&pace.queued));
        let place = |((name, centre), (busy, queued)): ((String, &Centre), (&f64, &f64))| Place {
            name,
            demand_s: centre.demand_s,
            busy: *busy,
            queued: *queued,
        };
        Outcome {
            seconds: blocks / rate,
            bits_per_s: rate * self.copy.block_bytes as f64 * 8.0,
            response_s: pace.response_s,
            places: places.map(place).collect(),
        }
    }
}
