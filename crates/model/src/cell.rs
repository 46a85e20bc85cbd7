//! A medium with what it carries: which formula answers for it, and with what input.

use crate::ethernet::{self, Sender};
use crate::formula::Estimate;
use crate::mva::Centre;
use crate::quantity::{Moments, Traffic};
use crate::queue::{MG1_WAIT, Queue};
use crate::ring::{self, Discipline, Ring};
use crate::topology::{Kind, Medium};
use crate::wifi;

/// What goes through a port of a medium, for each station behind it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Port {
    /// Stations behind it.
    pub(crate) stations: f64,
    pub(crate) sends: Traffic,
    pub(crate) receives: Traffic,
}

/// A medium and its load.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    medium: &'a Medium,
    rate: f64,
    all: Traffic,
    senders: f64,
    /// What the busiest station sends, in bits a second.
    most: f64,
    /// The same for the busiest direction of any port.
    fullest: f64,
}

/// What a packet of a copy needs on a medium.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Need {
    /// Where it queues.
    pub(crate) centres: Vec<Centre>,
    /// Time that nothing queues for.
    pub(crate) delay_s: f64,
}

impl<'a> Cell<'a> {
    pub(crate) fn new(medium: &'a Medium, ports: &[Port]) -> Cell<'a> {
        let mut cell = Cell {
            medium,
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
    pub(crate) fn with(&self, copy: Traffic, ends: [&Port; 2]) -> Cell<'a> {
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

    /// Seconds from a packet's arrival at one port to its arrival at another, for packets of
    /// `bits` that belong to what `from` sends and `to` receives.
    pub(crate) fn delay(&self, from: &Port, to: &Port, bits: f64) -> Estimate<f64> {
        let sending = bits / self.rate;
        // The formulas that answer for the whole time do so for the station's average packet.
        let longer = (bits - from.sends.mean_bits()) / self.rate;
        match self.medium.kind {
            Kind::Ethernet { propagation } => {
                ethernet::DELAY.at(&self.sender(propagation.get(), from.sends)).map(|d| d + longer)
            }
            Kind::Ring { walk, discipline } => {
                let ring = self.ring(walk.get(), discipline, self.all);
                ring::WAIT.at(&ring).map(|wait| wait + sending + ring.travel_s())
            }
            Kind::Switch { latency } => {
                let wait = |traffic: Traffic| MG1_WAIT.at(&self.link(traffic));
                wait(from.sends).plus(wait(to.receives)).map(|waits| waits + 2.0 * sending + latency.get())
            }
            Kind::Wifi { overhead, weather } => {
                let queue = one_to_one(from.sends, to.receives);
                let station = self.station(queue, overhead.get(), weather);
                wifi::DELAY.at(&station).map(|d| d + (bits - queue.mean_bits()) / self.rate)
            }
        }
    }

    /// What a copy's packet needs here. `mine` is what the copy itself sends in this direction;
    /// it is part of this cell, but not of `from` and `to`.
    pub(crate) fn need(&self, from: &Port, to: &Port, mine: Traffic) -> Estimate<Need> {
        let sending = mine.mean_bits() / self.rate;
        let queue = |demand_s: f64, open: f64, delay_s| Need { centres: vec![Centre { demand_s, open }], delay_s };
        match self.medium.kind {
            Kind::Ethernet { propagation } => {
                let own = from.sends.plus(mine);
                let longer = (mine.mean_bits() - own.mean_bits()) / self.rate;
                let access = ethernet::ACCESS.at(&self.sender(propagation.get(), own));
                access.map(|a| queue(a.time.mean + longer, from.sends.packets_per_s() * a.time.mean, 0.0))
            }
            Kind::Ring { walk, discipline } => {
                // The others' load; the token's way is waited for once, and for each packet where
                // it must be let go after one.
                let others = self.all.less(mine);
                let ring = self.ring(walk.get(), discipline, others);
                let (round, open) = (2.0 * ring.travel_s(), others.bits_per_s() / self.rate);
                ring::WAIT.at(&ring).map(|_| match discipline {
                    Discipline::OneLimited => queue(sending + round, open, ring.travel_s()),
                    Discipline::Exhaustive | Discipline::Gated => queue(sending, open, round),
                })
            }
            Kind::Switch { latency } => {
                let centre = |t: Traffic| Centre { demand_s: sending, open: t.bits_per_s() / self.rate };
                Estimate::given(Need { centres: vec![centre(from.sends), centre(to.receives)], delay_s: latency.get() })
            }
            Kind::Wifi { overhead, weather } => {
                let background = one_to_one(from.sends, to.receives);
                let station = self.station(background.plus(mine), overhead.get(), weather);
                let done = wifi::COMPLETION.at(&station);
                done.map(|c| queue(c.mean, background.packets_per_s() * c.mean, 0.0))
            }
        }
    }

    fn sender(&self, propagation_s: f64, own: Traffic) -> Sender {
        Sender { bits_per_s: self.rate, propagation_s, stations: self.senders, all: self.all, own }
    }

    fn ring(&self, walk_s: f64, discipline: Discipline, load: Traffic) -> Ring {
        let fair = self.all.bits_per_s() / self.senders.max(1.0);
        Ring {
            discipline,
            stations: self.senders.max(1.0),
            walk_s,
            arrivals_per_s: load.packets_per_s(),
            service: load.service(self.rate, 0.0),
            imbalance: if fair > 0.0 { self.most / fair } else { 1.0 },
        }
    }

    fn link(&self, traffic: Traffic) -> Queue {
        Queue { arrivals_per_s: traffic.packets_per_s(), service: traffic.service(self.rate, 0.0) }
    }

    fn airtime(&self, traffic: Traffic, overhead_s: f64) -> f64 {
        traffic.packets_per_s() * traffic.service(self.rate, overhead_s).mean
    }

    fn station(&self, queue: Traffic, overhead_s: f64, weather: wifi::Weather) -> wifi::Station {
        let airtime: Moments = queue.service(self.rate, overhead_s);
        let others = (self.airtime(self.all, overhead_s) - self.airtime(queue, overhead_s)).max(0.0);
        wifi::Station { stations: self.senders, arrivals_per_s: queue.packets_per_s(), airtime, others, weather }
    }
}

/// What one port sends to another: in a cell all goes between the base and a station, so it is
/// all that the one sends or all that the other receives, whichever is less.
fn one_to_one(sends: Traffic, receives: Traffic) -> Traffic {
    if sends.packets_per_s() <= receives.packets_per_s() { sends } else { receives }
}
