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

use std::collections::BTreeMap;

use crate::cell::{Cell, Need};
use crate::formula::{Estimate, Reason};
use crate::mva::Pace;
use crate::network::{Network, Route};
use crate::pipeline::{self, PACE, Server, Stop, burst_s};
use crate::quantity::{Moments, Traffic};
use crate::queue::Queue;
use crate::report::{Outcome, Place};
use crate::solve::{Loads, gateway_service};
use crate::topology::{Copy, Gateway, Kind};
use crate::wifi::Weather;

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

/// Where a block queues, each with its name, and how long its round is without other blocks.
#[derive(Default)]
struct Needs {
    names: Vec<String>,
    servers: Vec<Server>,
    alone_s: f64,
    /// Wireless media on the way, and for how long a block needs them.
    channels: BTreeMap<usize, (Weather, f64)>,
}

impl Needs {
    /// A place that serves whole blocks.
    fn server(&mut self, name: String, server: Server) {
        if server.demand_s > 0.0 {
            self.names.push(name);
            self.servers.push(server);
        }
    }
}

impl Round<'_> {
    /// What the copy needs if it goes at `rate` blocks a second, and the pace that gives.
    fn pace(&self, cells: &[Cell<'_>], rate: f64) -> Estimate<(Needs, Pace)> {
        let (there, back) = self.ways;
        let (data, reply) = traffic(self.copy, rate);
        let (software, disk) = (self.copy.software.get(), self.copy.disk.get());
        let mut needs = Needs { alone_s: software + disk + self.copy.think.get(), ..Needs::default() };
        self.processor(&mut needs, there.from, software);
        self.processor(&mut needs, there.to, 0.0);
        let name = format!("{} disk", self.network.topology.groups[there.to].name);
        needs.server(name, Server { demand_s: disk, open: 0.0, filled_s: disk, scv: 0.0 });
        let needs = self.way(Estimate::given(needs), cells, there, (data, reply), self.copy.data.packets);
        let needs = self.way(needs, cells, back, (reply, data), self.copy.reply.packets);
        let think_s = self.copy.think.get();
        let needs = needs.map(|mut needs| {
            // Data and replies, of each block under way.
            let gaps = 2.0 * f64::from(self.copy.window);
            let round_s = needs.alone_s;
            for (weather, on_s) in needs.channels.values() {
                needs.alone_s *= weather.stretch(round_s, *on_s * f64::from(self.copy.window), gaps);
            }
            needs
        });
        let pace = match needs.value() {
            Some(n) => PACE.at(&pipeline::Round {
                window: self.copy.window,
                alone_s: n.alone_s,
                think_s,
                servers: n.servers.clone(),
            }),
            None => PACE.at(&pipeline::Round { window: 1, alone_s: 0.0, think_s, servers: Vec::new() }),
        };
        needs.with(pace, |n, p| (n, p))
    }

    /// A station's software handles all packets of a block; `more_s` comes on top.
    fn processor(&self, needs: &mut Needs, group: usize, more_s: f64) {
        let about = &self.network.topology.groups[group];
        let cost = about.cost.get();
        let demand_s = (self.copy.data.packets + self.copy.reply.packets) * cost + more_s;
        let open = self.loads.handled[group] * cost;
        let filled_s = demand_s / (1.0 - open).max(1e-9);
        needs.server(format!("{} software", about.name), Server { demand_s, open, filled_s, scv: 0.0 });
    }

    /// What a packet meets in a station's software.
    fn handled(&self, group: usize) -> Need {
        let cost = self.network.topology.groups[group].cost.get();
        let queue = Queue { arrivals_per_s: self.loads.handled[group], service: Moments::constant(cost) };
        Need::queue(cost, queue, 0.0)
    }

    fn way(
        &self,
        needs: Estimate<Needs>,
        cells: &[Cell<'_>],
        route: &Route,
        (mine, other): (Traffic, Traffic),
        packets: f64,
    ) -> Estimate<Needs> {
        if packets <= 0.0 {
            return needs;
        }
        // With one block under way data and replies take turns and never meet.
        let other = other.times(1.0 - 1.0 / f64::from(self.copy.window.max(1)));
        // Places in order; the stations' software counts as servers elsewhere, both ways together.
        let mut met = Estimate::given(vec![(None, self.handled(route.from))]);
        let media = route.hops.iter().map(|hop| hop.medium);
        for (at, hop) in route.hops.iter().enumerate() {
            let ports = &self.loads.ports[hop.medium];
            let (from, to) = (&ports[hop.from], &ports[hop.to]);
            let need = cells[hop.medium].with(mine.plus(other), [from, to]).need(from, to, mine);
            let name = &self.network.topology.media[hop.medium].name;
            met = met.with(need, |mut met, need| {
                met.push((Some(name), need));
                met
            });
            if let Some(gateway) = route.gateways.get(at) {
                let about = &self.network.topology.gateways[*gateway];
                let need = gateway_need(about, self.loads.gateways[*gateway].packets_per_s() + other.packets_per_s());
                met = met.map(|mut met| {
                    met.push((Some(&about.name), need));
                    met
                });
            }
        }
        needs.with(met, |mut needs, mut met| {
            met.push((None, self.handled(route.to)));
            let stops: Vec<Stop> = met.iter().flat_map(|(_, need)| need.stops.iter().map(|(stop, _)| *stop)).collect();
            needs.alone_s += burst_s(packets, &stops);
            let weathers = met.iter().filter_map(|(_, need)| Some((need.weather?, need.stops.first()?.0)));
            for (medium, (weather, stop)) in media.filter(|m| self.wireless(*m)).zip(weathers) {
                let channel = needs.channels.entry(medium).or_insert((weather, 0.0));
                channel.1 += packets * stop.spacing_s;
            }
            for (name, need) in &met {
                for (stop, filled) in &need.stops {
                    let (Some(name), filled_s) = (name, packets * filled.filled_s) else { continue };
                    let scv = packets * filled.variance / (filled_s * filled_s).max(1e-24);
                    let server = Server { demand_s: packets * stop.service_s, open: filled.open, filled_s, scv };
                    needs.server((*name).clone(), server);
                }
            }
            needs
        })
    }

    fn wireless(&self, medium: usize) -> bool {
        matches!(self.network.topology.media[medium].kind, Kind::Wifi { .. })
    }

    fn outcome(&self, rate: f64, needs: Needs, pace: Pace) -> Outcome {
        let blocks = self.copy.file_bytes as f64 / self.copy.block_bytes as f64;
        let places = needs.names.into_iter().zip(&needs.servers).zip(pace.busy.iter().zip(&pace.queued));
        let place = |((name, server), (busy, queued)): ((String, &Server), (&f64, &f64))| Place {
            name,
            demand_s: server.demand_s,
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

fn gateway_need(gateway: &Gateway, packets_per_s: f64) -> Need {
    let service = gateway_service(gateway);
    let queue = Queue { arrivals_per_s: packets_per_s, service };
    let mut need = Need::queue(service.mean, queue, 0.0);
    let variance = service.second - service.mean * service.mean;
    need.stops.iter_mut().for_each(|(_, filled)| filled.variance += variance);
    need
}
