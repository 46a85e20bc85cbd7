//! What one flow or copy does to the figures of others, as far as no formula has it: reasons to doubt them.
//!
//! * Copies send bursts, and the formulas take their packets for ones that come one by one. Where they bring
//!   more than a little of the traffic, or a burst may hold up others for more than a little of their delay,
//!   the figures are doubted.
//! * What is asked for more than it can carry passes on less than the flows say.

use std::collections::{BTreeMap, BTreeSet};

use crate::formula::{Estimate, Reason};
use crate::network::{Hop, Network, Route};
use crate::quantity::Traffic;
use crate::queue::PROCESSOR;
use crate::report::{FlowReport, Report};
use crate::solve::Loads;
use crate::topology::{Burst, Copy, Kind};

/// Up to this share of a place's traffic copies are little.
const TRAFFIC_LITTLE: f64 = 0.02;
/// Up to this share of a delay is little.
const DELAY_LITTLE: f64 = 0.04;

/// Where packets wait for one another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    /// A medium that all share.
    Medium(usize),
    /// What comes in at a switch's port.
    From(usize, usize),
    /// What goes out there.
    To(usize, usize),
    Gateway(usize),
}

/// For how long packets are held up at a place, and how many, a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Held {
    packets: f64,
    sum_s: f64,
}

impl Held {
    fn add(&mut self, packets_per_s: f64, held_s: f64) {
        if packets_per_s > 0.0 {
            self.packets += packets_per_s;
            self.sum_s += packets_per_s * held_s;
        }
    }

    /// Whether that is more than a little of a delay.
    fn counts(&self, delay: &Estimate<f64>) -> bool {
        delay.value().is_some_and(|delay_s| self.sum_s > DELAY_LITTLE * delay_s * self.packets)
    }
}

/// A network that has been solved, with and without its copies.
pub(crate) struct Doubts<'a> {
    pub(crate) network: &'a Network,
    /// Blocks a second of each copy.
    pub(crate) rates: &'a [f64],
    pub(crate) with: &'a Loads,
    pub(crate) without: &'a Loads,
}

impl Doubts<'_> {
    /// The report with these doubts.
    pub(crate) fn of(&self, mut report: Report) -> Report {
        self.beside_copies(&mut report);
        self.starved(&mut report);
        report
    }

    /// What bursts hold up comes together to all places behind, too.
    fn beside_copies(&self, report: &mut Report) {
        let bursts = self.bursts();
        let held_s = |place: &Place| self.held_s(&bursts, *place);
        let mut media = vec![Held::default(); self.network.topology.media.len()];
        let mut gateways = vec![Held::default(); self.network.topology.gateways.len()];
        for (route, flow) in self.network.flows.iter().zip(&mut report.flows) {
            let mut all_s = 0.0;
            for (i, hop) in route.hops.iter().enumerate() {
                all_s += self.places(hop).iter().map(held_s).sum::<f64>();
                media[hop.medium].add(flow.packets_per_s, all_s);
                if let Some(gateway) = route.gateways.get(i) {
                    all_s += held_s(&Place::Gateway(*gateway));
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
            if held_s(&Place::Gateway(i)).is_infinite() || held.counts(&gateway.delay_s) {
                gateway.suspect(&Reason::BesideCopy);
            }
        }
    }

    /// What bursts may add to the wait at `place`, in seconds; without end if copies are more than a little of
    /// what goes through it.
    fn held_s(&self, bursts: &BTreeMap<Place, f64>, place: Place) -> f64 {
        let (with, without) = (traffic(self.with, place), traffic(self.without, place));
        if with.bits_per_s() - without.bits_per_s() > TRAFFIC_LITTLE * with.bits_per_s() {
            return f64::INFINITY;
        }
        bursts.get(&place).copied().unwrap_or(0.0)
    }

    /// What bursts may add to the mean wait at each place, in seconds, if all of a window queues there.
    fn bursts(&self) -> BTreeMap<Place, f64> {
        let mut bursts = BTreeMap::new();
        let copies = self.network.topology.copies.iter().zip(&self.network.copies).zip(self.rates);
        for ((copy, (there, back)), rate) in copies {
            for (route, burst) in [(there, &copy.data), (back, &copy.reply)] {
                self.along(&mut bursts, copy, route, burst, *rate);
            }
            self.behind_software(&mut bursts, copy, there, *rate);
        }
        bursts
    }

    fn along(&self, bursts: &mut BTreeMap<Place, f64>, copy: &Copy, route: &Route, burst: &Burst, rate: f64) {
        let mut add = |place: Place, packet_s: f64, stations: f64| {
            let block_s = burst.packets * packet_s;
            // Who comes meanwhile waits for half of a block and all of those behind it, if he is of that station.
            let queue_s = (f64::from(copy.under_way()) - 0.5) * block_s;
            *bursts.entry(place).or_insert(0.0) += (rate * block_s).min(1.0) * queue_s / stations;
        };
        for hop in &route.hops {
            let medium = &self.network.topology.media[hop.medium];
            let overhead_s = if let Kind::Wifi { overhead, .. } = medium.kind { overhead.get() } else { 0.0 };
            let packet_s = burst.size.mean_bits() / medium.rate.bits() as f64 + overhead_s;
            for place in self.places(hop) {
                add(place, packet_s, self.stations(place));
            }
        }
        for gateway in &route.gateways {
            add(Place::Gateway(*gateway), self.network.topology.gateways[*gateway].cost.get(), 1.0);
        }
    }

    /// While a sender's software has a block in hand what its flows make gathers, and comes out at once.
    fn behind_software(&self, bursts: &mut BTreeMap<Place, f64>, copy: &Copy, there: &Route, rate: f64) {
        let Some(hop) = there.hops.first() else { return };
        let bits_per_s = self.network.topology.media[hop.medium].rate.bits() as f64;
        let sends = self.without.ports[hop.medium][hop.from].sends;
        let gathered_s = copy.software.get() * sends.bits_per_s() / bits_per_s;
        let gathered = copy.software.get() * sends.packets_per_s();
        for place in self.places(hop) {
            let all = traffic(self.without, place).packets_per_s() * self.stations(place);
            if all > 0.0 {
                // Those that are gathered wait for one another.
                *bursts.entry(place).or_insert(0.0) += rate * gathered * gathered_s / 2.0 / all;
            }
        }
    }

    /// Whoever gets less than it is told because a place before cannot carry it.
    fn starved(&self, report: &mut Report) {
        let mut missing = BTreeMap::new();
        for ((route, flow), about) in self.network.flows.iter().zip(&report.flows).zip(&self.network.topology.flows) {
            for place in self.behind_full(route, flow) {
                *missing.entry(place).or_insert(0.0) += flow.packets_per_s * about.size.mean_bits();
            }
        }
        let counts = |(place, bits_per_s): (Place, f64)| {
            let all = traffic(self.with, place).bits_per_s() * self.stations(place);
            (bits_per_s > TRAFFIC_LITTLE * all).then_some(place)
        };
        let starved: BTreeSet<Place> = missing.into_iter().filter_map(counts).collect();
        let meets = |route: &Route| self.along_route(route).iter().any(|place| starved.contains(place));
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
        for place in starved {
            match place {
                Place::Medium(i) | Place::From(i, _) | Place::To(i, _) => {
                    if let Some(delay) = report.media.get_mut(i).and_then(|medium| medium.delay_s.as_mut()) {
                        delay.suspect(Reason::Starved);
                    }
                }
                Place::Gateway(i) => {
                    if let Some(gateway) = report.gateways.get_mut(i) {
                        gateway.suspect(&Reason::Starved);
                    }
                }
            }
        }
    }

    /// Places on a flow's way behind one that cannot carry what it is asked for.
    fn behind_full(&self, route: &Route, flow: &FlowReport) -> Vec<Place> {
        let group = &self.network.topology.groups[route.from];
        let busy = self.with.handled[route.from] * group.cost.get();
        let mut full = flow.packets_per_s > 0.0 && PROCESSOR.at(&busy).value().is_none();
        let mut behind = Vec::new();
        for (i, part) in flow.parts.iter().enumerate() {
            if full {
                let hop = route.hops.get(i / 2).filter(|_| i % 2 == 0).map(|hop| self.places(hop));
                let gateway = route.gateways.get(i / 2).filter(|_| i % 2 == 1).map(|g| vec![Place::Gateway(*g)]);
                behind.extend(hop.or(gateway).into_iter().flatten());
            }
            full |= flow.packets_per_s > 0.0 && part.delay_s.is_none();
        }
        behind
    }

    fn along_route(&self, route: &Route) -> Vec<Place> {
        let hops = route.hops.iter().flat_map(|hop| self.places(hop));
        hops.chain(route.gateways.iter().map(|g| Place::Gateway(*g))).collect()
    }

    fn places(&self, hop: &Hop) -> Vec<Place> {
        match self.network.topology.media[hop.medium].kind {
            Kind::Switch { .. } => vec![Place::From(hop.medium, hop.from), Place::To(hop.medium, hop.to)],
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => vec![Place::Medium(hop.medium)],
        }
    }

    /// How many of them stand behind a port.
    fn stations(&self, place: Place) -> f64 {
        match place {
            Place::From(medium, port) | Place::To(medium, port) => self.with.ports[medium][port].stations,
            Place::Medium(_) | Place::Gateway(_) => 1.0,
        }
    }
}

/// What goes through a place, for each station behind it.
fn traffic(loads: &Loads, place: Place) -> Traffic {
    match place {
        Place::From(medium, port) => loads.ports[medium][port].sends,
        Place::To(medium, port) => loads.ports[medium][port].receives,
        Place::Gateway(gateway) => loads.gateways[gateway],
        Place::Medium(medium) => loads.ports[medium]
            .iter()
            .map(|port| port.sends.times(port.stations))
            .fold(Traffic::default(), Traffic::plus),
    }
}
