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

mod hold;
mod needs;
mod weather;

use crate::cell::{Cell, Filled, Need};
use crate::formula::{Estimate, Reason};
use crate::mva::Pace;
use crate::network::{Hop, Network, Route};
use crate::pipeline::{self, PACE, Server, Stop, burst_s};
use crate::quantity::{Moments, Traffic};
use crate::queue::{PROCESSOR, Queue};
use crate::report::{Outcome, Place};
use crate::solve::{Loads, gateway_service};
use crate::topology::{Copy, Gateway, Kind, Spot};
use needs::{Fills, Met, Needs};
use weather::Channel;

/// Rounds at most, for each copy: a step is the distance over their number.
const ROUNDS: usize = 12;
/// They stay where they are when none is further than this share from what it finds.
const SETTLED: f64 = 1e-4;
/// From here on a place counts as filled.
const FILLED: f64 = 0.9;
/// A copy that gets less than this share of what it gets alone is held up by others.
const HELD_UP: f64 = 0.98;
/// Of what others' packets may hold up at most so much is seen.
const SELDOM: f64 = 0.5;
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

/// Whether two copies have a place on their ways in common.
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

impl Round<'_> {
    /// What the copy needs if it goes at `rate` blocks a second, and the pace that gives.
    fn pace(&self, cells: &[Cell<'_>], rate: f64) -> Estimate<(Needs, Pace)> {
        let (there, back) = self.ways;
        let (data, reply) = traffic(self.copy, rate);
        let (software, disk) = (self.copy.software.get(), self.copy.disk.get());
        let mut needs = Needs { alone_s: software + disk + self.copy.think.get(), ..Needs::default() };
        self.processor(&mut needs, there.from, software);
        self.processor(&mut needs, there.to, 0.0);
        needs.server(Spot::Disk(there.to), Server { demand_s: disk, open: 0.0, filled_s: disk, scv: 0.0 });
        let needs = self.way(Estimate::given(needs), cells, there, (data, reply), self.copy.data.packets);
        let needs = self.way(needs, cells, back, (reply, data), self.copy.reply.packets);
        let think_s = self.copy.think.get();
        let needs = needs.map(|mut needs| {
            self.hold(&mut needs, cells);
            self.wait_no_longer(&mut needs, cells);
            needs.alone_s = needs.alone_s.max(needs.cycle_s);
            self.outlast(&mut needs);
            needs
        });
        let pace = match needs.value() {
            Some(n) => PACE.at(&pipeline::Round {
                window: self.copy.under_way(),
                alone_s: n.alone_s,
                think_s,
                bunched_s: n.bunched_s,
                outlasted: n.outlasted,
                bad_share: n.bad_share,
                around_s: n.around_s,
                servers: n.servers.clone(),
            }),
            None => PACE.at(&pipeline::Round {
                window: 1,
                alone_s: 0.0,
                think_s,
                bunched_s: 0.0,
                outlasted: 0.0,
                bad_share: 0.0,
                around_s: 0.0,
                servers: Vec::new(),
            }),
        };
        needs.with(self.senders(), |n, ()| n).with(pace, |n, p| {
            let stretch = self.stretch(&n, p.requests_per_s);
            (n, p.slower(stretch, think_s))
        })
    }

    /// Whether the stations that make the flows can: else they load the places on the way less than they say.
    fn senders(&self) -> Estimate<()> {
        let groups = self.network.topology.groups.iter().zip(&self.loads.handled);
        PROCESSOR.at(&groups.map(|(group, handled)| handled * group.cost.get()).fold(0.0, f64::max))
    }

    /// A station's software handles all packets of a block; `more_s` comes on top.
    fn processor(&self, needs: &mut Needs, group: usize, more_s: f64) {
        let cost = self.network.topology.groups[group].cost.get();
        let demand_s = (self.copy.data.packets + self.copy.reply.packets) * cost + more_s;
        let open = self.loads.handled[group] * cost;
        let filled_s = demand_s / (1.0 - open).max(1e-9);
        needs.server(Spot::Software(group), Server { demand_s, open, filled_s, scv: 0.0 });
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
        let other = other.times(1.0 - 1.0 / f64::from(self.copy.under_way().max(1)));
        // Places in order; the stations' software counts as servers elsewhere, both ways together.
        let mut met = Estimate::given(vec![Met { need: self.handled(route.from), fills: None }]);
        for (at, hop) in route.hops.iter().enumerate() {
            let cell = &cells[hop.medium];
            let spot = Spot::Medium(hop.medium);
            let need = cell.with(mine.plus(other), hop).need(hop, mine);
            let alone = cell.with(mine, hop).need(hop, mine).value().cloned();
            met = met.with(need, |mut met, need| {
                let fills =
                    Fills { spot, both_ways: cell.serves_both_ways(), need: alone.unwrap_or_else(|| need.clone()) };
                met.push(Met { need, fills: Some(fills) });
                met
            });
            if let Some(gateway) = route.gateways.get(at) {
                let about = &self.network.topology.gateways[*gateway];
                let others = self.loads.gateways[*gateway].packets_per_s();
                let need = gateway_need(about, others + other.packets_per_s());
                let fills = Fills { spot: Spot::Gateway(*gateway), both_ways: true, need: gateway_need(about, others) };
                met = met.map(|mut met| {
                    met.push(Met { need, fills: Some(fills) });
                    met
                });
            }
        }
        needs.with(met, |mut needs, mut met| {
            met.push(Met { need: self.handled(route.to), fills: None });
            let stops: Vec<Stop> = met.iter().flat_map(|m| m.need.stops.iter().map(|(stop, _)| *stop)).collect();
            let way_s = burst_s(packets, &stops);
            needs.alone_s += way_s;
            // What its own packets put back is still there when the next ones come: all of it where the queue
            // takes longer than a round to forget.
            let own = |stop: &Stop| mine.packets_per_s() * stop.service_s;
            let back = |(stop, filled): &(Stop, Filled)| {
                stop.wait_s * (own(stop) / (1.0 - filled.open - own(stop)).max(1e-9)).min(1.0)
            };
            needs.bunched_s += met.iter().flat_map(|m| &m.need.stops).map(back).sum::<f64>();
            needs.bunched_s += packets.min(1.0) * met.iter().map(|m| m.need.unsure_s).sum::<f64>();
            // Packets that have waited for one another do so less at the next place; each place counts all.
            let most = stops.iter().map(|stop| stop.wait_s).fold(0.0, f64::max);
            needs.bunched_s += SELDOM * (stops.iter().map(|stop| stop.wait_s).sum::<f64>() - most);
            self.channels(&mut needs, route, packets, &met, way_s);
            met.iter().filter_map(|m| m.fills.as_ref()).for_each(|fills| needs.fill(fills, packets));
            needs
        })
    }

    /// What `packets` of a block need of the wireless media on their way, which takes them `way_s`, and wait there.
    fn channels(&self, needs: &mut Needs, route: &Route, packets: f64, met: &[Met], way_s: f64) {
        let quiet_at = |quiet: usize| -> Vec<Stop> {
            let places = met.iter().enumerate();
            places
                .flat_map(|(at, m)| m.need.stops.iter().map(move |(s, _)| if at == quiet { s.quiet() } else { *s }))
                .collect()
        };
        let wireless =
            met.iter().enumerate().filter_map(|(at, m)| Some((at, m.need.weather?, m.need.stops.first()?.0)));
        let media = route.hops.iter().map(|hop| hop.medium).filter(|medium| self.wireless(*medium));
        for (medium, (at, weather, stop)) in media.zip(wireless) {
            let channel = needs.channels.entry(medium).or_insert(Channel { weather, on_s: 0.0, waits_s: 0.0 });
            channel.on_s += packets * stop.spacing_s;
            channel.waits_s += way_s - burst_s(packets, &quiet_at(at));
        }
    }

    fn wireless(&self, medium: usize) -> bool {
        matches!(self.network.topology.media[medium].kind, Kind::Wifi { .. })
    }

    fn name(&self, spot: Spot) -> String {
        let topology = &self.network.topology;
        match spot {
            Spot::Medium(i) => topology.media[i].name.clone(),
            Spot::Gateway(i) => topology.gateways[i].name.clone(),
            Spot::Software(group) => format!("{} software", topology.groups[group].name),
            Spot::Disk(group) => format!("{} disk", topology.groups[group].name),
        }
    }

    fn outcome(&self, rate: f64, needs: Needs, pace: Pace) -> Outcome {
        let blocks = self.copy.file_bytes as f64 / self.copy.block_bytes as f64;
        let places = needs.spots.into_iter().zip(&needs.servers).zip(pace.busy.iter().zip(&pace.queued));
        let place = |((spot, server), (busy, queued)): ((Spot, &Server), (&f64, &f64))| Place {
            name: self.name(spot),
            demand_s: server.demand_s,
            busy: *busy,
            queued: *queued,
        };
        Outcome {
            // A file that fits into the window takes a round, though its last block is not full.
            seconds: blocks.max(f64::from(self.copy.under_way())) / rate,
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
