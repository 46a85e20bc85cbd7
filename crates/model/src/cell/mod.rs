//! A medium with what it carries: which formula answers for it, and with what input.

mod behind;
mod copy;
mod spacing;
mod turns;

use std::collections::BTreeMap;

use crate::ethernet::{self, Sender};
use crate::formula::Estimate;
use crate::network::Hop;
use crate::quantity::Traffic;
use crate::queue::{self, GG1_WAIT, POISSON, PORT_WAIT, Queue, SPACED, Tandem};
use crate::ring;
use crate::topology::{Kind, Medium};
use crate::wifi;

pub(crate) use behind::Came;
pub(crate) use copy::{Filled, Held, Need};

/// What goes through a port of a medium, for each station behind it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Port {
    /// Stations behind it.
    pub(crate) stations: f64,
    pub(crate) sends: Traffic,
    pub(crate) receives: Traffic,
    /// How much more regular than Poisson what each of them sends is: that of a gateway is, or of a
    /// station whose processor is busy.
    pub(crate) regular: f64,
    /// The same of what it receives.
    pub(crate) regular_in: f64,
    /// Time that a station's processor takes for each packet, in seconds: none follows the one before faster.
    pub(crate) spacing_s: f64,
}

/// What goes from one port of a medium to another, all stations behind them together.
pub(crate) type Streams = BTreeMap<(usize, usize), Traffic>;

/// A medium and its load.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    medium: &'a Medium,
    ports: &'a [Port],
    streams: &'a Streams,
    rate: f64,
    all: Traffic,
    senders: f64,
    /// What the busiest station sends, in bits a second.
    most: f64,
    /// The same for the busiest direction of any port.
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
        // A ring's token passes all stations, those that are silent, too.
        if matches!(medium.kind, Kind::Ring { .. }) {
            cell.senders = ports.iter().map(|p| p.stations).sum();
        }
        cell
    }

    /// The same cell with a copy between two stations on it, who may have been silent.
    pub(crate) fn with(&self, copy: Traffic, hop: &Hop) -> Cell<'a> {
        let ends = [&self.ports[hop.from], &self.ports[hop.to]];
        let silent = ends.iter().filter(|port| port.sends.packets_per_s() <= 0.0).count() as f64;
        // All stations of a ring are counted already.
        let more = if matches!(self.medium.kind, Kind::Ring { .. }) { 0.0 } else { silent };
        Cell { all: self.all.plus(copy), senders: self.senders + more, ..self.clone() }
    }

    /// All that is sent here.
    pub(crate) fn all(&self) -> Traffic {
        self.all
    }

    /// Share of the bit rate that packets ask for; on a switch, of its busiest direction.
    pub(crate) fn load(&self) -> f64 {
        let bits = if matches!(self.medium.kind, Kind::Switch { .. }) { self.fullest } else { self.all.bits_per_s() };
        bits / self.rate
    }

    /// Share of the time that the medium is taken, with gaps, collisions and overheads.
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

    /// Packets a second that the medium could carry at most, where a formula says.
    pub(crate) fn capacity(&self) -> Option<f64> {
        let Kind::Ethernet { propagation } = self.medium.kind else { return None };
        let sender = self.sender(propagation.get(), self.all);
        (self.all.packets_per_s() > 0.0).then(|| ethernet::CAPACITY.at(&sender).value().copied()).flatten()
    }

    /// What one station behind a port sends to one behind another.
    fn pair(&self, (from, to): (usize, usize)) -> Traffic {
        let (senders, receivers) = (self.ports[from].stations, self.ports[to].stations);
        // Nobody sends to itself.
        let pairs = if from == to { senders * (receivers - 1.0) } else { senders * receivers };
        self.streams.get(&(from, to)).map_or(Traffic::default(), |all| all.times(1.0 / pairs.max(1.0)))
    }

    /// Seconds from a packet's arrival at one port to its arrival at another, for packets of
    /// `bits` of what goes this way; `forwarded` if they come out of a gateway.
    pub(crate) fn delay(&self, hop: &Hop, bits: f64, forwarded: bool) -> Estimate<f64> {
        let delay = self.delay_of_poisson(hop, bits);
        let from = &self.ports[hop.from];
        let spared_s = self.spared(from);
        let regular = match self.medium.kind {
            // A port's own arrivals are known better, but for what comes over one line after the other.
            Kind::Switch { .. } => {
                if forwarded {
                    self.lines(from)
                } else {
                    0.0
                }
            }
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => {
                // What has come over a line as slow comes behind its own length: long packets find
                // less before them than short ones.
                let behind = if forwarded { self.load() * self.link(from.sends).service.scv() / 2.0 } else { 0.0 };
                self.spaced().max(from.regular) + behind
            }
        };
        let sending = bits / self.rate;
        // The same effect as little and as much load show it: the larger one holds.
        let spared_s = delay.value().map_or(0.0, |delay| spared_s.max(self.spaced_part() * (delay - sending)));
        let spacing = delay.value().map_or(0.0, |delay| spared_s / delay.max(1e-12));
        let delay = delay.map(|delay| sending + (delay - sending - spared_s).max(0.0));
        delay.with(POISSON.at(&regular), |delay, ()| delay).with(SPACED.at(&spacing), |delay, ()| delay)
    }

    fn delay_of_poisson(&self, hop: &Hop, bits: f64) -> Estimate<f64> {
        let (from, to) = (&self.ports[hop.from], &self.ports[hop.to]);
        let sending = bits / self.rate;
        // The formulas that answer for the whole time do so for the station's average packet.
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
                // Of what a station's processor does to its own packets more is known.
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
                let spared = delay.value().map_or(0.0, |delay_s| self.waited_by_another(hop) / delay_s.max(1e-12));
                delay.with(SPACED.at(&spared), |delay, ()| delay)
            }
            Kind::Wifi { overhead, weather } => {
                let queue = self.pair((hop.from, hop.to));
                let back = self.pair((hop.to, hop.from));
                let station = wifi::Station {
                    beside_per_s: back.packets_per_s(),
                    beside: back.service(self.rate, overhead.get()),
                    ..self.station(queue, overhead.get(), weather)
                };
                wifi::DELAY.at(&station).map(|d| d + (bits - queue.mean_bits()) / self.rate)
            }
        }
    }

    fn sender(&self, propagation_s: f64, own: Traffic) -> Sender {
        let (all, stations) = (self.all, self.senders);
        Sender { bits_per_s: self.rate, propagation_s, stations, all, own, imbalance: self.imbalance() }
    }

    /// The busiest station's traffic over the average one's.
    fn imbalance(&self) -> f64 {
        let fair = self.all.bits_per_s() / self.senders.max(1.0);
        if fair > 0.0 { self.most / fair } else { 1.0 }
    }

    fn link(&self, traffic: Traffic) -> Queue {
        Queue { arrivals_per_s: traffic.packets_per_s(), service: traffic.service(self.rate, 0.0) }
    }

    /// Seconds that a bit takes.
    pub(crate) fn bit_s(&self) -> f64 {
        1.0 / self.rate
    }

    /// The share of the medium's time that `traffic` takes.
    pub(crate) fn share(&self, traffic: Traffic) -> f64 {
        let overhead_s = if let Kind::Wifi { overhead, .. } = self.medium.kind { overhead.get() } else { 0.0 };
        self.airtime(traffic, overhead_s)
    }

    fn airtime(&self, traffic: Traffic, overhead_s: f64) -> f64 {
        traffic.packets_per_s() * traffic.service(self.rate, overhead_s).mean
    }
}
