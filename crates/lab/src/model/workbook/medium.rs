//! Media, switch ports and gateways in cells: loads, queues, and the regularity of arrivals.

use std::collections::BTreeMap;

use remora_model::queue::PORT_WAIT;
use remora_model::ring::WAIT;
use remora_model::wifi::DELAY;
use remora_model::{Hop, Kind, Law, Quantity};

use super::access::{Ring, Sender, StationQueue, Weather};
use super::book::{Block, Book, Pad};
use super::expr::{Cond, Expr, most, sum, when};
use super::traffic::{Behind, Loads, Moments, NetworkPlan, Points, Port, QueueCells, Streams, Traffic, pair, pairs};
use super::{access, book};

pub(super) fn service(plan: &NetworkPlan<'_>, gateway: usize) -> Moments {
    let cost = plan.cost(gateway);
    let second = match plan.topology.gateways[gateway].law {
        Law::Constant => cost.powi(2),
        Law::Exponential => 2.0 * cost.powi(2),
    };
    Moments { mean: cost, second }
}

/// Queues of all gateways.
pub(super) fn queues(plan: &NetworkPlan<'_>, book: &mut Book, sheet: usize, loads: &Loads) -> Vec<QueueCells> {
    let names: Vec<String> = plan.topology.gateways.iter().map(|g| g.name.clone()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let block = book.block(sheet, "Gateways as queues (M/G/1)", &names);
    let of = |i: usize| QueueCells::put(&mut book.pad(block, i), "queue", &loads.gateways[i].pps, service(plan, i));
    (0..names.len()).map(of).collect()
}

pub(super) struct Comes<'a> {
    /// Regularity of all arrivals, beyond Poisson.
    pub(super) regular: &'a Expr,
    /// Excess arrival time over the average packet.
    pub(super) longer: Expr,
    /// Wait that packets of the same station are spared.
    pub(super) spared: Expr,
}

pub(super) fn delay(pad: &mut Pad<'_>, queue: &QueueCells, comes: &Comes<'_>) -> Expr {
    let longer = pad.put("longer to come in than the average packet", "s", &comes.longer);
    let spaced = pad.put("G/G/1 wait", "s", queue.wait_of(comes.regular));
    let least = (queue.wait.or(0.0) - &comes.spared).max(0.0);
    let wait = pad.put("wait, less what is spared", "s", spaced.min(least));
    let left = (0.0 - longer * &queue.busy / &wait).exp();
    let left = when(&wait.gt(0.0), left, 1.0).min(2.0);
    pad.put("delay", "s", wait * left + &queue.service.mean)
}

/// Wait that packets of one station are spared because its processor spaces them (Friedman 1965).
pub(super) fn spared(pad: &mut Pad<'_>, plan: &NetworkPlan<'_>, loads: &Loads, group: usize, gateway: usize) -> Expr {
    let (cost, service) = (plan.group(group, "cost"), service(plan, gateway));
    let rate = loads.through.get(&(group, gateway)).cloned().unwrap_or_else(|| Expr::from(0.0));
    let points = points(plan, gateway);
    let others = &loads.gateways[gateway].pps * &service.mean - &rate * &service.mean;
    let busy = others.max(0.0) + &rate * points.mean_of(|time| time.min(&cost));
    let busy = pad.put("busy, with what is faster than the processor", "", busy);
    let met = points.mean_of(|time| time.min(&cost).powi(2));
    pad.put("wait that the sender's processor spares", "s", rate * met / (2.0 * (1.0 - busy.min(0.95))))
}

/// Two service times with the mean and variance of all.
fn points(plan: &NetworkPlan<'_>, gateway: usize) -> Points {
    let cost = plan.cost(gateway);
    let (short, long) = match plan.topology.gateways[gateway].law {
        Law::Constant => (cost.clone(), cost),
        Law::Exponential => (Expr::from(0.0), 2.0 * cost),
    };
    Points { short, long, chance: Expr::from(0.5) }
}

/// Conditions under which a formula is doubted, with the reasons.
pub(super) type DoubtCells = Vec<(Cond, String)>;

pub(super) struct MediumModel<'a> {
    pub(super) plan: &'a NetworkPlan<'a>,
    pub(super) medium: usize,
    pub(super) sheet: usize,
    pub(super) rate: Expr,
    pub(super) overhead: Expr,
    pub(super) all: Traffic,
    pub(super) senders: Expr,
    /// Transmission time of a packet of the whole traffic.
    pub(super) frame: Moments,
    pub(super) frame_scv: Expr,
    pub(super) load: Expr,
    /// Utilisation of the medium; no value if it is overloaded.
    pub(super) busy: Expr,
    pub(super) links: Vec<(QueueCells, QueueCells)>,
    /// Mean wait or delay by port (wireless: by pair of ports), for Poisson arrivals.
    waits: BTreeMap<(usize, usize), Expr>,
    doubts: BTreeMap<(usize, usize), DoubtCells>,
    around: Expr,
}

/// Above this utilisation all four CSMA/CD delay bands end.
const ETHERNET_BUSY: f64 = 0.825;

impl<'a> MediumModel<'a> {
    pub(super) fn new(
        plan: &'a NetworkPlan<'a>,
        book: &mut Book,
        sheet: usize,
        medium: usize,
        loads: &Loads,
    ) -> MediumModel<'a> {
        let (ports, streams) = (&loads.ports[medium], &loads.streams[medium]);
        let block = book.block(sheet, "The medium", std::slice::from_ref(&plan.topology.media[medium].name));
        let mut pad = book.pad(block, 0);
        let mut cell = MediumModel::about(plan, &mut pad, sheet, medium, ports);
        match plan.kind(medium) {
            Kind::Switch { .. } => cell.add_links(book, ports),
            Kind::Ethernet { .. } => cell.add_senders(book, ports),
            Kind::Ring { walk: _, discipline } => {
                let walk = plan.medium(medium, "walk");
                let rate = cell.rate.clone();
                let block = book.block(sheet, "The ring", &[]);
                let ring = Ring::put(&mut book.pad(block, 0), *discipline, &walk, &rate, ports);
                cell.around = ring.around.clone();
                cell.add_stations(book, &ring, ports);
            }
            Kind::Wifi { .. } => cell.add_pairs(book, ports, streams),
        }
        cell
    }

    fn about(
        plan: &'a NetworkPlan<'a>,
        pad: &mut Pad<'_>,
        sheet: usize,
        medium: usize,
        ports: &[Port],
    ) -> MediumModel<'a> {
        let kind = plan.kind(medium);
        let rate = plan.medium(medium, "rate");
        let overhead = match kind {
            Kind::Wifi { .. } => plan.medium(medium, "overhead"),
            _ => Expr::from(0.0),
        };
        let each: Vec<Traffic> = ports.iter().map(|p| p.sends.times(&p.stations)).collect();
        let all = Traffic::sum(&each).put(pad, "all");
        let frame = all.service(pad, "a packet", &rate, &Expr::from(0.0));
        let frame_scv = pad.put("variation of the sizes", "", frame.scv());
        let senders = match kind {
            Kind::Ring { .. } => sum(ports.iter().map(|p| p.stations.clone())),
            _ => sum(ports.iter().map(|p| when(&p.sends.pps.gt(0.0), &p.stations, 0.0))),
        };
        let senders = pad.put("stations that send, or pass a token", "", senders);
        let fullest = most(ports.iter().flat_map(|p| [p.sends.bits.clone(), p.receives.bits.clone()]));
        let load = if matches!(kind, Kind::Switch { .. }) { fullest } else { all.bits.clone() };
        let load = pad.put("load", "", load / &rate);
        let taken = if matches!(kind, Kind::Wifi { .. }) { all.airtime(&rate, &overhead) } else { load.clone() };
        let busy = pad.put("share of the time that it is taken", "", taken.only_if(&taken.lt(1.0)));
        let (waits, doubts) = (BTreeMap::new(), BTreeMap::new());
        let (links, around) = (Vec::new(), Expr::from(0.0));
        MediumModel {
            plan,
            medium,
            sheet,
            rate,
            overhead,
            all,
            senders,
            frame,
            frame_scv,
            load,
            busy,
            links,
            waits,
            doubts,
            around,
        }
    }

    fn name(&self, port: usize) -> String {
        self.plan.name(self.plan.ports[self.medium][port]).to_owned()
    }

    fn of_ports(&self, book: &mut Book, title: &str) -> Block {
        let heads: Vec<String> = (0..self.plan.ports[self.medium].len()).map(|p| self.name(p)).collect();
        book.block(self.sheet, title, &heads)
    }

    fn doubt(&mut self, from: usize, to: usize, condition: Cond, what: &str) {
        let name = &self.plan.topology.media[self.medium].name;
        self.doubts.entry((from, to)).or_default().push((condition, format!("{name}: {what}")));
    }

    fn add_links(&mut self, book: &mut Book, ports: &[Port]) {
        let block = self.of_ports(book, "Lines from and to the switch (M/G/1)");
        let zero = Expr::from(0.0);
        for (i, port) in ports.iter().enumerate() {
            let mut pad = book.pad(block, i);
            let sends = port.sends.service(&mut pad, "to the switch", &self.rate, &zero);
            let sends = QueueCells::put(&mut pad, "to the switch", &port.sends.pps, sends);
            let receives = port.receives.service(&mut pad, "from the switch", &self.rate, &zero);
            let receives = QueueCells::put(&mut pad, "from the switch", &port.receives.pps, receives);
            self.links.push((sends, receives));
        }
    }

    fn add_senders(&mut self, book: &mut Book, ports: &[Port]) {
        let propagation = self.plan.medium(self.medium, "propagation");
        let mut heads = vec!["the average station".to_owned()];
        let speak: Vec<usize> = (0..ports.len()).filter(|p| !ports[*p].sends.is_none()).collect();
        heads.extend(speak.iter().map(|p| self.name(*p)));
        let block = book.block(self.sheet, "CSMA/CD: frames through their attempts", &heads);
        let (rate, all) = (self.rate.clone(), self.all.clone());
        let average = all.over(&self.senders.max(1.0));
        let columns = speak.iter().map(|p| (Some(*p), ports[*p].sends.clone()));
        for (column, (port, own)) in std::iter::once((None, average)).chain(columns).enumerate() {
            let mut pad = book.pad(block, column);
            let own = own.put(&mut pad, "station sends");
            let sender = Sender { rate: &rate, propagation: &propagation, all: &all, own: &own };
            let access = sender.settle(&mut pad);
            let delay = sender.delay(&mut pad, &access);
            if let Some(port) = port {
                self.waits.insert((port, 0), delay);
                self.doubt(port, 0, access.busy.gt(ETHERNET_BUSY), &format!("busy beyond {ETHERNET_BUSY}"));
            } else {
                self.busy = access.busy;
            }
        }
    }

    fn add_stations(&mut self, book: &mut Book, ring: &Ring<'_>, ports: &[Port]) {
        let block = self.of_ports(book, "Stations on the ring");
        for (i, port) in ports.iter().enumerate() {
            let wait = ring.wait(&mut book.pad(block, i), &self.all, &self.frame, &port.sends);
            self.waits.insert((i, 0), wait.wait);
            let most = book::high(&WAIT, Quantity::Utilisation);
            self.doubt(i, 0, wait.share.gt(most), &format!("utilisation beyond {most}"));
        }
    }

    fn add_pairs(&mut self, book: &mut Book, ports: &[Port], streams: &Streams) {
        let heads: Vec<String> =
            streams.keys().map(|(from, to)| format!("{} > {}", self.name(*from), self.name(*to))).collect();
        if heads.is_empty() {
            return;
        }
        let (rate, overhead, all, weather) =
            (self.rate.clone(), self.overhead.clone(), self.all.clone(), self.weather());
        let squares = |(pair, stream): (&(usize, usize), &Traffic)| {
            stream.airtime(&rate, &overhead).powi(2) / pairs(ports, pair.0, pair.1)
        };
        let block = book.block(self.sheet, "Queues that take turns", &[]);
        let squares = book.pad(block, 0).put("squares of the queues' airtime", "", sum(streams.iter().map(squares)));
        let block = book.block(self.sheet, "From one station to another", &heads);
        for (column, (from, to)) in streams.keys().copied().enumerate() {
            let mut pad = book.pad(block, column);
            let queue = pair(ports, streams, from, to).put(&mut pad, "queue");
            let beside = pair(ports, streams, to, from).put(&mut pad, "the other way");
            let (rate, overhead) = (&rate, &overhead);
            let (all, weather, squares) = (&all, &weather, &squares);
            let station = StationQueue { rate, overhead, weather, all, queue: &queue, beside: &beside, squares };
            let delay = station.delay(&mut pad);
            let longer = pad.put("mean frame", "bit", queue.mean_bits());
            // As a wait, without the packet's own transmission time.
            self.waits.insert((from, to), delay.delay - longer / rate);
            let [load, loss] = [Quantity::Load, Quantity::FrameLoss].map(|q| book::high(&DELAY, q));
            self.doubt(from, to, delay.load.gt(load), &format!("load beyond {load}"));
            self.doubt(from, to, delay.loss.gt(loss), &format!("frames meet bad periods more often than {loss}"));
        }
    }

    /// Channel periods of a wireless cell; no bad periods elsewhere.
    pub(super) fn weather(&self) -> Weather {
        let Kind::Wifi { channel: weather, .. } = self.plan.kind(self.medium) else {
            return Weather {
                good: Expr::from(1.0),
                bad: Expr::from(0.0),
                periods: remora_model::wifi::Periods::Constant,
            };
        };
        let get = |key| self.plan.medium(self.medium, key);
        Weather { good: get("good"), bad: get("bad"), periods: weather.bad }
    }

    /// Reasons to doubt delays between two ports.
    pub(super) fn doubts(&self, from: usize, to: usize) -> DoubtCells {
        let wireless = matches!(self.plan.kind(self.medium), Kind::Wifi { .. });
        let own = self.doubts.get(&(from, if wireless { to } else { 0 })).cloned().unwrap_or_default();
        let links = [self.links.get(from).map(|(out, _)| out), self.links.get(to).map(|(_, into)| into)];
        let name = &self.plan.topology.media[self.medium].name;
        let most = book::high(&PORT_WAIT, Quantity::Utilisation);
        let full = |q: &QueueCells| (q.busy.gt(most), format!("{name}: utilisation beyond {most}"));
        own.into_iter().chain(links.into_iter().flatten().map(full)).collect()
    }

    /// Mean delay between two ports of a shared medium, for Poisson arrivals.
    pub(super) fn shared(&self, pad: &mut Pad<'_>, ports: &[Port], from: usize, to: usize, bits: &Expr) -> Expr {
        let wait = |at| self.waits.get(&at).cloned().unwrap_or_else(Expr::none);
        let delay = match self.plan.kind(self.medium) {
            Kind::Ethernet { .. } => wait((from, 0)) + (bits - ports[from].sends.mean_bits()) / &self.rate,
            Kind::Ring { .. } => {
                let way = pad.put("part of the ring on the way", "", access::way(ports, from, to));
                wait((from, 0)) + bits / &self.rate + way * &self.around
            }
            Kind::Wifi { .. } | Kind::Switch { .. } => wait((from, to)) + bits / &self.rate,
        };
        pad.put("delay of Poisson arrivals", "s", delay)
    }

    /// Capacity in packets per second; no value if no formula gives it.
    pub(super) fn capacity(&self) -> Expr {
        let Kind::Ethernet { .. } = self.plan.kind(self.medium) else { return Expr::none() };
        let propagation = self.plan.medium(self.medium, "propagation");
        let most = access::capacity(&self.rate, &propagation, &self.senders, &self.frame.mean);
        most.only_if(&self.all.pps.gt(0.0))
    }
}

/// Longest chain of gateways whose spacing is followed.
const CHAIN: usize = 4;

/// Computes the regularity of all ports and returns that of arrivals at gateways.
pub(super) fn settle(
    plan: &NetworkPlan<'_>,
    book: &mut Book,
    sheet: usize,
    loads: &mut Loads,
    cells: &[MediumModel<'_>],
    gateways: &[QueueCells],
    flows: &[Traffic],
) -> Vec<Expr> {
    processors(plan, book, sheet, loads);
    let mut regular = vec![Expr::from(0.0); gateways.len()];
    for round in 1..=gateways.len().min(CHAIN) {
        let spaced = spaced(plan, book, sheet, round, loads, cells);
        let names: Vec<String> = plan.topology.gateways.iter().map(|g| g.name.clone()).collect();
        let block = book.block(sheet, &format!("Regularity at gateways, round {round}"), &names);
        let mut behind = Vec::new();
        for (i, queue) in gateways.iter().enumerate() {
            let mut pad = book.pad(block, i);
            let all = &loads.gateways[i].pps;
            let attached = plan.places(Behind::Gateway(i));
            let share = |(medium, port): &(usize, usize)| {
                let ports = &loads.ports[*medium];
                &ports[*port].receives.pps / all * cells[*medium].regular(ports, *port, &spaced[*medium])
            };
            let comes = sum(attached.iter().map(share)).max(0.0).min(1.0);
            let comes = when(&all.gt(0.0), comes, &regular[i]);
            let comes = pad.put("more regular than Poisson, in", "", comes);
            let out = when(&all.gt(0.0), queue.departures(&comes) / all, 0.0);
            behind.push((attached, pad.put("the same going out, for each packet a second", "s", out)));
            regular[i] = comes;
        }
        for (attached, out) in behind {
            for (medium, port) in attached {
                let port = &mut loads.ports[medium][port];
                port.regular = &out * &port.sends.pps;
            }
        }
        behind_gateways(plan, book, sheet, round, loads, cells, flows);
    }
    regular
}

fn processors(plan: &NetworkPlan<'_>, book: &mut Book, sheet: usize, loads: &mut Loads) {
    let names: Vec<String> = plan.topology.groups.iter().map(|g| g.name.clone()).collect();
    let block = book.block(sheet, "Processors", &names);
    for group in 0..names.len() {
        let (mut pad, handled, cost) = (book.pad(block, group), &loads.handled[group], plan.group(group, "cost"));
        let Some((medium, port)) = plan.places(Behind::Group(group)).first().copied() else { continue };
        let port = &mut loads.ports[medium][port];
        let busy = pad.put("processor of each station: busy", "", (handled * &cost).min(1.0));
        let part =
            pad.put("of that for what it sends", "", when(&handled.gt(0.0), (&port.sends.pps / handled).min(1.0), 0.0));
        port.regular = pad.put("more regular than Poisson", "", busy.powi(2) * part);
        let interrupts = pad.put("busy with what comes in", "", (handled - &port.sends.pps).max(0.0) * &cost);
        port.spacing = pad.put("time for each packet", "s", cost / (1.0 - interrupts.min(0.9)));
    }
}

/// Regularity of arrivals at each shared medium.
fn spaced(
    plan: &NetworkPlan<'_>,
    book: &mut Book,
    sheet: usize,
    round: usize,
    loads: &Loads,
    cells: &[MediumModel<'_>],
) -> Vec<Expr> {
    let names: Vec<String> = plan.topology.media.iter().map(|m| m.name.clone()).collect();
    let block = book.block(sheet, &format!("Regularity on media, round {round}"), &names);
    let of = |(i, cell): (usize, &MediumModel<'_>)| {
        book.pad(block, i).put("more regular than Poisson", "", cell.spaced(&loads.ports[i]))
    };
    cells.iter().enumerate().map(of).collect()
}

/// Regularity at switch ports behind gateways.
fn behind_gateways(
    plan: &NetworkPlan<'_>,
    book: &mut Book,
    sheet: usize,
    round: usize,
    loads: &mut Loads,
    cells: &[MediumModel<'_>],
    flows: &[Traffic],
) {
    let mut streams: BTreeMap<(usize, usize), BTreeMap<usize, Expr>> = BTreeMap::new();
    for (route, traffic) in plan.network.flow_routes().iter().zip(flows) {
        for hop in route.hops.iter().skip(1).filter(|hop| !cells[hop.medium].links.is_empty()) {
            let from = streams.entry((hop.medium, hop.to)).or_default();
            let rate = from.entry(hop.from).or_insert_with(|| Expr::from(0.0));
            *rate = &*rate + &traffic.pps;
        }
    }
    if streams.is_empty() {
        return;
    }
    let name = |(medium, port): &(usize, usize)| plan.name(plan.ports[*medium][*port]).to_owned();
    let names: Vec<String> = streams.keys().map(name).collect();
    let block = book.block(sheet, &format!("Regularity behind gateways, round {round}"), &names);
    for (column, ((medium, to), streams)) in streams.into_iter().enumerate() {
        let ports = &loads.ports[medium];
        let of = |(from, rate): (usize, Expr)| {
            let (sent, port) = (&ports[from].sends.pps, &ports[to]);
            let received = &port.receives.pps;
            let part = &rate / sent * (&rate / &port.stations / received) / &port.stations;
            let regular = part * cells[medium].regular_out(ports, from);
            when(&sent.gt(0.0).and(&received.gt(0.0)), regular, 0.0)
        };
        let regular = sum(streams.into_iter().map(of)).min(1.0);
        let regular = book.pad(block, column).put("more regular than Poisson", "", regular);
        loads.ports[medium][to].regular_in = regular;
    }
}

/// Exponent by which spacing loses effect when the processor is faster than the medium.
const APART: i32 = 6;

/// Wait that spaced arrivals save on a medium.
pub(super) struct Spaced {
    ports: Vec<Expr>,
    /// Part of the wait for a shared medium.
    part: Expr,
    /// Regularity of arrivals at a shared medium, beyond Poisson.
    pub(super) regular: Expr,
    /// Regularity at a switch port caused by processors.
    regular_at: Vec<Expr>,
}

impl MediumModel<'_> {
    fn is_switch(&self) -> bool {
        matches!(self.plan.kind(self.medium), Kind::Switch { .. })
    }

    /// Regularity of arrivals at a shared medium, beyond Poisson.
    pub(super) fn spaced(&self, ports: &[Port]) -> Expr {
        let of = |p: &Port| &p.stations * &p.sends.pps * &p.regular;
        let regular = sum(ports.iter().map(of)) / &self.all.pps;
        when(&self.all.pps.gt(0.0), regular, 0.0)
    }

    /// Utilisation of the medium, at most 1.
    fn taken(&self) -> Expr {
        self.busy.or(1.0).min(1.0)
    }

    /// Regularity of departures at a port; `spaced` is that of arrivals.
    pub(super) fn regular(&self, ports: &[Port], port: usize, spaced: &Expr) -> Expr {
        let to = &ports[port];
        if let Some((_, into)) = self.links.get(port) {
            return into.departures(&to.regular_in);
        }
        let busy = self.taken().powi(2);
        let part = &to.receives.pps * &to.stations / self.all.pps.max(1e-12);
        let own = &busy * (1.0 - &self.frame_scv).max(0.0).min(1.0);
        part * (own + (1.0 - busy) * spaced)
    }

    /// Regularity of the packets that a port sent.
    pub(super) fn regular_out(&self, ports: &[Port], port: usize) -> Expr {
        self.links.get(port).map_or(Expr::from(0.0), |(out, _)| out.departures(&ports[port].regular))
    }

    pub(super) fn put_spaced(&self, book: &mut Book, ports: &[Port], streams: &Streams) -> Spaced {
        let block = book.block(self.sheet, "Packets that come spaced", &[]);
        let mut pad = book.pad(block, 0);
        let regular = pad.put("more regular than Poisson", "", self.spaced(ports));
        let part = if self.is_switch() {
            Expr::from(0.0)
        } else {
            self.taken().powi(2) * regular.min(1.0) / (1.0 + &self.frame_scv)
        };
        let part = pad.put("part of the waits that is spared", "", part);
        let heads: Vec<String> = self.plan.ports[self.medium].iter().map(|b| self.plan.name(*b).to_owned()).collect();
        let block = book.block(self.sheet, "Packets that processors have spaced", &heads);
        let (mut spared, mut regular_at) = (Vec::new(), Vec::new());
        for (i, port) in ports.iter().enumerate() {
            let mut pad = book.pad(block, i);
            spared.push(self.spared(&mut pad, port));
            regular_at.push(pad.put("more regular than Poisson at the port", "", self.regular_at(ports, streams, i)));
        }
        Spaced { ports: spared, part, regular, regular_at }
    }

    /// Wait that packets of one station are spared (Friedman 1965).
    fn spared(&self, pad: &mut Pad<'_>, from: &Port) -> Expr {
        let sent = from.sends.service(pad, "sent", &self.rate, &self.overhead);
        let points = sent.points(pad, "sent");
        let met = pad.put("met", "s2", points.mean_of(|time| time.min(&from.spacing).powi(2)));
        let own = &from.sends.pps * sent.mean.min(&from.spacing);
        let others = if self.is_switch() {
            Expr::from(0.0)
        } else {
            let apart = (&from.spacing / sent.mean.max(1e-12)).min(1.0).powi(APART);
            (self.busy.or(1.0) - &from.sends.pps * &sent.mean).max(0.0) * apart
        };
        let busy = pad.put("busy", "", (own + others).min(0.95));
        pad.put("wait that is spared", "s", &from.sends.pps * met / (2.0 * (1.0 - busy)))
    }

    /// Regularity at a switch port caused by processors, beyond Poisson.
    fn regular_at(&self, ports: &[Port], streams: &Streams, to: usize) -> Expr {
        if !self.is_switch() {
            return Expr::from(0.0);
        }
        let port = &ports[to];
        let all = &port.receives.pps * &port.stations;
        let group = |from: usize| matches!(self.plan.ports[self.medium][from], Behind::Group(_));
        let terms = streams.iter().filter(|((from, at), _)| *at == to && group(*from)).map(|((from, _), stream)| {
            let from = &ports[*from];
            let part = &stream.pps / (&from.stations * &from.sends.pps).max(1e-300);
            &stream.pps / &all * &from.regular * (part / &port.stations)
        });
        when(&all.gt(0.0), sum(terms), 0.0)
    }

    /// Delay of packets between two ports.
    pub(super) fn delay(&self, pad: &mut Pad<'_>, hop: &Hop, bits: &Expr, loads: &Loads, spaced: &Spaced) -> Expr {
        let (ports, streams) = (&loads.ports[self.medium], &loads.streams[self.medium]);
        let sending = pad.put("time to send", "s", bits / &self.rate);
        let delay = match (self.links.get(hop.from), self.links.get(hop.to)) {
            (Some((out, _)), Some((_, into))) => {
                let queues = Switched { out, into, regular: &spaced.regular_at[hop.to] };
                self.switched(pad, hop, &sending, ports, streams, &queues)
            }
            _ => self.shared(pad, ports, hop.from, hop.to, bits),
        };
        let spared = spaced.ports[hop.from].max(&spaced.part * (&delay - &sending));
        pad.put("delay", "s", &sending + (&delay - &sending - spared).max(0.0))
    }

    /// Delay through a switch, before spared waits.
    fn switched(
        &self,
        pad: &mut Pad<'_>,
        hop: &Hop,
        sending: &Expr,
        ports: &[Port],
        streams: &Streams,
        queues: &Switched<'_>,
    ) -> Expr {
        // More is known about the packets of a station's own processor.
        let regular = match self.plan.ports[self.medium][hop.from] {
            Behind::Group(_) => Expr::from(0.0),
            Behind::Gateway(_) => ports[hop.from].regular.clone(),
        };
        let wait_out = pad.put("wait to go to the switch", "s", queues.out.wait_of(&regular));
        let same = pair(ports, streams, hop.from, hop.to).put(pad, "from the same sender");
        let service = same.service(pad, "from the same sender", &self.rate, &Expr::from(0.0));
        let points = service.points(pad, "from the same sender");
        let before = QueueCells::put(pad, "from the same sender", &same.pps, service);
        let waited = pad.put("waited for the same sender before", "s", before.waited_before());
        let behind = |own: &Expr| {
            points.mean_of(|first| {
                let more = (first - own).max(0.0);
                &more * (first + &more / 2.0)
            })
        };
        let mean = pad.put("behind others of the same sender: mean", "s2", points.mean_of(behind));
        let own = pad.put("behind others of the same sender: this one", "s2", behind(sending));
        let longer = pad.put("waits more than others", "s", &same.pps * (own - mean));
        let busy = queues.into.busy.min(1.0);
        let left = 1.0 - queues.regular * busy.powi(2) / (1.0 + &queues.into.scv);
        let wait = (&queues.into.wait - waited).max(0.0) * left + longer;
        let wait_in = pad.put("wait to go from the switch", "s", wait.max(0.0));
        let latency = self.plan.medium(self.medium, "latency");
        pad.put("delay of Poisson arrivals", "s", wait_out + wait_in + 2.0 * sending + latency)
    }
}

/// The two queues of a path through a switch.
struct Switched<'a> {
    out: &'a QueueCells,
    into: &'a QueueCells,
    /// Regularity of arrivals at the second queue, beyond Poisson.
    regular: &'a Expr,
}
