//! The streams that a simulation of a part of a network needs: those whose figures are wanted, and
//! all others as far as they load what these cross.
//!
//! A packet waits at places: a station's processor, a medium, a direction of a switch's port, a
//! gateway. A place is needed if a wanted stream crosses it, or if it shapes the arrivals of any
//! stream at a needed place. Behind its last needed place a stream's packets are dropped.

use std::collections::{BTreeMap, BTreeSet};

use remora_model::{Hop, Kind, Network, Report, Route};

/// The streams simulated, and how far along their routes.
#[derive(Clone, PartialEq, Debug)]
pub struct Selection {
    /// Elements of each flow's route that are simulated: media and gateways in turn. 0: the flow is
    /// left out.
    pub(super) flows: Vec<usize>,
    /// Whether each copy is simulated.
    pub(super) copies: Vec<bool>,
    /// Rates that replace those of wanted flows with few packets, in packets a second of all senders.
    pub(super) rates: BTreeMap<usize, f64>,
}

/// A wanted flow with a smaller share of the packets of the media on its route is raised.
const RARE: f64 = 2e-4;
/// Raised flows add at most this share to the traffic of a medium.
const RAISED: f64 = 2e-3;
/// Raised flows may use this share of the capacity of an idle medium, gateway or processor.
const RAISED_IDLE: f64 = 1e-4;

/// The figures that formulas do not give.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    pub media: Vec<usize>,
    pub gateways: Vec<usize>,
    pub flows: Vec<usize>,
    pub copies: Vec<usize>,
}

impl Wanted {
    /// All figures of `report` without an answer: outside of the band of their formula.
    pub fn of(report: &Report) -> Wanted {
        let all = |answered: &mut dyn Iterator<Item = bool>| -> Vec<usize> {
            answered.enumerate().filter(|(_, answered)| !answered).map(|(i, _)| i).collect()
        };
        Wanted {
            media: all(&mut report.media.iter().map(|m| m.delay_s.as_ref().is_none_or(|d| d.is_answered()))),
            gateways: all(&mut report.gateways.iter().map(|g| {
                let p95 = g.p95_s.as_ref().is_none_or(|p95| p95.is_answered());
                g.packets_per_s <= 0.0 || g.delay_s.is_answered() && p95
            })),
            flows: all(&mut report.flows.iter().map(|f| f.delay_s.is_answered())),
            copies: all(&mut report.copies.iter().map(|c| c.outcome.is_answered())),
        }
    }

    /// All figures of a network.
    pub fn all(network: &Network) -> Wanted {
        let topology = network.topology();
        Wanted {
            media: (0..topology.media.len()).collect(),
            gateways: (0..topology.gateways.len()).collect(),
            flows: (0..topology.flows.len()).collect(),
            copies: (0..topology.copies.len()).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        [&self.media, &self.gateways, &self.flows, &self.copies].into_iter().all(Vec::is_empty)
    }
}

/// A place at which packets wait for one another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    /// The processors of a group's stations.
    Processor(usize),
    Medium(usize),
    /// The incoming direction of a switch's port.
    From(usize, usize),
    /// The outgoing direction of a switch's port.
    To(usize, usize),
    Gateway(usize),
}

/// The places of a stream in order, each with the number of route elements up to it.
pub(super) type Places = Vec<(Place, usize)>;

impl Selection {
    /// Every stream along its whole route.
    pub fn all(network: &Network) -> Selection {
        let flows = network.flow_routes().iter().map(elements).collect();
        Selection { flows, copies: vec![true; network.copy_routes().len()], rates: BTreeMap::new() }
    }

    /// What the figures of `wanted` depend on.
    pub fn of(network: &Network, wanted: &Wanted) -> Selection {
        let mut closure = Closure::new(network);
        let set = |wanted: &[usize]| wanted.iter().copied().collect::<BTreeSet<usize>>();
        let (media, gateways, flows) = (set(&wanted.media), set(&wanted.gateways), set(&wanted.flows));
        for (flow, route) in network.flow_routes().iter().enumerate() {
            let medium = route.hops.iter().any(|hop| media.contains(&hop.medium));
            let gateway = route.gateways.iter().any(|gateway| gateways.contains(gateway));
            if medium || gateway || flows.contains(&flow) {
                closure.need_stream(flow, usize::MAX);
            }
        }
        for copy in &wanted.copies {
            closure.need_copy(*copy);
        }
        // A gateway that only copies cross has no flow that would need them.
        for (copy, (there, back)) in network.copy_routes().iter().enumerate() {
            if there.gateways.iter().chain(&back.gateways).any(|gateway| gateways.contains(gateway)) {
                closure.need_copy(copy);
            }
        }
        closure.close();
        closure.selection
    }

    /// Raises the rates of wanted flows so low that a run has none of their packets: the others then
    /// see hardly more traffic.
    #[must_use]
    pub fn with_rare_flows(mut self, network: &Network, report: &Report, wanted: &Wanted) -> Selection {
        let topology = network.topology();
        let offered = |hop: &Hop| report.media[hop.medium].offered_packets_per_s;
        let most = |route: &Route| route.hops.iter().map(offered).fold(0.0, f64::max);
        let is_rare = |flow: &usize| report.flows[*flow].packets_per_s <= RARE * most(&network.flow_routes()[*flow]);
        let rare: Vec<usize> = wanted.flows.iter().copied().filter(is_rare).collect();
        for flow in &rare {
            let (route, bits) = (&network.flow_routes()[*flow], topology.flows[*flow].size.mean_bits());
            let media = route.hops.iter().map(|hop| {
                let (about, medium) = (&report.media[hop.medium], &topology.media[hop.medium]);
                let offered = about.offered_packets_per_s * about.mean_bits;
                (RAISED * offered).max(RAISED_IDLE * medium.rate.bits() as f64) / bits
            });
            let gateways = route.gateways.iter().map(|gateway| topology.gateways[*gateway].cost.get());
            let costs = gateways.chain([route.from, route.to].map(|group| topology.groups[group].cost.get()));
            let slowest_s = costs.fold(0.0, f64::max);
            let least = media.fold(RAISED_IDLE.sqrt() / slowest_s, f64::min);
            self.rates.insert(*flow, (least / rare.len() as f64).max(report.flows[*flow].packets_per_s));
        }
        self
    }
}

impl Selection {
    /// Elements of each route that are simulated, for the routes of flows, then of copies in both
    /// directions.
    pub(super) fn limits(&self, routes: &[&Route]) -> Vec<usize> {
        let limit = |(stream, route): (usize, &&Route)| match stream.checked_sub(self.flows.len()) {
            None => self.flows[stream],
            Some(direction) if self.copies[direction / 2] => elements(route),
            Some(_) => 0,
        };
        routes.iter().enumerate().map(limit).collect()
    }
}

/// Elements of a route: media and gateways.
pub(super) fn elements(route: &Route) -> usize {
    route.hops.len() + route.gateways.len()
}

struct Closure<'a> {
    network: &'a Network,
    /// The places of each flow, then of each copy in both directions.
    streams: Vec<Places>,
    /// The streams at each place, and where it is in their list.
    at: BTreeMap<Place, Vec<(usize, usize)>>,
    selection: Selection,
    /// Places of each stream that are needed already.
    needed: Vec<usize>,
    seen: BTreeSet<Place>,
    new: Vec<Place>,
}

impl<'a> Closure<'a> {
    fn new(network: &'a Network) -> Closure<'a> {
        let routes = network.flow_routes().iter();
        let routes = routes.chain(network.copy_routes().iter().flat_map(|(there, back)| [there, back]));
        let streams: Vec<Places> = routes.map(|route| places(network, route)).collect();
        let mut at: BTreeMap<Place, Vec<(usize, usize)>> = BTreeMap::new();
        for (stream, places) in streams.iter().enumerate() {
            for (i, (place, _)) in places.iter().enumerate() {
                at.entry(*place).or_default().push((stream, i));
            }
        }
        let (flows, copies) = (vec![0; network.flow_routes().len()], vec![false; network.copy_routes().len()]);
        let needed = vec![0; streams.len()];
        let selection = Selection { flows, copies, rates: BTreeMap::new() };
        Closure { network, streams, at, selection, needed, seen: BTreeSet::new(), new: Vec::new() }
    }

    /// Needs a stream up to and including the place of this number.
    fn need_stream(&mut self, stream: usize, last: usize) {
        let flows = self.selection.flows.len();
        if let Some(copy) = stream.checked_sub(flows) {
            self.need_copy(copy / 2);
            return;
        }
        let places = &self.streams[stream];
        let count = last.saturating_add(1).min(places.len());
        let up_to =
            if count == places.len() { elements(&self.network.flow_routes()[stream]) } else { places[count - 1].1 };
        self.selection.flows[stream] = self.selection.flows[stream].max(up_to.max(1));
        self.need_places(stream, count);
    }

    /// Needs both directions of a copy, which wait for one another.
    fn need_copy(&mut self, copy: usize) {
        if !std::mem::replace(&mut self.selection.copies[copy], true) {
            let first = self.selection.flows.len() + 2 * copy;
            for stream in [first, first + 1] {
                self.need_places(stream, self.streams[stream].len());
            }
        }
    }

    fn need_places(&mut self, stream: usize, count: usize) {
        for i in self.needed[stream]..count {
            let place = self.streams[stream][i].0;
            if self.seen.insert(place) {
                self.new.push(place);
            }
        }
        self.needed[stream] = self.needed[stream].max(count);
    }

    fn close(&mut self) {
        while let Some(place) = self.new.pop() {
            for (stream, i) in self.at.get(&place).cloned().unwrap_or_default() {
                self.need_stream(stream, i);
            }
        }
    }
}

/// The places of a route in order. Processors without a cost delay nothing.
pub(super) fn places(network: &Network, route: &Route) -> Places {
    let topology = network.topology();
    let costs = |group: usize| topology.groups[group].cost.get() > 0.0;
    let busy = |group: usize| costs(group) || topology.copies.iter().any(|c| c.from == topology.groups[group].name);
    let mut places = Places::new();
    if busy(route.from) {
        places.push((Place::Processor(route.from), 0));
    }
    for (i, hop) in route.hops.iter().enumerate() {
        let Hop { medium, from, to } = *hop;
        match topology.media[medium].kind {
            Kind::Switch { .. } => {
                places.extend([(Place::From(medium, from), 2 * i + 1), (Place::To(medium, to), 2 * i + 1)]);
            }
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => {
                places.push((Place::Medium(medium), 2 * i + 1));
            }
        }
        places.extend(route.gateways.get(i).map(|gateway| (Place::Gateway(*gateway), 2 * i + 2)));
    }
    if costs(route.to) {
        places.push((Place::Processor(route.to), elements(route)));
    }
    places
}
