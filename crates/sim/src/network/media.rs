//! The kinds of media behind one interface, with the servers of switches and hosts.

use remora_base::Rng;
use remora_model::{Kind, Medium};

use super::clock::Tick;
use super::ethernet::Ethernet;
use super::packet::{Crossing, Plan};
use super::ring::Ring;
use super::switch::Switch;
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
            Kind::Wifi { overhead, channel: weather } => {
                Carrier::Wifi(Box::new(Cell::new(number, rate, overhead.get(), weather, base)))
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

    /// Packets lost.
    pub(crate) fn lost(&self) -> u64 {
        match self {
            Carrier::Ethernet(m) => m.lost,
            Carrier::Ring(m) => m.lost,
            Carrier::Switch(_) => 0,
            Carrier::Wifi(m) => m.lost,
        }
    }
}
