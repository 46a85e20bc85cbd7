//! A copy in cells: its rate is a fixed point, found by bisection with a column for each step (the model's
//! `copying`).

use remora_model::pipeline::PACE;
use remora_model::{Kind, Quantity, Resource, Route};

use super::access::Weather;
use super::book::{Book, Pad, RESULTS, ResultTable, cell_at};
use super::expr::{Expr, most, sum, when};
use super::medium::DoubtCells;
use super::round::{BlockServer, CopyHop, LEFT, Round, Stop};
use super::traffic::{Loads, Moments, NetworkPlan, Traffic};
use super::{book, medium, round};

/// Bisection steps of the rate.
const HALVINGS: usize = 32;
/// Blocks a second, near zero.
const LITTLE: f64 = 1e-9;

pub(super) struct CopyCells {
    pub(super) data: Traffic,
    pub(super) reply: Traffic,
    pub(super) seconds: Expr,
    pub(super) bits_per_s: Expr,
    pub(super) response: Expr,
    /// Utilisation of each resource.
    places: Vec<(String, Expr)>,
    doubts: DoubtCells,
}

impl CopyCells {
    pub(super) fn write(&self, plan: &NetworkPlan<'_>, table: &mut ResultTable<'_>) {
        let about = plan.topology.copies.first();
        let name = about.map_or(String::new(), |c| format!("1: {} > {}", c.from, c.to));
        let results = [&self.seconds, &(&self.bits_per_s / 1e6), &(&self.response * 1000.0)];
        let row = table.row(&name, &results.map(|r| (r.clone(), "no end")));
        table.book.told(table.sheet, cell_at(row, RESULTS + 4), self.doubts.clone());
        table.heads(&["places of the copy", "busy %"]);
        for (name, busy) in &self.places {
            table.row(name, &[(busy * 100.0, "-")]);
        }
    }
}

/// Solves the file's copy over the routes `ways`, beside flows with the loads `loads`.
pub(super) fn solve(
    plan: &NetworkPlan<'_>,
    book: &mut Book,
    sheet: usize,
    loads: &Loads,
    ways: [&Route; 2],
) -> CopyCells {
    let block = book.block(sheet, "Independent of the copy's rate", &[]);
    let copy = Copy::new(plan, loads, ways, &mut book.pad(block, 0));
    let mut heads = vec!["hardly any".to_owned()];
    heads.extend((1..=HALVINGS).map(|i| format!("halving {i}")));
    heads.push("result".to_owned());
    let block = book.block(sheet, "The rate by bisection", &heads);
    let zero = || Expr::from(0.0);
    let mut pad = book.pad(block, 0);
    let (mut low, _) = bounds(&mut pad, &zero(), &zero());
    let mut high = copy.trial(&mut pad, &Expr::from(LITTLE)).rate.or(0.0);
    for column in 1..=HALVINGS {
        let mut pad = book.pad(block, column);
        let (from, to) = bounds(&mut pad, &low, &high);
        let trial = copy.trial(&mut pad, &((&from + &to) / 2.0));
        let more = trial.rate.or(0.0).gt(&trial.tried);
        (low, high) = (when(&more, &trial.tried, from), when(&more, to, &trial.tried));
    }
    let mut pad = book.pad(block, HALVINGS + 1);
    let (from, _) = bounds(&mut pad, &low, &high);
    let trial = copy.trial(&mut pad, &from.max(LITTLE));
    copy.outcome(&mut pad, trial)
}

fn bounds(pad: &mut Pad<'_>, low: &Expr, high: &Expr) -> (Expr, Expr) {
    (pad.put("rate from", "1/s", low), pad.put("rate to", "1/s", high))
}

/// The quantities of a file copy that do not depend on the rate of its blocks.
struct Copy<'a> {
    plan: &'a NetworkPlan<'a>,
    loads: &'a Loads,
    ways: [&'a Route; 2],
    /// Packets of a block, by direction.
    packets: [Expr; 2],
    bits: [Expr; 2],
    window: Expr,
    window_now: u32,
    think: Expr,
    all: Vec<Traffic>,
    /// Time of a round without packets, gathered waits included.
    apart: Expr,
    gathered: Vec<(usize, Expr)>,
    cycle: Expr,
    ends: [Stop; 2],
    servers: Vec<BlockServer>,
    /// Highest utilisation of a flow's sender.
    senders: Expr,
}

struct Trial {
    tried: Expr,
    /// Blocks per second before the stretch by bad periods.
    pace: Expr,
    /// Blocks per second after it; no value if a resource on the route is saturated.
    rate: Expr,
    stretch: Expr,
    servers: Vec<BlockServer>,
    sent: [Traffic; 2],
    doubts: DoubtCells,
}

impl<'a> Copy<'a> {
    fn new(plan: &'a NetworkPlan<'a>, loads: &'a Loads, ways: [&'a Route; 2], pad: &mut Pad<'_>) -> Copy<'a> {
        let get = |key| plan.copy(0, key);
        let about = plan.topology.copies.first();
        let bits = [get("packet"), get("reply")].map(|bytes| bytes * 8.0);
        let bits = [pad.put("packet", "bit", &bits[0]), pad.put("reply", "bit", &bits[1])];
        let sums = loads.ports.iter().zip(&plan.topology.media).map(|(ports, medium)| {
            let each: Vec<Traffic> = ports.iter().map(|p| p.sends.times(&p.stations)).collect();
            Traffic::sum(&each).put(pad, &format!("flows on {}", medium.name))
        });
        let all = sums.collect();
        let ends = [ways[0].from, ways[0].to].map(|group| handled(pad, plan, loads, group));
        let cost = |i: usize| &loads.handled[i] * plan.group(i, "cost");
        let senders = pad.put("busiest processor of a flow", "", most((0..loads.handled.len()).map(cost)));
        let blocks = (get("file") / get("block")).round_up();
        let window = pad.put("blocks under way", "", get("window").min(&blocks));
        let mut copy = Copy {
            plan,
            loads,
            ways,
            packets: [get("packets"), get("reply-packets")],
            bits,
            window,
            window_now: about.map_or(1, |c| c.window),
            think: get("think"),
            all,
            apart: Expr::from(0.0),
            gathered: Vec::new(),
            cycle: Expr::from(0.0),
            ends,
            servers: Vec::new(),
            senders,
        };
        copy.servers = copy.blocks(pad);
        (copy.apart, copy.cycle, copy.gathered) = copy.held(pad);
        copy
    }

    fn blocks(&self, pad: &mut Pad<'_>) -> Vec<BlockServer> {
        let name = |group: usize| self.plan.topology.groups.get(group).map_or("", |g| g.name.as_str());
        let packets = &self.packets[0] + &self.packets[1];
        let (software, disk) = (self.plan.copy(0, "software"), self.plan.copy(0, "disk"));
        let (from, to) = (self.ways[0].from, self.ways[0].to);
        let zero = || Expr::from(0.0);
        let mut processor = |group: usize, more: Expr| {
            let (name, cost) = (format!("{} software", name(group)), self.plan.group(group, "cost"));
            let demand = pad.put(&format!("{name}: time for a block"), "s", &packets * &cost + more);
            let open = pad.put(&format!("{name}: used by others"), "", &self.loads.handled[group] * cost);
            let filled = pad.put(&format!("{name}: time if filled"), "s", &demand / (1.0 - &open).max(1e-9));
            BlockServer { spot: Resource::Software(group), name, demand, open, filled, variance: zero() }
        };
        let ends = [processor(from, software), processor(to, zero())];
        let (spot, name) = (Resource::Disk(to), format!("{} disk", name(to)));
        let [a, b] = ends;
        vec![a, b, BlockServer { spot, name, demand: disk.clone(), open: zero(), filled: disk, variance: zero() }]
    }

    /// Interaction of blocks where data and replies meet: extra time of a round, the shortest round, and the gathered
    /// time by medium.
    fn held(&self, pad: &mut Pad<'_>) -> (Expr, Expr, Vec<(usize, Expr)>) {
        let (there, packets) = (self.ways[0], &self.packets[0]);
        let (software, disk) = (self.plan.copy(0, "software"), self.plan.copy(0, "disk"));
        let mut apart = software + &disk + &self.think;
        let (mut cycle, mut all_gathered) = (Expr::from(0.0), Vec::new());
        let spacings = || there.hops.iter().map(|hop| &self.bits[0] / self.plan.medium(hop.medium, "rate")).collect();
        for gateway in &there.gateways {
            let service = medium::service(self.plan, *gateway);
            apart = apart + round::scattered(pad, spacings(), &service, packets);
        }
        // The gathered packets are sent while the disk writes the block and the receiver handles replies.
        let replies = (1.0 + &self.packets[1]) * self.plan.group(there.to, "cost");
        let meanwhile = pad.put("disk and receiver, for a block and its replies", "s", disk + replies);
        let mut gap = self.plan.group(there.from, "cost");
        for (at, hop) in there.hops.iter().enumerate() {
            let reply = &self.packets[1] * &self.bits[1] / self.plan.medium(hop.medium, "rate");
            if let Some((gathered, least)) = self.way(hop, &Traffic::none(), 0).held(pad, packets, &gap, &reply) {
                let gathered = (gathered - &meanwhile).max(0.0) * self.packets[1].min(1.0);
                apart = apart + &gathered;
                all_gathered.push((hop.medium, gathered));
                let least = when(&self.window.le(1.0), least, 0.0);
                cycle = cycle.max(least);
            }
            gap = gap.max(&self.bits[0] / self.plan.medium(hop.medium, "rate"));
            if let Some(gateway) = there.gateways.get(at) {
                gap = gap.max(self.plan.cost(*gateway));
            }
            gap = pad.put("packets are this far apart", "s", gap);
        }
        let apart = pad.put("time of a round apart from packets", "s", apart);
        (apart, pad.put("least round", "s", cycle), all_gathered)
    }

    fn way<'b>(&'b self, hop: &'b remora_model::Hop, mine: &'b Traffic, direction: usize) -> CopyHop<'b> {
        let (all, bits) = (&self.all[hop.medium], &self.bits[direction]);
        CopyHop { plan: self.plan, loads: self.loads, all, hop, mine, bits }
    }

    /// Demand of the copy at `rate` blocks per second, and the resulting pace.
    fn trial(&self, pad: &mut Pad<'_>, rate: &Expr) -> Trial {
        let tried = pad.put("rate that is tried", "1/s", rate);
        let mut send = |direction: usize, label: &str| {
            let pps = &tried * &self.packets[direction];
            let bits = &pps * &self.bits[direction];
            let bits2 = &bits * &self.bits[direction];
            Traffic { pps, bits, bits2 }.put(pad, label)
        };
        let sent = [send(0, "data"), send(1, "replies")];
        let mut round = Met { servers: self.servers.clone(), alone: self.apart.clone(), channels: Vec::new() };
        for direction in 0..2 {
            self.along(pad, &mut round, direction, &sent);
        }
        self.wait_no_longer(pad, &mut round);
        let alone = pad.put("round of a block alone", "s", round.alone.max(&self.cycle));
        let (window, think, window_now) = (&self.window, &self.think, self.window_now);
        let to_pace = Round { window, window_now, think, alone: &alone, servers: &round.servers };
        let (paced, rows) = (to_pace.rate(pad), to_pace.rows());
        let pace = paced.rate.only_if(&self.senders.lt(1.0));
        let pace = pad.put("pace, if the stations of the flows can", "1/s", pace);
        let [used, chance] = [Quantity::Utilisation, Quantity::Chance].map(|q| book::high(&PACE, q));
        let doubts = vec![
            (
                window.gt(f64::from(rows)),
                format!("window beyond {rows}: write the file again; other results are without this copy"),
            ),
            (paced.fullest.gt(used), format!("others use more than {used} of a place")),
            (paced.chance.gt(chance), format!("chance may cost more than {chance}")),
        ];
        let mut stretch = Expr::from(1.0);
        for channel in round.channels {
            let (all, on) = (window / &pace, channel.on * window);
            stretch = stretch * channel.weather.stretch(pad, &all, &on, &(2.0 * window));
        }
        let rate = pad.put("pace that is reached", "1/s", &pace / &stretch);
        Trial { tried, pace, rate, stretch, servers: round.servers, sent, doubts }
    }

    /// Bounds the waits on wireless media by what the others send during a round.
    fn wait_no_longer(&self, pad: &mut Pad<'_>, round: &mut Met) {
        let mut beyond = Vec::new();
        for channel in &round.channels {
            let get = |key| self.plan.medium(channel.medium, key);
            let later = &channel.weather.bad / &channel.weather.good;
            let load = self.all[channel.medium].airtime(&get("rate"), &get("overhead")) * (1.0 + later);
            let load = pad.put("airtime of the flows, bad periods included", "", load);
            let gathered = sum(self.gathered.iter().filter(|(m, _)| *m == channel.medium).map(|(_, g)| g.clone()));
            let waits = pad.put("waits there in a round", "s", &channel.waits + gathered);
            let rest = pad.put("round without them", "s", &round.alone - &waits);
            let most = &rest * &load / (1.0 - load).max(LEFT);
            beyond.push(pad.put("waits beyond what the flows send meanwhile", "s", (waits - most).max(0.0)));
        }
        round.alone = &round.alone - sum(beyond);
    }

    fn along(&self, pad: &mut Pad<'_>, round: &mut Met, direction: usize, sent: &[Traffic; 2]) {
        let (route, mine, packets) = (self.ways[direction], &sent[direction], &self.packets[direction]);
        let label = if direction == 0 { "beside: replies" } else { "beside: data" };
        // With one outstanding block, data and replies alternate and never meet.
        let other = sent[1 - direction].times(&(1.0 - 1.0 / &self.window)).put(pad, label);
        let mut stops = vec![self.ends[direction].clone()];
        let mut wireless = Vec::new();
        for (at, hop) in route.hops.iter().enumerate() {
            let (way, name) = (self.way(hop, mine, direction), &self.plan.topology.media[hop.medium].name);
            let met = way.stops(pad, &other);
            if let Kind::Wifi { channel: weather, .. } = self.plan.kind(hop.medium) {
                let get = |key| self.plan.medium(hop.medium, key);
                let weather = Weather { good: get("good"), bad: get("bad"), periods: weather.bad };
                let on = sum(met.first().map(|stop| packets * &stop.spacing));
                round.needs(hop.medium, weather, on);
                wireless.push((hop.medium, stops.len()));
            }
            let alone = way.stops(pad, &Traffic::none());
            let place = Filled { spot: Resource::Medium(hop.medium), name, both_ways: way.both_ways() };
            alone.iter().for_each(|stop| round.fill(pad, &place, stop, packets));
            stops.extend(met);
            if let Some(gateway) = route.gateways.get(at) {
                let name = &self.plan.topology.gateways[*gateway].name;
                stops.push(self.gateway(pad, *gateway, &other.pps));
                let alone = self.gateway(pad, *gateway, &Expr::from(0.0));
                let place = Filled { spot: Resource::Gateway(*gateway), name, both_ways: true };
                round.fill(pad, &place, &alone, packets);
            }
        }
        stops.push(self.ends[1 - direction].clone());
        let burst = round::burst(pad, packets, &stops);
        for (medium, at) in wireless {
            let stops: Vec<Stop> =
                stops.iter().enumerate().map(|(i, stop)| if i == at { stop.quiet() } else { stop.clone() }).collect();
            round.waits(medium, &burst - round::burst(pad, packets, &stops));
        }
        round.alone = &round.alone + burst;
    }

    fn gateway(&self, pad: &mut Pad<'_>, gateway: usize, other: &Expr) -> Stop {
        let service = medium::service(self.plan, gateway);
        let arrivals = pad.put("packets of others", "1/s", &self.loads.gateways[gateway].pps + other);
        let stop = Stop::queue(pad, "gateway", &service.mean, &arrivals, &service);
        Stop { variance: pad.put("with its own", "s2", &stop.variance + service.variance()), ..stop }
    }

    fn outcome(&self, pad: &mut Pad<'_>, trial: Trial) -> CopyCells {
        let blocks = self.plan.copy(0, "file") / self.plan.copy(0, "block");
        let [data, reply] = trial.sent;
        let known = trial.pace.gt(0.0);
        let seconds = pad.put("the whole file", "s", (blocks.max(&self.window) / &trial.tried).only_if(&known));
        let bits = &trial.tried * self.plan.copy(0, "block") * 8.0;
        let bits_per_s = pad.put("the file's bits", "bit/s", bits.only_if(&known));
        // Bad periods stretch the whole round except think time.
        let round = (&self.window / &trial.pace).max(&self.think) * &trial.stretch;
        let response = round - &self.think;
        let response = pad.put("a block, from its start to its reply", "s", response);
        let place = |s: &BlockServer| (s.name.clone(), (&s.open + &trial.pace * &s.demand).min(1.0));
        let places = trial.servers.iter().map(place).collect();
        CopyCells { data, reply, seconds, bits_per_s, response, places, doubts: trial.doubts }
    }
}

struct Filled<'a> {
    spot: Resource,
    name: &'a str,
    both_ways: bool,
}

/// Resources and waits of a block's round.
struct Met {
    servers: Vec<BlockServer>,
    alone: Expr,
    channels: Vec<WirelessChannel>,
}

struct WirelessChannel {
    medium: usize,
    weather: Weather,
    on: Expr,
    /// Wait for other traffic, without gathered time.
    waits: Expr,
}

impl Met {
    fn needs(&mut self, medium: usize, weather: Weather, on: Expr) {
        match self.channels.iter_mut().find(|c| c.medium == medium) {
            Some(channel) => channel.on = &channel.on + on,
            None => self.channels.push(WirelessChannel { medium, weather, on, waits: Expr::from(0.0) }),
        }
    }

    fn waits(&mut self, medium: usize, more: Expr) {
        for channel in self.channels.iter_mut().filter(|c| c.medium == medium) {
            channel.waits = &channel.waits + &more;
        }
    }

    /// Fills a resource that serves packets one by one, in one or both directions.
    fn fill(&mut self, pad: &mut Pad<'_>, place: &Filled<'_>, stop: &Stop, packets: &Expr) {
        let filled = pad.put("time that a block fills", "s", packets * &stop.filled);
        let variance = pad.put("variance of that", "s2", packets * &stop.variance);
        let demand = packets * &stop.service;
        let before = self.servers.iter_mut().find(|s| place.both_ways && s.spot == place.spot);
        if let Some(server) = before {
            server.demand = &server.demand + demand;
            server.filled = &server.filled + filled;
            server.variance = &server.variance + variance;
        } else {
            let (spot, name, open) = (place.spot, place.name.to_owned(), stop.open.clone());
            self.servers.push(BlockServer { spot, name, demand, open, filled, variance });
        }
    }
}

fn handled(pad: &mut Pad<'_>, plan: &NetworkPlan<'_>, loads: &Loads, group: usize) -> Stop {
    let cost = plan.group(group, "cost");
    let name = plan.topology.groups.get(group).map_or("", |g| g.name.as_str());
    let theirs = Moments { second: cost.powi(2), mean: cost.clone() };
    Stop::queue(pad, &format!("{name} software"), &cost, &loads.handled[group], &theirs)
}
