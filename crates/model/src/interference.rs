//! The unmodelled influence of flows and copies on one another, as reasons to doubt the report.
//!
//! * The formulas treat the packets of copies as separate arrivals, but they come in bursts. Where
//!   copies have a noticeable share of the traffic, or a burst may cause a noticeable share of
//!   others' delay, the figures are doubted; so are all on the route of a copy whose rate no formula
//!   gives.
//! * A saturated resource passes on less than the flows offer.

use std::collections::{BTreeMap, BTreeSet};

use crate::formula::{Estimate, Reason};
use crate::formulas::queue::PROCESSOR;
use crate::loads::Loads;
use crate::network::{Hop, Network, Route};
use crate::quantity::Traffic;
use crate::report::{FlowReport, Report};
use crate::topology::{Burst, Copy, Kind};

/// A smaller share of a resource's traffic is negligible.
const TRAFFIC_LITTLE: f64 = 0.02;
/// A smaller share of a delay is negligible.
const DELAY_LITTLE: f64 = 0.04;

/// A point at which packets wait for one another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum QueuePoint {
    Medium(usize),
    /// The incoming direction of a switch's port.
    From(usize, usize),
    /// The outgoing direction of a switch's port.
    To(usize, usize),
    Gateway(usize),
}

/// The delay by bursts at a queueing point: packets a second, and their delay.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct BurstDelay {
    packets: f64,
    sum_s: f64,
}

impl BurstDelay {
    fn add(&mut self, packets_per_s: f64, held_s: f64) {
        if packets_per_s > 0.0 {
            self.packets += packets_per_s;
            self.sum_s += packets_per_s * held_s;
        }
    }

    /// Whether that is a noticeable share of a delay.
    fn counts(&self, delay: &Estimate<f64>) -> bool {
        delay.value().is_some_and(|delay_s| self.sum_s > DELAY_LITTLE * delay_s * self.packets)
    }
}

/// A solved network, with and without its copies.
pub(crate) struct Interference<'a> {
    pub(crate) network: &'a Network,
    /// Blocks a second of each copy.
    pub(crate) rates: &'a [f64],
    pub(crate) with: &'a Loads,
    pub(crate) without: &'a Loads,
}

impl Interference<'_> {
    /// Adds the reasons to the report.
    pub(crate) fn of(&self, mut report: Report) -> Report {
        self.beside_copies(&mut report);
        self.starved(&mut report);
        report
    }

    /// Packets delayed by bursts arrive together at all later points, too.
    fn beside_copies(&self, report: &mut Report) {
        let bursts = self.bursts(report);
        let held_s = |point: &QueuePoint| self.held_s(&bursts, *point);
        let mut media = vec![BurstDelay::default(); self.network.topology.media.len()];
        let mut gateways = vec![BurstDelay::default(); self.network.topology.gateways.len()];
        for (route, flow) in self.network.flows.iter().zip(&mut report.flows) {
            let mut all_s = 0.0;
            for (i, hop) in route.hops.iter().enumerate() {
                all_s += self.places(hop).iter().map(held_s).sum::<f64>();
                media[hop.medium].add(flow.packets_per_s, all_s);
                if let Some(gateway) = route.gateways.get(i) {
                    all_s += held_s(&QueuePoint::Gateway(*gateway));
                    gateways[*gateway].add(flow.packets_per_s, all_s);
                }
            }
            if all_s > flow.delay_s.value().map_or(0.0, |delay_s| DELAY_LITTLE * delay_s) {
                flow.delay_s.suspect(Reason::BesideCopy);
            }
        }
        for (medium, held) in report.media.iter_mut().zip(media) {
            if let Some(delay) = medium.delay_s.as_mut().filter(|delay| held.counts(delay)) {
                delay.suspect(Reason::BesideCopy);
            }
        }
        for (i, (gateway, held)) in report.gateways.iter_mut().zip(gateways).enumerate() {
            if held_s(&QueuePoint::Gateway(i)).is_infinite() || held.counts(&gateway.delay_s) {
                gateway.suspect(&Reason::BesideCopy);
            }
        }
    }

    /// Possible added wait by bursts at `point`, in seconds; infinite if copies have a noticeable
    /// share of its traffic.
    fn held_s(&self, bursts: &BTreeMap<QueuePoint, f64>, point: QueuePoint) -> f64 {
        let (with, without) = (traffic(self.with, point), traffic(self.without, point));
        if with.bits_per_s() - without.bits_per_s() > TRAFFIC_LITTLE * with.bits_per_s() {
            return f64::INFINITY;
        }
        bursts.get(&point).copied().unwrap_or(0.0)
    }

    /// Possible added mean wait by bursts at each point, in seconds, if a whole window queues
    /// there; infinite if the rate of the copy is unknown.
    fn bursts(&self, report: &Report) -> BTreeMap<QueuePoint, f64> {
        let mut bursts = BTreeMap::new();
        let copies = self.network.topology.copies.iter().zip(&self.network.copies).zip(self.rates);
        for (((copy, (there, back)), rate), about) in copies.zip(&report.copies) {
            if about.outcome.value().is_none() {
                let points = [there, back].into_iter().flat_map(|route| self.along_route(route));
                bursts.extend(points.map(|point| (point, f64::INFINITY)));
                continue;
            }
            for (route, burst) in [(there, &copy.data), (back, &copy.reply)] {
                self.along(&mut bursts, copy, route, burst, *rate);
            }
            self.behind_software(&mut bursts, copy, there, *rate);
        }
        bursts
    }

    fn along(&self, bursts: &mut BTreeMap<QueuePoint, f64>, copy: &Copy, route: &Route, burst: &Burst, rate: f64) {
        let mut add = |point: QueuePoint, packet_s: f64, stations: f64| {
            let block_s = burst.packets * packet_s;
            // An arrival of the same station waits for half of a block and all blocks behind it.
            let queue_s = (f64::from(copy.under_way()) - 0.5) * block_s;
            *bursts.entry(point).or_insert(0.0) += (rate * block_s).min(1.0) * queue_s / stations;
        };
        for hop in &route.hops {
            let medium = &self.network.topology.media[hop.medium];
            let overhead_s = if let Kind::Wifi { overhead, .. } = medium.kind { overhead.get() } else { 0.0 };
            let packet_s = burst.size.mean_bits() / medium.rate.bits() as f64 + overhead_s;
            for point in self.places(hop) {
                add(point, packet_s, self.stations(point));
            }
        }
        for gateway in &route.gateways {
            add(QueuePoint::Gateway(*gateway), self.network.topology.gateways[*gateway].cost.get(), 1.0);
        }
    }

    /// While a sender's software handles a block, its flows' packets accumulate and leave together.
    fn behind_software(&self, bursts: &mut BTreeMap<QueuePoint, f64>, copy: &Copy, there: &Route, rate: f64) {
        let Some(hop) = there.hops.first() else { return };
        let bits_per_s = self.network.topology.media[hop.medium].rate.bits() as f64;
        let sends = self.without.ports[hop.medium][hop.from].sends;
        let gathered_s = copy.software.get() * sends.bits_per_s() / bits_per_s;
        let gathered = copy.software.get() * sends.packets_per_s();
        for point in self.places(hop) {
            let all = traffic(self.without, point).packets_per_s() * self.stations(point);
            if all > 0.0 {
                // Accumulated packets wait for one another.
                *bursts.entry(point).or_insert(0.0) += rate * gathered * gathered_s / 2.0 / all;
            }
        }
    }

    /// Interference flows that receive less than offered because an earlier resource is saturated.
    fn starved(&self, report: &mut Report) {
        let mut missing = BTreeMap::new();
        for ((route, flow), about) in self.network.flows.iter().zip(&report.flows).zip(&self.network.topology.flows) {
            for point in self.behind_full(route, flow) {
                *missing.entry(point).or_insert(0.0) += flow.packets_per_s * about.size.mean_bits();
            }
        }
        let counts = |(point, bits_per_s): (QueuePoint, f64)| {
            let all = traffic(self.with, point).bits_per_s() * self.stations(point);
            (bits_per_s > TRAFFIC_LITTLE * all).then_some(point)
        };
        let starved: BTreeSet<QueuePoint> = missing.into_iter().filter_map(counts).collect();
        let meets = |route: &Route| self.along_route(route).iter().any(|point| starved.contains(point));
        for (route, flow) in self.network.flows.iter().zip(&mut report.flows) {
            if meets(route) {
                flow.delay_s.suspect(Reason::Starved);
            }
        }
        for ((there, back), copy) in self.network.copies.iter().zip(&mut report.copies) {
            if meets(there) || meets(back) {
                copy.outcome.suspect(Reason::Starved);
            }
        }
        for point in starved {
            match point {
                QueuePoint::Medium(i) | QueuePoint::From(i, _) | QueuePoint::To(i, _) => {
                    if let Some(delay) = report.media.get_mut(i).and_then(|medium| medium.delay_s.as_mut()) {
                        delay.suspect(Reason::Starved);
                    }
                }
                QueuePoint::Gateway(i) => {
                    if let Some(gateway) = report.gateways.get_mut(i) {
                        gateway.suspect(&Reason::Starved);
                    }
                }
            }
        }
    }

    /// The points on a flow's route behind a saturated one.
    fn behind_full(&self, route: &Route, flow: &FlowReport) -> Vec<QueuePoint> {
        let group = &self.network.topology.groups[route.from];
        let busy = self.with.handled[route.from] * group.cost.get();
        let mut full = flow.packets_per_s > 0.0 && PROCESSOR.at(&busy).value().is_none();
        let mut behind = Vec::new();
        for (i, part) in flow.parts.iter().enumerate() {
            if full {
                let hop = route.hops.get(i / 2).filter(|_| i % 2 == 0).map(|hop| self.places(hop));
                let gateway = route.gateways.get(i / 2).filter(|_| i % 2 == 1).map(|g| vec![QueuePoint::Gateway(*g)]);
                behind.extend(hop.or(gateway).into_iter().flatten());
            }
            full |= flow.packets_per_s > 0.0 && part.delay_s.is_none();
        }
        behind
    }

    fn along_route(&self, route: &Route) -> Vec<QueuePoint> {
        let hops = route.hops.iter().flat_map(|hop| self.places(hop));
        hops.chain(route.gateways.iter().map(|g| QueuePoint::Gateway(*g))).collect()
    }

    fn places(&self, hop: &Hop) -> Vec<QueuePoint> {
        match self.network.topology.media[hop.medium].kind {
            Kind::Switch { .. } => vec![QueuePoint::From(hop.medium, hop.from), QueuePoint::To(hop.medium, hop.to)],
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => vec![QueuePoint::Medium(hop.medium)],
        }
    }

    /// Stations behind a port.
    fn stations(&self, point: QueuePoint) -> f64 {
        match point {
            QueuePoint::From(medium, port) | QueuePoint::To(medium, port) => self.with.ports[medium][port].stations,
            QueuePoint::Medium(_) | QueuePoint::Gateway(_) => 1.0,
        }
    }
}

/// The traffic of a point, for each station behind it.
fn traffic(loads: &Loads, point: QueuePoint) -> Traffic {
    match point {
        QueuePoint::From(medium, port) => loads.ports[medium][port].sends,
        QueuePoint::To(medium, port) => loads.ports[medium][port].receives,
        QueuePoint::Gateway(gateway) => loads.gateways[gateway],
        QueuePoint::Medium(medium) => loads.ports[medium]
            .iter()
            .map(|port| port.sends.times(port.stations))
            .fold(Traffic::default(), Traffic::plus),
    }
}
