//! The kinds of media behind one interface, with the servers of switches and hosts.

use remora_base::Rng;
use remora_model::{Kind, Medium};

use super::ethernet::Ethernet;
use super::event::{Crossing, Event, Plan, Tick};
use super::ring::Ring;
use super::wifi::Cell;

/// A medium with its stations.
#[derive(Clone, Debug)]
pub(crate) enum Carrier {
    Ethernet(Ethernet),
    Ring(Ring),
    Switch(Switch),
    Wifi(Box<Cell>),
}

impl Carrier {
    /// The medium of this number; `base` marks stations that are or represent gateways.
    pub(crate) fn new(number: u32, medium: &Medium, base: Vec<bool>) -> Carrier {
        let (rate, stations) = (medium.rate.bits() as f64, base.len());
        match medium.kind {
            Kind::Ethernet { propagation } => {
                Carrier::Ethernet(Ethernet::new(number, rate, propagation.get(), stations))
            }
            Kind::Ring { walk, discipline } => Carrier::Ring(Ring::new(number, rate, walk.get(), discipline, stations)),
            Kind::Switch { latency } => Carrier::Switch(Switch::new(number, rate, latency.get(), stations)),
            Kind::Wifi { overhead, channel: states } => {
                Carrier::Wifi(Box::new(Cell::new(number, rate, overhead.get(), states, base)))
            }
        }
    }

    pub(crate) fn offer(&mut self, now: Tick, packet: Crossing, rng: &mut Rng, plan: &mut Plan) {
        match self {
            Carrier::Ethernet(m) => m.offer(now, packet, plan),
            Carrier::Ring(m) => m.offer(now, packet, plan),
            Carrier::Switch(m) => m.offer(now, packet, plan),
            Carrier::Wifi(m) => m.offer(now, packet, rng, plan),
        }
    }

    pub(crate) fn wake(&mut self, now: Tick, asked: u64, rng: &mut Rng, plan: &mut Plan) {
        match self {
            Carrier::Ethernet(m) => m.wake(asked, rng, plan),
            Carrier::Ring(m) => m.wake(now, asked, plan),
            Carrier::Switch(_) => {}
            Carrier::Wifi(m) => m.wake(now, asked, rng, plan),
        }
    }

    /// A packet arrives at its outgoing port.
    pub(crate) fn port(&mut self, now: Tick, packet: Crossing, plan: &mut Plan) {
        if let Carrier::Switch(m) = self {
            m.port(now, packet, plan);
        }
    }

    /// Time that it was busy; for a switch the sum of all ports.
    pub(crate) fn held(&self) -> Tick {
        match self {
            Carrier::Ethernet(m) => m.held,
            Carrier::Ring(m) => m.held,
            Carrier::Switch(m) => m.held,
            Carrier::Wifi(m) => m.held,
        }
    }

    pub(crate) fn lost(&self) -> u64 {
        match self {
            Carrier::Ethernet(m) => m.lost,
            Carrier::Ring(m) => m.lost,
            Carrier::Switch(_) => 0,
            Carrier::Wifi(m) => m.lost,
        }
    }
}

/// A FIFO server, such as a disk, a gateway or a switch port. Its state is the time at which the
/// last customer leaves.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Fifo {
    free: Tick,
}

impl Fifo {
    /// Departure of a customer that arrives at `now` and needs `service`.
    pub(crate) fn serve(&mut self, now: Tick, service: Tick) -> Tick {
        self.free = self.free.max(now) + service;
        self.free
    }
}

/// A host's processor. Arriving packets interrupt it, and delay the packets to send.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Processor {
    work: Fifo,
    interrupts: Fifo,
}

impl Processor {
    /// Completion of work that arrives at `now`.
    pub(crate) fn work(&mut self, now: Tick, cost: Tick) -> Tick {
        self.work.serve(now, cost)
    }

    /// Completion of a packet that arrives at `now`.
    pub(crate) fn interrupt(&mut self, now: Tick, cost: Tick) -> Tick {
        self.work.serve(now, cost);
        self.interrupts.serve(now, cost)
    }
}

/// A store-and-forward switch with a full-duplex link to each station: a packet queues at the
/// sender's link and at the receiver's.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    number: u32,
    bits_per_s: f64,
    latency: Tick,
    links: Vec<(Fifo, Fifo)>,
    /// Time of transmissions on the links out of the switch.
    pub(crate) held: Tick,
}

impl Switch {
    pub(crate) fn new(number: u32, bits_per_s: f64, latency_s: f64, stations: usize) -> Switch {
        let links = vec![(Fifo::default(), Fifo::default()); stations];
        Switch { number, bits_per_s, latency: Tick::of(latency_s), links, held: Tick::ZERO }
    }

    pub(crate) fn offer(&mut self, now: Tick, packet: Crossing, plan: &mut Plan) {
        let time = Tick::of(packet.packet.bits / self.bits_per_s);
        let Some((link_in, _)) = self.links.get_mut(packet.from as usize) else { return };
        plan.at(link_in.serve(now, time) + self.latency, Event::Port(self.number, packet));
    }

    /// A packet arrives at its outgoing port.
    pub(crate) fn port(&mut self, now: Tick, packet: Crossing, plan: &mut Plan) {
        let time = Tick::of(packet.packet.bits / self.bits_per_s);
        let Some((_, link_out)) = self.links.get_mut(packet.to as usize) else { return };
        self.held += time;
        plan.at(link_out.serve(now, time), Event::Crossed(packet.packet));
    }
}
