//! From a network to its report: loads added along the routes, then each medium, gateway and way
//! by its formula.

use std::collections::BTreeMap;

use crate::cell::{Cell, Port, Streams};
use crate::copying;
use crate::formula::{Estimate, Reason};
use crate::network::{Hop, Network, Route};
use crate::quantity::{Moments, Traffic};
use crate::queue::{BURSTS, GG1_WAIT, MG1_WAIT, MM1_P95, PROCESSOR, Queue, SPACED, Tandem};
use crate::report::{CopyReport, FlowReport, GatewayReport, MediumReport, Part, Report};
use crate::topology::{Gateway, Kind, Law};

/// Up to this share of a place's traffic the bursts of copies do not show in others' delays.
const COPIES_LITTLE: f64 = 0.02;

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
        let mut across: Vec<Option<Estimate<(f64, f64)>>> = vec![None; cells.len()];
        let alone = flows.cells(self);
        let beside = |hop: &Hop| {
            let (with, without) = (&loads.ports[hop.medium], &flows.ports[hop.medium]);
            let shared = matches!(self.topology.media[hop.medium].kind, Kind::Switch { .. });
            bursts(with[hop.from].sends, without[hop.from].sends)
                || bursts(with[hop.to].receives, without[hop.to].receives)
                || !shared && bursts(cells[hop.medium].all(), alone[hop.medium].all())
        };
        let flows = (0..self.flows.len()).map(|i| {
            let report = self.flow(i, &loads, &cells, &mut across);
            if self.flows[i].hops.iter().any(beside) { report.doubt(Reason::BesideCopy) } else { report }
        });
        let flows = flows.collect();
        let media = cells.iter().zip(across).zip(&self.topology.media);
        let media = media.map(|((cell, across), medium)| medium_report(&medium.name, cell, across)).collect();
        let gateways = self.topology.gateways.iter().zip(loads.gateways.iter().zip(&loads.regular));
        Report {
            stations: self.stations(),
            media,
            gateways: gateways.map(|(gateway, (load, regular))| gateway_report(gateway, *load, *regular)).collect(),
            flows,
            copies: self.copy_reports(solved),
        }
    }

    /// A flow's way; adds what it tells about each medium to `across`: packets a second, and
    /// packets a second times delay.
    fn flow(
        &self,
        i: usize,
        loads: &Loads,
        cells: &[Cell<'_>],
        across: &mut [Option<Estimate<(f64, f64)>>],
    ) -> FlowReport {
        let (flow, route) = (&self.topology.flows[i], &self.flows[i]);
        let packets_per_s = flow.rate.get() * f64::from(self.topology.groups[route.from].stations);
        let mut total = Estimate::given(0.0);
        let mut parts = Vec::new();
        let (mut bursts_s, mut spaced_s) = (0.0, 0.0);
        let mut add = |name: &str, delay: Estimate<f64>| {
            parts.push(Part { name: name.to_owned(), delay_s: delay.value().copied() });
            total = std::mem::replace(&mut total, Estimate::given(0.0)).plus(delay);
        };
        for (at, hop) in route.hops.iter().enumerate() {
            let (cell, bits) = (&cells[hop.medium], flow.size.mean_bits());
            let delay = cell.delay(hop, bits, at > 0);
            if packets_per_s > 0.0 {
                let here = delay.clone().map(|d| (packets_per_s, packets_per_s * d));
                let slot = &mut across[hop.medium];
                *slot = Some(match slot.take() {
                    Some(before) => before.with(here, |a, b| (a.0 + b.0, a.1 + b.1)),
                    None => here,
                });
            }
            let delay_s = delay.value().copied();
            add(&self.topology.media[hop.medium].name, delay);
            if let Some(gateway) = route.gateways.get(at) {
                let about = &self.topology.gateways[*gateway];
                let slowest_s = route.gateways[at..].iter().map(|g| self.topology.gateways[*g].cost.get());
                let bunched = delay_s.map_or(0.0, |delay_s| cell.bunched(hop, delay_s, bits));
                bursts_s += bunched * slowest_s.fold(0.0, f64::max);
                let spared_s = loads.spared(self, route.from, *gateway);
                spaced_s += spared_s;
                let comes = Comes { regular: loads.regular[*gateway], longer_s: cell.longer(hop, bits), spared_s };
                add(&about.name, gateway_delay(about, loads.gateways[*gateway], &comes));
            }
        }
        let about = &self.topology.groups[route.from];
        let bursts = total.value().map_or(0.0, |total_s| bursts_s / total_s.max(1e-12));
        let spacing = total.value().map_or(0.0, |total_s| spaced_s / total_s.max(1e-12));
        let total = total.with(BURSTS.at(&bursts), |total, ()| total).with(SPACED.at(&spacing), |total, ()| total);
        let total = total.with(PROCESSOR.at(&(loads.handled[route.from] * about.cost.get())), |total, ()| total);
        FlowReport { from: flow.from.clone(), to: flow.to.clone(), packets_per_s, delay_s: total, parts }
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

/// Whether copies make more than a little of a place's traffic.
fn bursts(with: Traffic, without: Traffic) -> bool {
    with.bits_per_s() - without.bits_per_s() > COPIES_LITTLE * with.bits_per_s()
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

fn gateway_report(gateway: &Gateway, load: Traffic, regular: f64) -> GatewayReport {
    let queue = gateway_queue(gateway, load);
    GatewayReport {
        name: gateway.name.clone(),
        utilisation: queue.utilisation(),
        packets_per_s: load.packets_per_s(),
        delay_s: gateway_delay(gateway, load, &Comes { regular, ..Comes::default() }),
        p95_s: (gateway.law == Law::Exponential).then(|| MM1_P95.at(&queue)),
    }
}
