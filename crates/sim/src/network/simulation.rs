//! A run: packets of flows and copies move from host to medium to gateway to host, event by event.

use remora_base::Rng;
use remora_model::{Group, Kind, Law, Network, Route, Topology};

use super::copies::{Copier, CopyDirection};
use super::draw::{Sizes, exponential};
use super::event::Tick;
use super::event::{Crossing, Event, Packet, Plan};
use super::media::Carrier;
use super::media::{Fifo, Processor};
use super::run::{Options, Run, TooMuch};
use super::selection::{Selection, elements};
use super::series::Series;

/// Maximum of stations.
const STATIONS_MAX: u64 = 4_000_000;
/// Maximum of events: some hours of work.
const EVENTS_MAX: u64 = 20_000_000_000;

/// Minimum duration of a block's round: without it, blocks that take no time would circulate
/// forever in no time.
const ROUND_LEAST: Tick = Tick::NANOSECOND;

/// Maximum of events to come: a tenth of a gigabyte of packets that wait. Only overloads have more.
const PLANNED_MAX: usize = 500_000;
/// The clock is asked after so many events.
const CHECKED_EVERY: u64 = 4096;

/// Simulates the network once.
pub fn run(network: &Network, options: &Options, seed: u64) -> Result<Run, TooMuch> {
    let span = Span { warm: Tick::of(options.warm_up_s()), seconds: options.seconds };
    World::new(network, &Selection::all(network), span, seed)?.run()
}

/// The measured time of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Start of the measurement.
    pub(super) warm: Tick,
    pub(super) seconds: f64,
}

impl Span {
    /// All of a run without end.
    pub(super) const ENDLESS: Span = Span { warm: Tick::ZERO, seconds: f64::INFINITY };
}

struct Gateway {
    /// Whether no flow crosses it. Else copies' packets do not count in its delay.
    copies_only: bool,
    queue: Fifo,
    cost_s: f64,
    law: Law,
    rng: Rng,
}

impl Gateway {
    fn service(&mut self) -> Tick {
        Tick::of(match self.law {
            Law::Constant => self.cost_s,
            Law::Exponential => exponential(&mut self.rng, self.cost_s),
        })
    }
}

struct Flow {
    /// Mean time between packets of all its senders together.
    interval_s: f64,
    sizes: Sizes,
    rng: Rng,
}

pub(super) struct World<'a> {
    plan: Plan,
    /// Start of the measurement.
    warm: Tick,
    media: Vec<(Carrier, Rng)>,
    /// The first station behind each port of each medium.
    ports: Vec<Vec<u32>>,
    gateways: Vec<Gateway>,
    hosts: Vec<Hosts>,
    flows: Vec<Flow>,
    copies: Vec<Copier>,
    /// The routes of all flows, then of all copies, in both directions.
    routes: Vec<&'a Route>,
    /// Elements of each route that are simulated.
    limits: Vec<usize>,
    started: bool,
    /// Time of the last event.
    now: Tick,
    pub(super) run: Run,
}

/// The stations of a group.
struct Hosts {
    stations: u64,
    /// Their processors; none if packets cost nothing.
    processors: Vec<Processor>,
    /// Processor time of a packet.
    cost: Tick,
}

impl<'a> World<'a> {
    pub(super) fn new(
        network: &'a Network,
        selection: &Selection,
        span: Span,
        seed: u64,
    ) -> Result<World<'a>, TooMuch> {
        if network.stations() > STATIONS_MAX {
            return Err(TooMuch::Stations { stations: network.stations(), most: STATIONS_MAX });
        }
        let topology = network.topology();
        let stream = |kind: &str, i: usize| Rng::stream(seed, &format!("{kind} {i}"));
        let routes = network.flow_routes().iter();
        let routes = routes.chain(network.copy_routes().iter().flat_map(|(there, back)| [there, back]));
        let routes: Vec<&Route> = routes.collect();
        let limits = selection.limits(&routes);
        let used = used_media(topology.media.len(), &routes, &limits);
        let media = used.iter().enumerate().map(|(i, used)| (carrier(network, i, *used), stream("medium", i)));
        let mut with_flows = vec![false; topology.gateways.len()];
        for (route, _) in network.flow_routes().iter().zip(&topology.flows).filter(|(_, flow)| flow.rate.get() > 0.0) {
            route.gateways.iter().for_each(|gateway| with_flows[*gateway] = true);
        }
        let gateways = topology.gateways.iter().enumerate().map(|(i, g)| Gateway {
            copies_only: !with_flows[i],
            queue: Fifo::default(),
            cost_s: g.cost.get(),
            law: g.law,
            rng: stream("gateway", i),
        });
        let flows = topology.flows.iter().zip(network.flow_routes()).enumerate().map(|(i, (flow, route))| {
            let senders = f64::from(topology.groups[route.from].stations);
            let rate = selection.rates.get(&i).copied().unwrap_or(flow.rate.get() * senders);
            let interval_s = if limits[i] > 0 { 1.0 / rate } else { f64::INFINITY };
            Flow { interval_s, sizes: Sizes::of(flow.size), rng: stream("flow", i) }
        });
        let copies = topology.copies.iter().zip(network.copy_routes()).enumerate().map(|(i, (copy, (there, _)))| {
            // Copies of a group are spread over its stations from the last one, which flows use as
            // well.
            let station = |group: usize| topology.groups[group].stations.saturating_sub(1 + i as u32);
            Copier::new(copy, stream("copy", i), station(there.from), station(there.to))
        });
        Ok(World {
            plan: Plan::new(span.warm + Tick::of(span.seconds)),
            warm: span.warm,
            media: media.collect(),
            ports: (0..topology.media.len()).map(|i| firsts(network.ports(i))).collect(),
            gateways: gateways.collect(),
            hosts: topology.groups.iter().map(|group| Hosts::new(group, topology)).collect(),
            flows: flows.collect(),
            copies: copies.collect(),
            routes,
            limits,
            started: false,
            now: Tick::ZERO,
            run: Run::new(network, span.seconds),
        })
    }

    fn start(&mut self) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        for flow in 0..self.flows.len() {
            self.plan_flow(Tick::ZERO, flow);
        }
        for (i, copy) in self.copies.iter().enumerate() {
            if self.limits[self.flows.len() + 2 * i] > 0 {
                (0..copy.window()).for_each(|block| self.plan.at(Tick::ZERO, Event::Begins(i as u32, block)));
            }
        }
    }

    /// Goes on for so many events, or until `expired` says so or too many packets wait. Returns
    /// whether it can go on.
    pub(super) fn advance(&mut self, events: u64, expired: &dyn Fn() -> bool) -> bool {
        self.start();
        for i in 0..events {
            if self.plan.len() > PLANNED_MAX || i % CHECKED_EVERY == 0 && expired() {
                return false;
            }
            let Some((now, event)) = self.plan.next() else { return false };
            self.now = now;
            self.run.events += 1;
            self.handle(now, event);
        }
        true
    }

    /// Seconds of network time so far.
    pub(super) fn seconds(&self) -> f64 {
        self.now.seconds()
    }

    /// The time that each medium was busy, in seconds.
    pub(super) fn held_s(&self) -> Vec<f64> {
        self.media.iter().map(|(m, _)| m.held().seconds()).collect()
    }

    /// Times between blocks, and response times, of each copy.
    pub(super) fn copies(&self) -> impl Iterator<Item = (&Series, &Series)> {
        self.copies.iter().map(|copy| (&copy.intervals, &copy.responses))
    }

    pub(super) fn run(mut self) -> Result<Run, TooMuch> {
        self.start();
        let mut cold = None;
        while let Some((now, event)) = self.plan.next() {
            self.run.events += 1;
            if self.run.events > EVENTS_MAX {
                return Err(TooMuch::Events { most: EVENTS_MAX });
            }
            if cold.is_none() && now >= self.warm {
                cold = Some(self.counts());
            }
            self.handle(now, event);
        }
        let (before, after) = (cold.unwrap_or_else(|| self.counts()), self.counts());
        for (i, (before, after)) in before.iter().zip(&after).enumerate() {
            self.run.held_s[i] = after.0.since(before.0).seconds();
            self.run.lost[i] = after.1 - before.1;
        }
        for (run, copy) in self.run.copies.iter_mut().zip(self.copies) {
            *run = (copy.intervals, copy.responses);
        }
        Ok(self.run)
    }

    /// The counters of each medium.
    fn counts(&self) -> Vec<(Tick, u64)> {
        self.media.iter().map(|(m, _)| (m.held(), m.lost())).collect()
    }

    fn handle(&mut self, now: Tick, event: Event) {
        match event {
            Event::Comes(flow) => self.comes(now, flow),
            Event::Enters(packet) => self.enter(now, packet),
            Event::Wakes(medium, asked) => {
                let (carrier, rng) = &mut self.media[medium as usize];
                carrier.wake(now, asked, rng, &mut self.plan);
            }
            Event::Port(medium, packet) => self.media[medium as usize].0.port(now, packet, &mut self.plan),
            Event::Crossed(packet) => self.crossed(now, packet),
            Event::Lost(packet) => {
                if let Some(passage) = self.run.passages.get_mut(packet.stream as usize) {
                    passage.lose(2 * packet.hop as usize + 1);
                }
            }
            Event::Forwarded(packet) => self.forwarded(now, packet),
            Event::Received(packet) => self.received(now, packet),
            Event::Stored(copy, block) => self.send(now, copy, block, CopyDirection::Back),
            Event::Begins(copy, block) => {
                self.copies[copy as usize].begin(now, block);
                self.send(now, copy, block, CopyDirection::There);
            }
        }
    }

    fn plan_flow(&mut self, now: Tick, flow: usize) {
        let Flow { interval_s, rng, .. } = &mut self.flows[flow];
        if interval_s.is_finite() {
            let next = now + Tick::of(exponential(rng, *interval_s));
            self.plan.at(next, Event::Comes(flow as u32));
        }
    }

    /// Generates a packet of a flow at a random sender: Poisson streams of equal stations are one
    /// stream.
    fn comes(&mut self, now: Tick, stream: u32) {
        self.plan_flow(now, stream as usize);
        let route = self.routes[stream as usize];
        let (senders, receivers) = (self.hosts[route.from].stations, self.hosts[route.to].stations);
        let Flow { rng, sizes, .. } = &mut self.flows[stream as usize];
        let from = rng.below(senders) as u32;
        let to = if route.from == route.to {
            ((u64::from(from) + 1 + rng.below(receivers - 1)) % receivers) as u32
        } else {
            rng.below(receivers) as u32
        };
        let bits = sizes.draw(rng);
        let packet = Packet { stream, hop: 0, from, to, block: None, bits, born: now, here: now };
        self.run.passages[stream as usize].generated += 1;
        let ready = self.process(now, route.from, from);
        if ready == now { self.enter(now, packet) } else { self.plan.at(ready, Event::Enters(packet)) }
    }

    /// Completion of a packet that a host sends.
    fn process(&mut self, now: Tick, group: usize, station: u32) -> Tick {
        let Hosts { processors, cost, .. } = &mut self.hosts[group];
        processors.get_mut(station as usize).map_or(now, |host| host.work(now, *cost))
    }

    /// A packet arrives at the next medium of its route.
    fn enter(&mut self, now: Tick, mut packet: Packet) {
        let route = self.routes[packet.stream as usize];
        let hop = route.hops[packet.hop as usize];
        let last = packet.hop as usize + 1 == route.hops.len();
        if packet.hop == 0 {
            packet.born = now;
            self.pass(packet, 0, now);
        }
        packet.here = now;
        let ports = &self.ports[hop.medium];
        let from = ports[hop.from] + if packet.hop == 0 { packet.from } else { 0 };
        let to = ports[hop.to] + if last { packet.to } else { 0 };
        let (carrier, rng) = &mut self.media[hop.medium];
        carrier.offer(now, Crossing { packet, from, to }, rng, &mut self.plan);
    }

    fn record(&mut self, packet: Packet, now: Tick, of: impl FnOnce(&mut Run) -> &mut Series) {
        if packet.here >= self.warm && packet.block.is_none() {
            of(&mut self.run).add(now.since(packet.here).seconds());
        }
    }

    /// Counts a flow's packet that leaves an element of its route, or at 0 its sender's processor.
    fn pass(&mut self, packet: Packet, element: usize, now: Tick) {
        if let Some(passage) = self.run.passages.get_mut(packet.stream as usize) {
            passage.pass(element, now.since(packet.here).seconds());
        }
    }

    fn forwarded(&mut self, now: Tick, mut packet: Packet) {
        let gateway = self.routes[packet.stream as usize].gateways[packet.hop as usize];
        if packet.here >= self.warm && (packet.block.is_none() || self.gateways[gateway].copies_only) {
            self.run.gateways[gateway].add(now.since(packet.here).seconds());
        }
        self.run.forwarded[gateway] += 1;
        let element = 2 * packet.hop as usize + 2;
        self.pass(packet, element, now);
        if element < self.limits[packet.stream as usize] {
            packet.hop += 1;
            self.enter(now, packet);
        }
    }

    fn crossed(&mut self, now: Tick, mut packet: Packet) {
        let route = self.routes[packet.stream as usize];
        let medium = route.hops[packet.hop as usize].medium;
        self.record(packet, now, |run| &mut run.media[medium]);
        self.run.crossed[medium] += 1;
        if now >= self.warm {
            self.run.carried_bits[medium] += packet.bits;
        }
        let element = 2 * packet.hop as usize + 1;
        self.pass(packet, element, now);
        if element >= self.limits[packet.stream as usize] && element < elements(route) {
            return;
        }
        if let Some(gateway) = route.gateways.get(packet.hop as usize) {
            packet.here = now;
            let gateway = &mut self.gateways[*gateway];
            let service = gateway.service();
            self.plan.at(gateway.queue.serve(now, service), Event::Forwarded(packet));
            return;
        }
        let Hosts { processors, cost, .. } = &mut self.hosts[route.to];
        let done = processors.get_mut(packet.to as usize).map_or(now, |host| host.interrupt(now, *cost));
        if packet.block.is_some() {
            self.plan.at(done, Event::Received(packet));
        } else if packet.born >= self.warm {
            self.run.flows[packet.stream as usize].add(now.since(packet.born).seconds());
        }
    }

    /// Sends the packets of a copy's block, from its sender or back from its receiver.
    fn send(&mut self, now: Tick, copy: u32, block: u32, way: CopyDirection) {
        let copier = &mut self.copies[copy as usize];
        let sizes = copier.burst(way, block);
        let (software, from, to) = (copier.software, copier.from, copier.to);
        let stream = self.flows.len() as u32 + 2 * copy + u32::from(way == CopyDirection::Back);
        let group = self.routes[stream as usize].from;
        let (from, to) = if way == CopyDirection::There { (from, to) } else { (to, from) };
        let mut ready = now;
        if way == CopyDirection::There {
            ready = self.hosts[group].processors.get_mut(from as usize).map_or(now, |host| host.work(now, software));
        }
        let none = sizes.is_empty();
        for bits in sizes {
            let packet = Packet { stream, hop: 0, from, to, block: Some(block), bits, born: now, here: now };
            let ready = self.process(now, group, from);
            self.plan.at(ready, Event::Enters(packet));
        }
        match (none, way) {
            (false, _) => {}
            (true, CopyDirection::There) => self.arrived(ready, copy, block, CopyDirection::There),
            (true, CopyDirection::Back) => self.arrived(now, copy, block, CopyDirection::Back),
        }
    }

    fn received(&mut self, now: Tick, packet: Packet) {
        let Some((of_copy, block)) = (packet.stream as usize).checked_sub(self.flows.len()).zip(packet.block) else {
            return;
        };
        let (copy, way) =
            (of_copy as u32 / 2, if of_copy % 2 == 0 { CopyDirection::There } else { CopyDirection::Back });
        if self.copies[copy as usize].comes(block) {
            self.arrived(now, copy, block, way);
        }
    }

    /// All packets of a block arrived.
    fn arrived(&mut self, now: Tick, copy: u32, block: u32, way: CopyDirection) {
        let copier = &mut self.copies[copy as usize];
        match way {
            CopyDirection::There => self.plan.at(copier.store(now), Event::Stored(copy, block)),
            CopyDirection::Back => {
                copier.done(now, block, now >= self.warm);
                self.plan.at(now + copier.think.max(ROUND_LEAST), Event::Begins(copy, block));
            }
        }
    }
}

impl Hosts {
    fn new(group: &Group, topology: &Topology) -> Hosts {
        // A copy's software occupies them.
        let copies = topology.copies.iter().any(|copy| copy.from == group.name);
        let count = if copies || group.cost.get() > 0.0 { group.stations as usize } else { 0 };
        let processors = vec![Processor::default(); count];
        Hosts { stations: group.stations.into(), processors, cost: Tick::of(group.cost.get()) }
    }
}

/// Whether each medium carries any stream that is simulated.
fn used_media(media: usize, routes: &[&Route], limits: &[usize]) -> Vec<bool> {
    let mut used = vec![false; media];
    for (route, limit) in routes.iter().zip(limits) {
        route.hops.iter().take(limit.div_ceil(2)).for_each(|hop| used[hop.medium] = true);
    }
    used
}

/// The number of the first station behind each port.
fn firsts(ports: &[f64]) -> Vec<u32> {
    let mut next = 0;
    let first = |stations: &f64| {
        let first = next;
        next += *stations as u32;
        first
    };
    ports.iter().map(first).collect()
}

/// The medium of this number. The base of a wireless cell is its gateways, or without any its
/// smallest group.
///
/// One that is not `used` has no stations.
fn carrier(network: &Network, number: usize, used: bool) -> Carrier {
    let medium = &network.topology().media[number];
    let ports = if used { network.ports(number) } else { &[] };
    let groups = network.topology().groups.iter().filter(|g| g.medium == medium.name).count();
    let fewest = ports.iter().copied().fold(f64::INFINITY, f64::min);
    let first_of_fewest = ports.iter().position(|p| *p == fewest);
    let mut base = Vec::new();
    for (i, stations) in ports.iter().enumerate() {
        let is_base = if groups < ports.len() { i >= groups } else { first_of_fewest == Some(i) };
        base.resize(base.len() + *stations as usize, is_base && matches!(medium.kind, Kind::Wifi { .. }));
    }
    Carrier::new(number as u32, medium, base)
}
