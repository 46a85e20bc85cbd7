//! A medium with its load, and the delay of a packet on it.

use std::collections::BTreeMap;

use crate::formula::Estimate;
use crate::formulas::ethernet::{self, Sender};
use crate::formulas::queue::{self, GG1_WAIT, POISSON, PORT_WAIT, Queue, SPACED, Tandem};
use crate::formulas::ring;
use crate::formulas::wifi;
use crate::network::Hop;
use crate::quantity::Traffic;
use crate::topology::{Kind, Medium};

/// The traffic through a port of a medium, for each station behind it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Port {
    pub(crate) stations: f64,
    pub(crate) sends: Traffic,
    pub(crate) receives: Traffic,
    /// Regularity of each station's departures: above 0 for a gateway, or a station with a busy
    /// processor.
    pub(crate) regular: f64,
    /// Regularity of the arrivals.
    pub(crate) regular_in: f64,
    /// A station's processor time for each packet, in seconds: the minimum spacing of its packets.
    pub(crate) spacing_s: f64,
}

/// The traffic between two ports of a medium, summed over all stations behind them.
pub(crate) type Streams = BTreeMap<(usize, usize), Traffic>;

/// A medium and its load.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(super) medium: &'a Medium,
    pub(super) ports: &'a [Port],
    pub(super) streams: &'a Streams,
    pub(super) rate: f64,
    pub(super) all: Traffic,
    pub(super) senders: f64,
    /// Bits a second of the busiest station.
    most: f64,
    /// Bits a second of the busiest direction of any port.
    fullest: f64,
}

impl<'a> Cell<'a> {
    pub(crate) fn new(medium: &'a Medium, ports: &'a [Port], streams: &'a Streams) -> Cell<'a> {
        let mut cell = Cell {
            medium,
            ports,
            streams,
            rate: medium.rate.bits() as f64,
            all: Traffic::default(),
            senders: 0.0,
            most: 0.0,
            fullest: 0.0,
        };
        for port in ports {
            cell.all = cell.all.plus(port.sends.times(port.stations));
            if port.sends.packets_per_s() > 0.0 {
                cell.senders += port.stations;
            }
            cell.most = cell.most.max(port.sends.bits_per_s());
            cell.fullest = cell.fullest.max(port.sends.bits_per_s()).max(port.receives.bits_per_s());
        }
        // A ring's token passes silent stations, too.
        if matches!(medium.kind, Kind::Ring { .. }) {
            cell.senders = ports.iter().map(|p| p.stations).sum();
        }
        cell
    }

    /// The cell with a copy between two of its stations, which may have been silent.
    pub(crate) fn with(&self, copy: Traffic, hop: &Hop) -> Cell<'a> {
        let ends = [&self.ports[hop.from], &self.ports[hop.to]];
        let silent = ends.iter().filter(|port| port.sends.packets_per_s() <= 0.0).count() as f64;
        // All stations of a ring are counted already.
        let more = if matches!(self.medium.kind, Kind::Ring { .. }) { 0.0 } else { silent };
        Cell { all: self.all.plus(copy), senders: self.senders + more, ..self.clone() }
    }

    pub(crate) fn all(&self) -> Traffic {
        self.all
    }

    /// Offered share of the bit rate; on a switch, of its busiest direction.
    pub(crate) fn load(&self) -> f64 {
        let bits = if matches!(self.medium.kind, Kind::Switch { .. }) { self.fullest } else { self.all.bits_per_s() };
        bits / self.rate
    }

    /// Share of time that the medium is busy, including gaps, collisions and overheads.
    pub(crate) fn busy(&self) -> Option<f64> {
        match self.medium.kind {
            Kind::Ethernet { propagation } => {
                let own = self.all.times(1.0 / self.senders.max(1.0));
                ethernet::ACCESS.at(&self.sender(propagation.get(), own)).value().map(|a| a.busy)
            }
            Kind::Wifi { overhead, .. } => Some(self.airtime(self.all, overhead.get())).filter(|b| *b < 1.0),
            Kind::Ring { .. } | Kind::Switch { .. } => Some(self.load()).filter(|b| *b < 1.0),
        }
    }

    /// Packets a second that the medium can carry, where a formula gives it.
    pub(crate) fn capacity(&self) -> Option<f64> {
        let Kind::Ethernet { propagation } = self.medium.kind else { return None };
        let sender = self.sender(propagation.get(), self.all);
        (self.all.packets_per_s() > 0.0).then(|| ethernet::CAPACITY.at(&sender).value().copied()).flatten()
    }

    /// The traffic of one station behind a port to one behind another.
    pub(super) fn pair(&self, from: usize, to: usize) -> Traffic {
        let (senders, receivers) = (self.ports[from].stations, self.ports[to].stations);
        // No station sends to itself.
        let pairs = if from == to { senders * (receivers - 1.0) } else { senders * receivers };
        self.streams.get(&(from, to)).map_or(Traffic::default(), |all| all.times(1.0 / pairs.max(1.0)))
    }

    /// Seconds from a packet's arrival at one port to its arrival at another, for packets of `bits`
    /// on this route; `forwarded` if they come from a gateway.
    pub(crate) fn delay(&self, hop: &Hop, bits: f64, forwarded: bool) -> Estimate<f64> {
        let delay = self.delay_of_poisson(hop, bits);
        let from = &self.ports[hop.from];
        let saved_s = self.saved(from);
        let regular = match self.medium.kind {
            // A port's own arrivals are known better, except for those over consecutive lines.
            Kind::Switch { .. } => {
                if forwarded {
                    self.lines(from)
                } else {
                    0.0
                }
            }
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => {
                // Packets over an equally slow line are spaced by their own length: long packets
                // find less before them than short ones.
                let behind = if forwarded { self.load() * self.link(from.sends).service.scv() / 2.0 } else { 0.0 };
                self.spaced().max(from.regular) + behind
            }
        };
        let sending = bits / self.rate;
        // Two views of the same effect, in light and in heavy traffic: the larger one holds.
        let saved_s = delay.value().map_or(0.0, |delay| saved_s.max(self.spaced_part() * (delay - sending)));
        let spacing = delay.value().map_or(0.0, |delay| saved_s / delay.max(1e-12));
        let delay = delay.map(|delay| sending + (delay - sending - saved_s).max(0.0));
        delay.with(POISSON.at(&regular), |delay, ()| delay).with(SPACED.at(&spacing), |delay, ()| delay)
    }

    fn delay_of_poisson(&self, hop: &Hop, bits: f64) -> Estimate<f64> {
        let (from, to) = (&self.ports[hop.from], &self.ports[hop.to]);
        let sending = bits / self.rate;
        // The formulas for the whole delay give that of the station's average packet.
        let longer = (bits - from.sends.mean_bits()) / self.rate;
        match self.medium.kind {
            Kind::Ethernet { propagation } => {
                ethernet::delay(&self.sender(propagation.get(), from.sends)).map(|d| d + longer)
            }
            Kind::Ring { walk, discipline } => {
                let ring = self.ring(walk.get(), discipline, self.all, from.sends);
                ring::WAIT.at(&ring).map(|wait| wait + sending + self.way(hop) * ring.around_s())
            }
            Kind::Switch { latency } => {
                // The effect of a station's processor on its own packets is known better.
                let regular = if from.spacing_s > 0.0 { 0.0 } else { from.regular };
                let out = Tandem { queue: self.link(from.sends), regular };
                let wait_out = GG1_WAIT.at(&out);
                let (queue, sender) = (self.link(to.receives), out.queue.utilisation());
                let port = queue::Port { queue, waited_s: self.waited(hop), sender };
                let wait_in = PORT_WAIT.at(&port);
                let longer_s = self.longer_wait(hop, bits);
                let regular = self.regular_at(hop.to);
                let busy = port.queue.utilisation().min(1.0);
                let left = 1.0 - regular * busy * busy / (1.0 + port.queue.service.scv());
                let wait_in = wait_in.map(|wait| (wait * left + longer_s).max(0.0));
                let wait_in = wait_in.with(POISSON.at(&(regular * busy)), |wait, ()| wait);
                let delay = wait_out.plus(wait_in).map(|waits| waits + 2.0 * sending + latency.get());
                let saved = delay.value().map_or(0.0, |delay_s| self.waited_by_another(hop) / delay_s.max(1e-12));
                delay.with(SPACED.at(&saved), |delay, ()| delay)
            }
            Kind::Wifi { overhead, channel } => {
                let queue = self.pair(hop.from, hop.to);
                let back = self.pair(hop.to, hop.from);
                let station = wifi::Station {
                    beside_per_s: back.packets_per_s(),
                    beside: back.service(self.rate, overhead.get()),
                    ..self.station(queue, overhead.get(), channel)
                };
                wifi::DELAY.at(&station).map(|d| d + (bits - queue.mean_bits()) / self.rate)
            }
        }
    }

    pub(super) fn sender(&self, propagation_s: f64, own: Traffic) -> Sender {
        let (all, stations) = (self.all, self.senders);
        Sender { bits_per_s: self.rate, propagation_s, stations, all, own, imbalance: self.imbalance() }
    }

    /// Traffic of the busiest station over that of the average one.
    fn imbalance(&self) -> f64 {
        let fair = self.all.bits_per_s() / self.senders.max(1.0);
        if fair > 0.0 { self.most / fair } else { 1.0 }
    }

    pub(super) fn link(&self, traffic: Traffic) -> Queue {
        Queue { arrivals_per_s: traffic.packets_per_s(), service: traffic.service(self.rate, 0.0) }
    }

    /// Seconds per bit.
    pub(crate) fn bit_s(&self) -> f64 {
        1.0 / self.rate
    }

    pub(crate) fn share(&self, traffic: Traffic) -> f64 {
        let overhead_s = if let Kind::Wifi { overhead, .. } = self.medium.kind { overhead.get() } else { 0.0 };
        self.airtime(traffic, overhead_s)
    }

    pub(super) fn airtime(&self, traffic: Traffic, overhead_s: f64) -> f64 {
        traffic.packets_per_s() * traffic.service(self.rate, overhead_s).mean
    }
}
