//! A medium with what it carries: which formula answers for it, and with what input.

use crate::ethernet::{self, Sender};
use crate::formula::Estimate;
use crate::pipeline::Stop;
use crate::quantity::{Moments, Traffic};
use crate::queue::{GG1_WAIT, Queue, Tandem};
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
    /// How much more regular than Poisson what it sends is: that of a gateway is.
    pub(crate) regular: f64,
    /// The same of what it receives.
    pub(crate) regular_in: f64,
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

/// What a packet of a copy meets on a medium.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Need {
    /// Places in order.
    pub(crate) stops: Vec<(Stop, Filled)>,
    /// Bad periods that hold up the whole round.
    pub(crate) weather: Option<wifi::Weather>,
}

/// A place as a copy's packets fill it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Filled {
    /// Share of its time that others use.
    pub(crate) open: f64,
    /// Variance of the time from packet to packet that the copy fills it with, in seconds squared.
    pub(crate) variance: f64,
    /// That time.
    pub(crate) filled_s: f64,
}

impl Need {
    /// One place: `service_s` for each packet of ours among the packets of `queue`, which wait for
    /// one another.
    pub(crate) fn queue(service_s: f64, queue: Queue, delay_s: f64) -> Need {
        let open = queue.utilisation();
        let left = (1.0 - open).max(1e-9);
        let square = queue.arrivals_per_s * queue.service.second;
        let stop = Stop { service_s, wait_s: square / (2.0 * left), spacing_s: service_s, between: open, delay_s };
        // The others' busy periods while ours are served (Takacs 1962).
        let variance = service_s * square / (left * left * left);
        Need { stops: vec![(stop, Filled { open, variance, filled_s: service_s / left })], weather: None }
    }
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
                let out = Tandem { queue: self.link(from.sends), regular: from.regular };
                let wait_out = GG1_WAIT.at(&out);
                let wait_in = GG1_WAIT.at(&Tandem { queue: self.link(to.receives), regular: to.regular_in });
                wait_out.plus(wait_in).map(|waits| waits + 2.0 * sending + latency.get())
            }
            Kind::Wifi { overhead, weather } => {
                let queue = one_to_one(from.sends, to.receives);
                let station = self.station(queue, overhead.get(), weather);
                wifi::DELAY.at(&station).map(|d| d + (bits - queue.mean_bits()) / self.rate)
            }
        }
    }

    /// What a copy's packet meets here. `mine` is what the copy itself sends in this direction;
    /// it is part of this cell, but not of `from` and `to`.
    pub(crate) fn need(&self, from: &Port, to: &Port, mine: Traffic) -> Estimate<Need> {
        let sending = mine.mean_bits() / self.rate;
        match self.medium.kind {
            Kind::Ethernet { propagation } => {
                let own = from.sends.plus(mine);
                let longer = (mine.mean_bits() - own.mean_bits()) / self.rate;
                let access = ethernet::ACCESS.at(&self.sender(propagation.get(), own));
                access.map(|a| {
                    let queue = Queue { arrivals_per_s: from.sends.packets_per_s(), service: a.time };
                    let mut need = Need::queue(a.time.mean + longer, queue, 0.0);
                    let variance = (a.time.second - a.time.mean * a.time.mean).max(0.0);
                    need.stops.iter_mut().for_each(|(_, filled)| filled.variance += variance);
                    need
                })
            }
            Kind::Ring { walk, discipline } => {
                let others = self.all.less(mine);
                let ring = self.ring(walk.get(), discipline, others);
                ring::TOKEN.at(&ring).map(|wait| ring_need(&ring, wait, sending))
            }
            Kind::Switch { latency } => {
                let mut need = Need::queue(sending, self.link(from.sends), latency.get());
                need.stops.extend(Need::queue(sending, self.link(to.receives), 0.0).stops);
                Estimate::given(need)
            }
            Kind::Wifi { overhead, weather } => {
                let background = one_to_one(from.sends, to.receives);
                let station = self.station(background.plus(mine), overhead.get(), weather);
                let airtime = sending + overhead.get();
                let queue = Queue { arrivals_per_s: background.packets_per_s(), service: station.airtime };
                wifi::COMPLETION.at(&station).map(|done| {
                    let left = (1.0 - station.others).max(1e-9);
                    let open = queue.utilisation() * done.mean / station.airtime.mean.max(1e-12);
                    let square = station.others_square_s + queue.arrivals_per_s * queue.service.second;
                    let stop = Stop {
                        service_s: airtime,
                        wait_s: square / (2.0 * (left - queue.utilisation()).max(1e-9)),
                        spacing_s: airtime / left,
                        between: queue.utilisation(),
                        delay_s: 0.0,
                    };
                    let filled_s = done.mean / (1.0 - open).max(1e-9);
                    let variance = (done.second - done.mean * done.mean).max(0.0);
                    Need { stops: vec![(stop, Filled { open, variance, filled_s })], weather: Some(weather) }
                })
            }
        }
    }

    /// How much more regular than Poisson what comes out at a port is. Of a switch's port it is known.
    pub(crate) fn regular(&self, to: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(to.receives), regular: to.regular_in }.departures(),
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => 0.0,
        }
    }

    /// The same of what a port has sent, on its way to others.
    pub(crate) fn regular_out(&self, from: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(from.sends), regular: from.regular }.departures(),
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => 0.0,
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
        let square = |t: Traffic| t.packets_per_s() * t.service(self.rate, overhead_s).second;
        wifi::Station {
            stations: self.senders,
            arrivals_per_s: queue.packets_per_s(),
            airtime,
            others,
            others_square_s: (square(self.all) - square(queue)).max(0.0),
            weather,
        }
    }
}

/// A copy's packets on a ring beside the others' load. A burst goes with the token, or one packet at
/// a time.
fn ring_need(ring: &Ring, wait_s: f64, sending: f64) -> Need {
    let queue = Queue { arrivals_per_s: ring.arrivals_per_s, service: ring.service };
    let mut need = Need::queue(sending, queue, ring.travel_s());
    for (stop, filled) in &mut need.stops {
        stop.wait_s = wait_s;
        if ring.discipline == Discipline::OneLimited {
            let around = (sending + 2.0 * ring.travel_s()) / (1.0 - ring.utilisation()).max(1e-9);
            (stop.spacing_s, stop.between, filled.filled_s) = (around, 0.0, around);
        }
    }
    need
}

/// What one port sends to another: in a cell all goes between the base and a station, so it is
/// all that the one sends or all that the other receives, whichever is less.
fn one_to_one(sends: Traffic, receives: Traffic) -> Traffic {
    if sends.packets_per_s() <= receives.packets_per_s() { sends } else { receives }
}
