//! The traffic of every medium, gateway and station, and its regularity.

use std::collections::BTreeMap;

use crate::cell::{Cell, Port, Streams};
use crate::formulas::queue::{Queue, Tandem};
use crate::network::{Network, Route};
use crate::quantity::{Moments, Traffic};
use crate::topology::{Gateway, Law};

/// Consecutive gateways across which the regularity of a stream is followed.
const CHAIN: usize = 4;

/// The traffic of every medium, gateway and station.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    pub(crate) ports: Vec<Vec<Port>>,
    pub(crate) streams: Vec<Streams>,
    pub(crate) gateways: Vec<Traffic>,
    /// Regularity of the arrivals at each gateway.
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

    pub(crate) fn of_flows(network: &Network) -> Loads {
        let mut loads = Loads::new(network);
        for (flow, route) in network.topology.flows.iter().zip(&network.flows) {
            let senders = f64::from(network.topology.groups[route.from].stations);
            loads.add(network, route, Traffic::new(flow.rate, flow.size).times(senders));
        }
        loads
    }

    /// Adds `total` along `route`, divided evenly among the stations of each group.
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

    /// The wait in seconds saved at a gateway by packets of one station, because its processor
    /// spaced them before (of two queues the slower one has all of the wait, Friedman 1965).
    pub(super) fn saved(&self, network: &Network, group: usize, gateway: usize) -> f64 {
        let cost_s = network.topology.groups[group].cost.get();
        let about = &network.topology.gateways[gateway];
        let service = gateway_service(about);
        let rate = self.through.get(&(group, gateway)).copied().unwrap_or(0.0);
        let others = self.gateways[gateway].packets_per_s() * service.mean - rate * service.mean;
        let busy = others.max(0.0) + rate * service.mean_of(|time| time.min(cost_s));
        rate * service.mean_of(|time| time.min(cost_s).powi(2)) / (2.0 * (1.0 - busy.min(0.95)))
    }

    /// Calculates the regularity of arrivals at gateways and behind them, queue by queue (Whitt
    /// 1983: joining streams count by their rates; the smaller a part of a stream, the closer to
    /// Poisson).
    pub(super) fn settle_regularity(&mut self, network: &Network) {
        for ((group, (medium, port)), handled) in
            network.topology.groups.iter().zip(&network.group_ports).zip(&self.handled)
        {
            let port = &mut self.ports[*medium][*port];
            let busy = (handled * group.cost.get()).min(1.0);
            // Packets to send are a part of those the processor handles.
            let part = if *handled > 0.0 { (port.sends.packets_per_s() / handled).min(1.0) } else { 0.0 };
            port.regular = busy * busy * part;
            // Arriving packets interrupt the processor.
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

    /// Calculates the regularity at the ports to which gateways send.
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

/// A gateway's service time of a packet.
pub(crate) fn gateway_service(gateway: &Gateway) -> Moments {
    match gateway.law {
        Law::Constant => Moments::constant(gateway.cost.get()),
        Law::Exponential => Moments::exponential(gateway.cost.get()),
    }
}

pub(crate) fn gateway_queue(gateway: &Gateway, load: Traffic) -> Queue {
    Queue { arrivals_per_s: load.packets_per_s(), service: gateway_service(gateway) }
}
