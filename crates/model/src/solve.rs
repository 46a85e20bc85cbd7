//! From a network to its report: loads added along the routes, then each medium, gateway and way
//! by its formula.

use std::collections::BTreeMap;

use crate::cell::{Came, Cell, Port, Streams};
use crate::copying;
use crate::doubts::Doubts;
use crate::formula::{Estimate, Reason};
use crate::network::{Hop, Network, Route};
use crate::quantity::{Moments, Traffic};
use crate::queue::{BEHIND, GG1_WAIT, MG1_WAIT, MM1_P95, PROCESSOR, Queue, Tandem};
use crate::report::{CopyReport, FlowReport, GatewayReport, MediumReport, Report};
use crate::topology::{Gateway, Law};
use crate::walk::{Across, Behind, Walk};

/// Gateways behind one another whose spacing of packets is followed.
const CHAIN: usize = 4;

/// What everything carries.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    /// By medium and port.
    pub(crate) ports: Vec<Vec<Port>>,
    /// By medium.
    pub(crate) streams: Vec<Streams>,
    pub(crate) gateways: Vec<Traffic>,
    /// How much more regular than Poisson what comes to each gateway is.
    pub(crate) regular: Vec<f64>,
    /// Packets a second that each station of a group sends through a gateway.
    through: BTreeMap<(usize, usize), f64>,
    /// Packets a second that each station of a group sends and receives.
    pub(crate) handled: Vec<f64>,
}

impl Loads {
    fn new(network: &Network) -> Loads {
        let idle = |stations: &f64| Port { stations: *stations, ..Port::default() };
        Loads {
            ports: network.ports.iter().map(|ports| ports.iter().map(idle).collect()).collect(),
            streams: vec![Streams::new(); network.ports.len()],
            gateways: vec![Traffic::default(); network.topology.gateways.len()],
            regular: vec![0.0; network.topology.gateways.len()],
            through: BTreeMap::new(),
            handled: vec![0.0; network.topology.groups.len()],
        }
    }

    /// What the flows make.
    pub(crate) fn of_flows(network: &Network) -> Loads {
        let mut loads = Loads::new(network);
        for (flow, route) in network.topology.flows.iter().zip(&network.flows) {
            let senders = f64::from(network.topology.groups[route.from].stations);
            loads.add(network, route, Traffic::new(flow.rate, flow.size).times(senders));
        }
        loads
    }

    /// `total` along `route`, shared evenly by the stations of each group.
    pub(crate) fn add(&mut self, network: &Network, route: &Route, total: Traffic) {
        for hop in &route.hops {
            let ports = &mut self.ports[hop.medium];
            let from = &mut ports[hop.from];
            from.sends = from.sends.plus(total.times(1.0 / from.stations));
            let to = &mut ports[hop.to];
            to.receives = to.receives.plus(total.times(1.0 / to.stations));
            let stream = self.streams[hop.medium].entry((hop.from, hop.to)).or_default();
            *stream = stream.plus(total);
        }
        for gateway in &route.gateways {
            self.gateways[*gateway] = self.gateways[*gateway].plus(total);
            let stations = f64::from(network.topology.groups[route.from].stations);
            *self.through.entry((route.from, *gateway)).or_default() += total.packets_per_s() / stations;
        }
        for group in [route.from, route.to] {
            self.handled[group] += total.packets_per_s() / f64::from(network.topology.groups[group].stations);
        }
    }

    /// What packets of a group's station need not wait at a gateway for one another, because its processor has
    /// spaced them before, in seconds (of two queues the slower one has all of the wait, Friedman 1965).
    fn spared(&self, network: &Network, group: usize, gateway: usize) -> f64 {
        let cost_s = network.topology.groups[group].cost.get();
        let about = &network.topology.gateways[gateway];
        let service = gateway_service(about);
        let rate = self.through.get(&(group, gateway)).copied().unwrap_or(0.0);
        let others = self.gateways[gateway].packets_per_s() * service.mean - rate * service.mean;
        let busy = others.max(0.0) + rate * service.mean_of(|time| time.min(cost_s));
        rate * service.mean_of(|time| time.min(cost_s).powi(2)) / (2.0 * (1.0 - busy.min(0.95)))
    }

    /// Finds how regular arrivals are at gateways and behind them, one queue after the other (Whitt
    /// 1983: streams that join count by their rates, a part of a stream is as much more like Poisson
    /// as it is smaller).
    fn settle_regularity(&mut self, network: &Network) {
        for ((group, (medium, port)), handled) in
            network.topology.groups.iter().zip(&network.group_ports).zip(&self.handled)
        {
            let port = &mut self.ports[*medium][*port];
            let busy = (handled * group.cost.get()).min(1.0);
            // Of what the processor handles, packets to send are a part.
            let part = if *handled > 0.0 { (port.sends.packets_per_s() / handled).min(1.0) } else { 0.0 };
            port.regular = busy * busy * part;
            // What comes in interrupts.
            let interrupts = (handled - port.sends.packets_per_s()).max(0.0) * group.cost.get();
            port.spacing_s = group.cost.get() / (1.0 - interrupts.min(0.9));
        }
        // From one gateway to the next.
        for _ in 0..network.topology.gateways.len().min(CHAIN) {
            self.settle_gateways(network);
        }
    }

    fn settle_gateways(&mut self, network: &Network) {
        let cells = self.cells(network);
        let mut behind = Vec::new();
        for (i, (gateway, attached)) in network.topology.gateways.iter().zip(&network.attached).enumerate() {
            let all = self.gateways[i].packets_per_s();
            if all <= 0.0 {
                continue;
            }
            let share = |(medium, port): &(usize, usize)| {
                let port = &self.ports[*medium][*port];
                port.receives.packets_per_s() / all * cells[*medium].regular(port)
            };
            let regular = attached.iter().map(share).sum::<f64>().clamp(0.0, 1.0);
            let out = Tandem { queue: gateway_queue(gateway, self.gateways[i]), regular }.departures();
            behind.push((i, regular, out / all));
        }
        drop(cells);
        for (i, regular, out) in behind {
            self.regular[i] = regular;
            for (medium, port) in &network.attached[i] {
                let port = &mut self.ports[*medium][*port];
                port.regular = out * port.sends.packets_per_s();
            }
        }
        self.settle_behind_gateways(network);
    }

    /// The same at the ports that gateways send to.
    fn settle_behind_gateways(&mut self, network: &Network) {
        let mut streams: BTreeMap<(usize, usize, usize), f64> = BTreeMap::new();
        for (flow, route) in network.topology.flows.iter().zip(&network.flows) {
            let rate = flow.rate.get() * f64::from(network.topology.groups[route.from].stations);
            for hop in route.hops.iter().skip(1) {
                *streams.entry((hop.medium, hop.from, hop.to)).or_default() += rate;
            }
        }
        let cells = self.cells(network);
        let mut found = Vec::new();
        for ((medium, from, to), rate) in streams {
            let (from, port) = (&self.ports[medium][from], &self.ports[medium][to]);
            let (sent, received) = (from.sends.packets_per_s(), port.receives.packets_per_s());
            if sent > 0.0 && received > 0.0 {
                found.push((
                    medium,
                    to,
                    rate / sent * (rate / port.stations / received) / port.stations * cells[medium].regular_out(from),
                ));
            }
        }
        drop(cells);
        for port in self.ports.iter_mut().flatten() {
            port.regular_in = 0.0;
        }
        for (medium, to, regular) in found {
            let port = &mut self.ports[medium][to];
            port.regular_in = (port.regular_in + regular).min(1.0);
        }
    }

    pub(crate) fn cells<'a>(&'a self, network: &'a Network) -> Vec<Cell<'a>> {
        let loads = self.ports.iter().zip(&self.streams);
        network
            .topology
            .media
            .iter()
            .zip(loads)
            .map(|(medium, (ports, streams))| Cell::new(medium, ports, streams))
            .collect()
    }
}

impl Network {
    /// Solves the network: every flow and copy beside all others.
    pub fn solve(&self) -> Report {
        let flows = Loads::of_flows(self);
        let solved = copying::solve(self, &flows);
        let mut loads = flows.clone();
        for (i, (there, back)) in self.copies.iter().enumerate() {
            let (data, reply) = copying::traffic(&self.topology.copies[i], solved.rates[i]);
            loads.add(self, there, data);
            loads.add(self, back, reply);
        }
        loads.settle_regularity(self);
        let cells = loads.cells(self);
        let gateways = vec![Behind::default(); self.topology.gateways.len()];
        let mut across = Across { media: vec![None; cells.len()], gateways };
        let flow_reports: Vec<FlowReport> =
            (0..self.flows.len()).map(|i| self.flow(i, &loads, &cells, &mut across)).collect();
        let media = cells.iter().zip(across.media).zip(&self.topology.media);
        let media = media.map(|((cell, across), medium)| medium_report(&medium.name, cell, across)).collect();
        let gateways =
            self.topology.gateways.iter().zip(loads.gateways.iter().zip(&loads.regular)).zip(across.gateways);
        let gateways = gateways
            .map(|((gateway, (load, regular)), behind)| gateway_report(gateway, *load, *regular, behind))
            .collect();
        let rates = solved.rates.clone();
        let copies = self.copy_reports(solved);
        let report = Report { stations: self.stations(), media, gateways, flows: flow_reports, copies };
        Doubts { network: self, rates: &rates, with: &loads, without: &flows }.of(report)
    }

    /// A flow's way; adds what it tells about each medium and gateway to `across`.
    fn flow(&self, i: usize, loads: &Loads, cells: &[Cell<'_>], across: &mut Across) -> FlowReport {
        let (flow, route) = (&self.topology.flows[i], &self.flows[i]);
        let packets_per_s = flow.rate.get() * f64::from(self.topology.groups[route.from].stations);
        let mut walk = Walk::new(route.from, packets_per_s, flow.size.mean_bits());
        let group = &self.topology.groups[route.from];
        if group.stations == 1 {
            // None of its packets follows the one before faster than its processor makes them.
            walk.came.least_s = group.cost.get();
        }
        for (at, hop) in route.hops.iter().enumerate() {
            self.medium_on_way(&mut walk, hop, cells, across);
            if let Some(gateway) = route.gateways.get(at) {
                let slowest_s = route.gateways[at..].iter().map(|g| self.topology.gateways[*g].cost.get());
                walk.slowest_s = slowest_s.fold(0.0, f64::max);
                self.gateway_on_way(&mut walk, hop, *gateway, (loads, cells), across);
            }
        }
        let processor = PROCESSOR.at(&(loads.handled[route.from] * self.topology.groups[route.from].cost.get()));
        let (total, parts) = walk.doubted();
        let delay_s = total.with(processor, |total, ()| total);
        FlowReport { from: flow.from.clone(), to: flow.to.clone(), packets_per_s, delay_s, parts }
    }

    fn medium_on_way(&self, walk: &mut Walk, hop: &Hop, cells: &[Cell<'_>], across: &mut Across) {
        let (cell, first) = (&cells[hop.medium], walk.parts.is_empty());
        let delay = cell.delay(hop, walk.bits, !first);
        walk.here_s = delay.value().copied();
        let astray_s = walk.here_s.filter(|_| !first).map_or(0.0, |d| cell.astray(hop, &walk.came, d, walk.bits));
        walk.astray_s += astray_s;
        walk.came.bit_s = walk.came.bit_s.max(cell.bit_s());
        walk.came.least_s = walk.came.least_s.max(cell.token_s(hop));
        let packets_per_s = walk.packets_per_s;
        if packets_per_s > 0.0 {
            let part = walk.here_s.map_or(0.0, |d| astray_s / d.max(1e-12));
            let here = delay.clone().map(|d| (packets_per_s, packets_per_s * d));
            let here = here.with(BEHIND.at(&part), |here, ()| here);
            let slot = &mut across.media[hop.medium];
            *slot = Some(match slot.take() {
                Some(before) => before.with(here, |a, b| (a.0 + b.0, a.1 + b.1)),
                None => here,
            });
        }
        walk.add(&self.topology.media[hop.medium].name, delay);
    }

    /// The gateway behind `hop`.
    fn gateway_on_way(
        &self,
        walk: &mut Walk,
        hop: &Hop,
        gateway: usize,
        (loads, cells): (&Loads, &[Cell<'_>]),
        across: &mut Across,
    ) {
        let (about, arrives, cell) = (&self.topology.gateways[gateway], loads.gateways[gateway], &cells[hop.medium]);
        let bunched = walk.here_s.map_or(0.0, |delay_s| cell.bunched(hop, delay_s, walk.bits));
        walk.bursts_s += bunched * walk.slowest_s;
        let spared_s = loads.spared(self, walk.from, gateway);
        walk.spaced_s += spared_s;
        let comes = Comes { regular: loads.regular[gateway], longer_s: cell.longer(hop, walk.bits), spared_s };
        let through = gateway_delay(about, arrives, &comes);
        let queue = gateway_queue(about, arrives);
        let waits_s = through.value().map_or(0.0, |through_s| through_s - about.cost.get());
        let poisson_s = MG1_WAIT.at(&queue).value().copied().unwrap_or(0.0);
        let off_s = |spared: f64| (poisson_s * (1.0 - spared) - waits_s).abs();
        let (spared, part) = cell.spared_behind(hop.to, &walk.came, &queue, arrives);
        let astray_s = off_s(part * spared).max(off_s(self.spared_at(gateway, &queue, arrives, cells)));
        // While a long packet has come over the slowest medium nobody came behind it, and what waits here got less.
        let longer_s = (walk.bits - arrives.mean_bits()) * walk.came.bit_s;
        let gone_s = (longer_s - comes.longer_s).abs() * queue.utilisation();
        let astray_s = astray_s + gone_s.min(waits_s);
        walk.astray_s += astray_s;
        // What has come out together stays so at the gateways behind.
        walk.together += bunched;
        across.gateways[gateway].add(walk.packets_per_s, astray_s, walk.together * about.cost.get());
        if about.law == Law::Constant {
            walk.came.least_s = walk.came.least_s.max(about.cost.get());
        }
        walk.add(&about.name, through);
    }

    /// What all packets together need not wait at a gateway because those of each medium come one behind the
    /// other, as a part of the wait of Poisson arrivals.
    fn spared_at(&self, gateway: usize, queue: &Queue, arrives: Traffic, cells: &[Cell<'_>]) -> f64 {
        let of = |(medium, port): &(usize, usize)| {
            let came = Came { bit_s: cells[*medium].bit_s(), least_s: 0.0 };
            let (spared, part) = cells[*medium].spared_behind(*port, &came, queue, arrives);
            part * part * spared
        };
        self.attached[gateway].iter().map(of).sum()
    }

    fn copy_reports(&self, solved: copying::Solved) -> Vec<CopyReport> {
        let settled = solved.settled;
        let reports = self.topology.copies.iter().zip(solved.outcomes).map(|(copy, outcome)| CopyReport {
            from: copy.from.clone(),
            to: copy.to.clone(),
            window: copy.window,
            outcome: if settled { outcome } else { outcome.doubt(Reason::Unsettled) },
        });
        reports.collect()
    }
}

fn medium_report(name: &str, cell: &Cell<'_>, across: Option<Estimate<(f64, f64)>>) -> MediumReport {
    let offered = cell.all().packets_per_s();
    let busy = cell.busy();
    MediumReport {
        name: name.to_owned(),
        load: cell.load(),
        busy,
        offered_packets_per_s: offered,
        carried_packets_per_s: if busy.is_some() { Some(offered) } else { cell.capacity().map(|c| c.min(offered)) },
        mean_bits: cell.all().mean_bits(),
        delay_s: across.map(|sums| sums.map(|(packets, weighted)| weighted / packets)),
    }
}

/// A gateway's time for a packet.
pub(crate) fn gateway_service(gateway: &Gateway) -> Moments {
    match gateway.law {
        Law::Constant => Moments::constant(gateway.cost.get()),
        Law::Exponential => Moments::exponential(gateway.cost.get()),
    }
}

/// A gateway with what comes to it.
pub(crate) fn gateway_queue(gateway: &Gateway, load: Traffic) -> Queue {
    Queue { arrivals_per_s: load.packets_per_s(), service: gateway_service(gateway) }
}

/// How a flow's packets come to a gateway.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Comes {
    /// How much more regular than Poisson all that comes is.
    regular: f64,
    /// How much longer than the average packet these take to come in, in seconds: as long nobody comes behind
    /// whom they would wait, and what waits there gets less.
    longer_s: f64,
    /// What they need not wait for others of the same station, in seconds.
    spared_s: f64,
}

fn gateway_delay(gateway: &Gateway, load: Traffic, comes: &Comes) -> Estimate<f64> {
    let tandem = Tandem { queue: gateway_queue(gateway, load), regular: comes.regular };
    let busy = tandem.queue.utilisation();
    let poisson = MG1_WAIT.at(&tandem.queue).value().copied().unwrap_or(0.0);
    GG1_WAIT.at(&tandem).map(|wait| {
        let wait = wait.min((poisson - comes.spared_s).max(0.0));
        let left = if wait > 0.0 { (-comes.longer_s * busy / wait).exp() } else { 1.0 };
        wait * left.min(2.0) + gateway.cost.get()
    })
}

fn gateway_report(gateway: &Gateway, load: Traffic, regular: f64, behind: Behind) -> GatewayReport {
    let queue = gateway_queue(gateway, load);
    let delay = gateway_delay(gateway, load, &Comes { regular, ..Comes::default() });
    let delay = behind.doubted(delay);
    GatewayReport {
        name: gateway.name.clone(),
        utilisation: queue.utilisation(),
        packets_per_s: load.packets_per_s(),
        delay_s: delay,
        p95_s: (gateway.law == Law::Exponential).then(|| MM1_P95.at(&queue)),
    }
}
