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

use crate::cell::{Cell, Filled, Need};
use crate::formula::{Estimate, Reason};
use crate::mva::Pace;
use crate::network::{Hop, Network, Route};
use crate::pipeline::{self, PACE, Server, Stop, burst_s};
use crate::quantity::{Moments, Traffic};
use crate::queue::{PROCESSOR, Queue};
use crate::report::{Outcome, Place};
use crate::solve::{Loads, gateway_queue, gateway_service};
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

/// A place on a packet's way.
struct Met<'a> {
    /// What the packet meets there beside all others, the copy's other direction included.
    need: Need,
    /// How it fills the place; what does is counted elsewhere for a station's software.
    fills: Option<Fills<'a>>,
}

/// How packets fill a place.
struct Fills<'a> {
    name: &'a str,
    /// Whether data and replies fill it together.
    both_ways: bool,
    /// What a packet meets there beside the others alone.
    need: Need,
}

/// Where a block queues, each with its name, and how long its round is without other blocks.
#[derive(Default)]
struct Needs {
    names: Vec<String>,
    servers: Vec<Server>,
    alone_s: f64,
    /// What blocks may add to one another's round on a shared Ethernet.
    bunched_s: f64,
    /// What bad periods cost that the window may outlast.
    outlasted: f64,
    /// The largest share of its time that a wireless medium on the way is bad.
    bad_share: f64,
    /// The least time from block to block where each needs a token of its own.
    cycle_s: f64,
    /// Once around the rings on the way.
    around_s: f64,
    /// Wireless media on the way, and for how long a block needs them.
    channels: BTreeMap<usize, (Weather, f64)>,
}

impl Needs {
    /// A place that serves packets one by one, data and replies alike or those of one direction.
    fn fill(&mut self, fills: &Fills<'_>, packets: f64) {
        for (stop, filled) in &fills.need.stops {
            let filled_s = packets * filled.filled_s;
            let variance = packets * filled.variance;
            let scv = |variance: f64, seconds: f64| variance / (seconds * seconds).max(1e-24);
            let demand_s = packets * stop.service_s;
            let before = self.names.iter().position(|name| fills.both_ways && name == fills.name);
            if let Some(server) = before.and_then(|at| self.servers.get_mut(at)) {
                let both_s = server.filled_s + filled_s;
                server.scv = scv(server.scv * server.filled_s * server.filled_s + variance, both_s);
                (server.demand_s, server.filled_s) = (server.demand_s + demand_s, both_s);
            } else {
                let server = Server { demand_s, open: filled.open, filled_s, scv: scv(variance, filled_s) };
                self.server(fills.name.to_owned(), server);
            }
        }
    }

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
            self.hold(&mut needs, cells);
            needs.alone_s = needs.alone_s.max(needs.cycle_s);
            self.outlast(&mut needs);
            needs
        });
        let pace = match needs.value() {
            Some(n) => PACE.at(&pipeline::Round {
                window: self.copy.window,
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
            (n, p.slower(stretch))
        })
    }

    /// Whether the stations that make the flows can: else they load the places on the way less than they say.
    fn senders(&self) -> Estimate<()> {
        let groups = self.network.topology.groups.iter().zip(&self.loads.handled);
        PROCESSOR.at(&groups.map(|(group, handled)| handled * group.cost.get()).fold(0.0, f64::max))
    }

    /// What blocks do to one another on a medium that carries data and replies. The sender of data keeps a
    /// ring's token as long as it has some, so others' packets gather and the reply comes behind them: in
    /// a fluid, `exp(load * part of the ring)` grows from the burst. If blocks come to the sender faster
    /// than it sends them, it may send all of the window before any reply; on an Ethernet, too, for who has
    /// just sent is likely to send again. How many it sends is not known: a bound, and a doubt.
    fn hold(&self, needs: &mut Needs, cells: &[Cell<'_>]) {
        let there = &self.ways.0;
        let packets = self.copy.data.packets;
        let more = f64::from(self.copy.window.saturating_sub(1));
        let sender = &self.network.topology.groups[there.from];
        let ready_s = self.copy.software.get() + packets * sender.cost.get();
        // What the sender's flows make meanwhile waits for its software, goes out behind the block, and keeps
        // the medium from the reply.
        let (medium, port) = self.network.group_ports[there.from];
        if cells[medium].serves_both_ways() {
            let sends = self.loads.ports[medium][port].sends;
            needs.bunched_s += self.copy.software.get() * cells[medium].share(sends);
        }
        needs.bunched_s += self.copy.software.get() * self.interrupts(there.to);
        // What comes in interrupts the receiver, so that a reply waits for the blocks behind its own.
        needs.bunched_s += more * packets * self.network.topology.groups[there.to].cost.get();
        // What flows make meanwhile is handled before the reply, and before the next block.
        for (group, packets) in [(there.to, packets), (there.from, self.copy.reply.packets)] {
            let (cost_s, (medium, port)) =
                (self.network.topology.groups[group].cost.get(), self.network.group_ports[group]);
            let made = self.loads.ports[medium][port].sends.packets_per_s() * cost_s;
            needs.bunched_s += (packets - 1.0).max(0.0) * cost_s * made;
        }
        // At a gateway the reply comes behind what others have queued behind the burst.
        for gateway in &there.gateways {
            let queue = gateway_queue(&self.network.topology.gateways[*gateway], self.loads.gateways[*gateway]);
            let busy = queue.utilisation().min(1.0);
            let through_s = packets * queue.service.mean / (1.0 - busy).max(1e-9);
            needs.alone_s += self.scattered(queue.service, packets);
            needs.bunched_s += SELDOM * busy * through_s;
            if ready_s < through_s {
                needs.bunched_s += more * through_s;
            }
        }
        // Packets that come slower than they are sent come one by one.
        let mut gap_s = sender.cost.get();
        for (at, hop) in there.hops.iter().enumerate() {
            let sending_s = cells[hop.medium].sending_s(self.copy.data.size);
            let together = if gap_s < sending_s { packets } else { packets.min(1.0) };
            gap_s = gap_s.max(sending_s);
            if let Some(gateway) = there.gateways.get(at) {
                gap_s = gap_s.max(self.network.topology.gateways[*gateway].cost.get());
            }
            let Some(held) = cells[hop.medium].held(hop, self.copy.data.size, together) else { continue };
            // As long as the disk takes for the block and the receiver for its replies, what has gathered is sent.
            let meanwhile_s = self.copy.disk.get() + self.replies_s();
            needs.alone_s += (held.gathered_s - meanwhile_s).max(0.0) * self.copy.reply.packets.min(1.0);
            if meanwhile_s > 0.0 {
                // The token has gone on by the time that the reply is ready, to those behind.
                let all_s = (held.gathered_s + held.all_gathered_s - meanwhile_s).max(0.0);
                needs.bunched_s += (all_s - (held.gathered_s - meanwhile_s).max(0.0)).max(0.0);
            }
            // What has gathered for either end comes at once, and interrupts it before it can send.
            needs.bunched_s += (self.interrupts(there.to) + self.interrupts(there.from)) * packets * sending_s;
            let tokens = if held.turns { packets.max(1.0) } else { 1.0 };
            let reply_s = self.copy.reply.packets * cells[hop.medium].sending_s(self.copy.reply.size);
            // Between two blocks all the others on a ring send what they have.
            let cycle_s = (packets * sending_s + reply_s + tokens * held.around_s) * held.busy;
            if more <= 0.0 && held.around_s > 0.0 {
                needs.cycle_s = needs.cycle_s.max(cycle_s);
            }
            if together < packets {
                needs.bunched_s += held.trickle_s(gap_s, sending_s);
            }
            needs.around_s += held.around_s;
            needs.bunched_s += held.backed_off_s + held.unplaced_s;
            if self.copy.reply.packets < 1.0 {
                // Without a reply the next block is there at once, and comes behind all that has gathered.
                needs.bunched_s += (1.0 - self.copy.reply.packets) * held.all_gathered_s;
            }
            // The next block is ready before the ring has brought this one's reply, and goes out ahead of that; or
            // it has begun to go out by the time that the reply is ready, and leaves no gap.
            let begins_s = self.copy.software.get() + packets.min(1.0) * sender.cost.get();
            let ahead = ready_s < cycle_s.max(packets * sending_s);
            if ahead || together >= packets && begins_s < meanwhile_s + held.around_s {
                let one_s = held.burst_s / together.max(1.0);
                let blocks = if ahead && !(held.turns && packets > 1.0) { more } else { more.min(1.0) };
                needs.bunched_s += blocks * one_s * if held.turns { 1.0 } else { packets };
            }
        }
    }

    /// The share of the software of a group's stations that what flows send to them takes.
    fn interrupts(&self, group: usize) -> f64 {
        let (groups, cost_s) = (&self.network.topology.groups, self.network.topology.groups[group].cost.get());
        let flows = self.network.topology.flows.iter().zip(&self.network.flows);
        let comes = flows.filter(|(_, route)| route.to == group);
        let packets_per_s: f64 =
            comes.map(|(flow, route)| flow.rate.get() * f64::from(groups[route.from].stations)).sum();
        packets_per_s / f64::from(groups[group].stations) * cost_s
    }

    /// How long the receiver's software has to do after the last packet of a block has come, in seconds.
    fn replies_s(&self) -> f64 {
        (1.0 + self.copy.reply.packets) * self.network.topology.groups[self.ways.0.to].cost.get()
    }

    /// What the packets of a burst queue at a gateway whose times vary, on top, in seconds: the highest point of a
    /// random walk (its mean after `n` steps without a drift, or ever with one: Kingman's limit).
    fn scattered(&self, service: Moments, packets: f64) -> f64 {
        let sending = self.ways.0.hops.iter().map(|hop| self.network.topology.media[hop.medium].rate.bits() as f64);
        let spacing_s = sending.map(|rate| self.copy.data.size.mean_bits() / rate).fold(0.0, f64::max);
        let variance = (service.second - service.mean * service.mean).max(0.0);
        let steps = (packets - 1.0).max(0.0);
        let ever = variance / (2.0 * (spacing_s - service.mean).abs()).max(1e-12);
        (variance * 2.0 * steps / std::f64::consts::PI).sqrt().min(ever)
    }

    /// Where the channel is not what the copy waits for, a window may outlast a bad period, wholly or in part:
    /// a doubt of all that bad periods cost. Where much of the time is bad, others' packets have gathered by
    /// the end of it.
    fn outlast(&self, needs: &mut Needs) {
        let busiest = needs.servers.iter().map(|s| s.filled_s).fold(0.0, f64::max);
        for (weather, on_s) in needs.channels.values() {
            needs.bad_share = needs.bad_share.max(weather.bad_share());
            if self.copy.window > 1 && *on_s < busiest {
                needs.outlasted += weather.bad_s / weather.good_s;
            }
        }
    }

    /// By how much bad periods stretch the time from block to block. They come with time, and hold up all of
    /// the window: as long as they last nothing else has much to do.
    fn stretch(&self, needs: &Needs, blocks_per_s: f64) -> f64 {
        let window = f64::from(self.copy.window);
        // Data and replies, of each block under way.
        let of = |(weather, on_s): &(Weather, f64)| weather.stretch(window / blocks_per_s, on_s * window, 2.0 * window);
        needs.channels.values().map(of).product()
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
        let mut met = Estimate::given(vec![Met { need: self.handled(route.from), fills: None }]);
        for (at, hop) in route.hops.iter().enumerate() {
            let cell = &cells[hop.medium];
            let name = &self.network.topology.media[hop.medium].name;
            let need = cell.with(mine.plus(other), hop).need(hop, mine);
            let alone = cell.with(mine, hop).need(hop, mine).value().cloned();
            met = met.with(need, |mut met, need| {
                let fills =
                    Fills { name, both_ways: cell.serves_both_ways(), need: alone.unwrap_or_else(|| need.clone()) };
                met.push(Met { need, fills: Some(fills) });
                met
            });
            if let Some(gateway) = route.gateways.get(at) {
                let about = &self.network.topology.gateways[*gateway];
                let others = self.loads.gateways[*gateway].packets_per_s();
                let need = gateway_need(about, others + other.packets_per_s());
                let fills = Fills { name: &about.name, both_ways: true, need: gateway_need(about, others) };
                met = met.map(|mut met| {
                    met.push(Met { need, fills: Some(fills) });
                    met
                });
            }
        }
        needs.with(met, |mut needs, mut met| {
            met.push(Met { need: self.handled(route.to), fills: None });
            let stops: Vec<Stop> = met.iter().flat_map(|m| m.need.stops.iter().map(|(stop, _)| *stop)).collect();
            needs.alone_s += burst_s(packets, &stops);
            // What its own packets put back is still there when the next ones come: all of it where the queue
            // takes longer than a round to forget.
            let own = |stop: &Stop| mine.packets_per_s() * stop.service_s;
            let back = |(stop, filled): &(Stop, Filled)| {
                stop.wait_s * (own(stop) / (1.0 - filled.open - own(stop)).max(1e-9)).min(1.0)
            };
            needs.bunched_s += met.iter().flat_map(|m| &m.need.stops).map(back).sum::<f64>();
            // Packets that have waited for one another do so less at the next place; each place counts all.
            let most = stops.iter().map(|stop| stop.wait_s).fold(0.0, f64::max);
            needs.bunched_s += SELDOM * (stops.iter().map(|stop| stop.wait_s).sum::<f64>() - most);
            let weathers = met.iter().filter_map(|m| Some((m.need.weather?, m.need.stops.first()?.0)));
            let media = route.hops.iter().map(|hop| hop.medium);
            for (medium, (weather, stop)) in media.filter(|m| self.wireless(*m)).zip(weathers) {
                let channel = needs.channels.entry(medium).or_insert((weather, 0.0));
                channel.1 += packets * stop.spacing_s;
            }
            met.iter().filter_map(|m| m.fills.as_ref()).for_each(|fills| needs.fill(fills, packets));
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
