use super::clock::Tick;
use super::fifo::Fifo;
use super::packet::{Crossing, Event, Plan};

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
