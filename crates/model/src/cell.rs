//! A medium with what it carries: which formula answers for it, and with what input.

use std::collections::BTreeMap;

use crate::ethernet::{self, Sender};
use crate::formula::Estimate;
use crate::network::Hop;
use crate::pipeline::Stop;
use crate::quantity::{Moments, Size, Traffic};
use crate::queue::{self, GG1_WAIT, POISSON, PORT_WAIT, Queue, Tandem};
use crate::ring::{self, Discipline, Ring};
use crate::topology::{Kind, Medium};
use crate::wifi;

/// Each frame that comes up while a burst is sent on an Ethernet may keep the reply back for so many slots:
/// a station that has lost against the burst a few times backs off long (an upper end, seen in
/// simulation).
const BACKED_OFF: f64 = 30.0 * ethernet::SLOT_BITS;

/// How much more regular what comes over one line after the other is, for each part of its load: more
/// than this makes a difference.
const LINES: f64 = 0.3;

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

/// What a packet of a copy meets on a medium.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Need {
    /// Places in order.
    pub(crate) stops: Vec<(Stop, Filled)>,
    /// Bad periods that hold up the whole round.
    pub(crate) weather: Option<wifi::Weather>,
}

/// A medium that a copy's sender keeps for itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Held {
    /// For how long, for a block, in seconds.
    pub(crate) burst_s: f64,
    /// How much longer the reply waits for what others have gathered meanwhile, in seconds.
    pub(crate) gathered_s: f64,
    /// For how long others that collided with it may back off behind it, the reply's sender among them, in
    /// seconds.
    pub(crate) backed_off_s: f64,
    /// How long a token takes once around, in seconds.
    pub(crate) around_s: f64,
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
        match self.medium.kind {
            // A port's own arrivals are known better, but for what comes over one line after the other.
            Kind::Switch { .. } => {
                let load = self.ports[hop.from].sends.bits_per_s() / self.rate;
                let lines = if forwarded { LINES * load } else { 0.0 };
                delay.with(POISSON.at(&lines), |delay, ()| delay)
            }
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => {
                let from = &self.ports[hop.from];
                let mut regular = self.spaced().max(from.regular);
                if forwarded {
                    // What has come over a line as slow comes behind its own length: long packets find
                    // less before them than short ones.
                    regular += self.load() * self.link(from.sends).service.scv() / 2.0;
                }
                delay.with(POISSON.at(&regular), |delay, ()| delay)
            }
        }
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
                let out = Tandem { queue: self.link(from.sends), regular: from.regular };
                let wait_out = GG1_WAIT.at(&out);
                let port = queue::Port { queue: self.link(to.receives), waited_s: self.waited(hop.to) };
                let wait_in = PORT_WAIT.at(&port);
                wait_out.plus(wait_in).map(|waits| waits + 2.0 * sending + latency.get())
            }
            Kind::Wifi { overhead, weather } => {
                let queue = self.pair((hop.from, hop.to));
                let station = self.station(queue, overhead.get(), weather);
                wifi::DELAY.at(&station).map(|d| d + (bits - queue.mean_bits()) / self.rate)
            }
        }
    }

    /// What a copy's packet meets here. `mine` is what the copy itself sends in this direction;
    /// it is part of this cell, but not of its ports.
    pub(crate) fn need(&self, hop: &Hop, mine: Traffic) -> Estimate<Need> {
        let (from, to) = (&self.ports[hop.from], &self.ports[hop.to]);
        let sending = mine.mean_bits() / self.rate;
        match self.medium.kind {
            Kind::Ethernet { propagation } => {
                let own = from.sends.plus(mine);
                let longer = (mine.mean_bits() - own.mean_bits()) / self.rate;
                let access = ethernet::ACCESS.at(&self.sender(propagation.get(), own));
                access.map(|a| {
                    // The same way through, with the length of what the station sends beside the copy.
                    let shorter = (from.sends.mean_bits() - own.mean_bits()) / self.rate;
                    let mean = (a.time.mean + shorter).max(0.0);
                    let second = (a.time.second - a.time.mean * a.time.mean).max(0.0) + mean * mean;
                    let service = Moments { mean, second };
                    let queue = Queue { arrivals_per_s: from.sends.packets_per_s(), service };
                    // Packets of a burst have waited for one another.
                    let mut need = Need::queue(a.next.mean + longer, queue, 0.0);
                    let variance = (a.next.second - a.next.mean * a.next.mean).max(0.0);
                    need.stops.iter_mut().for_each(|(stop, filled)| {
                        stop.service_s = a.time.mean + longer;
                        filled.variance += variance;
                    });
                    need
                })
            }
            Kind::Ring { walk, discipline } => {
                let others = self.all.less(mine);
                let ring = self.ring(walk.get(), discipline, others, from.sends);
                ring::TOKEN.at(&ring).map(|wait| ring_need(&ring, wait, sending, self.way(hop)))
            }
            Kind::Switch { latency } => {
                let mut need = Need::queue(sending, self.link(from.sends), latency.get());
                need.stops.extend(Need::queue(sending, self.link(to.receives), 0.0).stops);
                Estimate::given(need)
            }
            Kind::Wifi { overhead, weather } => {
                let background = self.pair((hop.from, hop.to));
                let station = self.station(background.plus(mine), overhead.get(), weather);
                let airtime = sending + overhead.get();
                let service = background.service(self.rate, overhead.get());
                let queue = Queue { arrivals_per_s: background.packets_per_s(), service };
                wifi::COMPLETION.at(&station).map(|_| {
                    let left = (1.0 - station.others).max(1e-9);
                    let open = queue.utilisation() / left;
                    let square = station.others_square_s + queue.arrivals_per_s * queue.service.second;
                    let stop = Stop {
                        service_s: airtime,
                        wait_s: square / (2.0 * (left - queue.utilisation()).max(1e-9)),
                        spacing_s: airtime / left,
                        between: queue.utilisation(),
                        delay_s: 0.0,
                    };
                    // Bad periods stretch the whole round; here they only make frames be sent again.
                    let filled_s = airtime * station.attempts() / left / (1.0 - open).max(1e-9);
                    let variance = airtime * square / (left - queue.utilisation()).max(1e-9).powi(3);
                    Need { stops: vec![(stop, Filled { open, variance, filled_s })], weather: Some(weather) }
                })
            }
        }
    }

    /// What packets to a switch's port need not wait there, in seconds: those of one sender have waited
    /// for one another at the sender's own link already and come spaced.
    fn waited(&self, to: usize) -> f64 {
        let all = self.ports[to].receives.packets_per_s();
        let of = |(pair, stream): (&(usize, usize), &Traffic)| {
            let queue = self.link(self.pair(*pair));
            stream.packets_per_s() / self.ports[to].stations / all * queue.waited_before()
        };
        if all > 0.0 { self.streams.iter().filter(|((_, at), _)| *at == to).map(of).sum() } else { 0.0 }
    }

    /// Whether all packets, whichever way they go, are sent one after the other by one server. On a 1-limited
    /// ring each station's packets wait for tokens of their own.
    pub(crate) fn serves_both_ways(&self) -> bool {
        match self.medium.kind {
            Kind::Ethernet { .. } | Kind::Wifi { .. } => true,
            Kind::Ring { discipline, .. } => discipline != Discipline::OneLimited,
            Kind::Switch { .. } => false,
        }
    }

    /// How a copy keeps this medium for its data, which goes by `hop`; `None` where data and replies take
    /// turns or never meet.
    pub(crate) fn held(&self, hop: &Hop, size: Size, packets: f64) -> Option<Held> {
        let sending_s = size.mean_bits() / self.rate;
        let load = self.all.bits_per_s() / self.rate;
        let burst_s = packets * sending_s / (1.0 - load).max(1e-9);
        match self.medium.kind {
            Kind::Ring { discipline, walk } => {
                let around_s = walk.get() * self.ports.iter().map(|p| p.stations).sum::<f64>();
                let none = Held { around_s, ..Held::default() };
                let gathered_s = packets * sending_s * (load * self.way(hop)).exp_m1();
                let one_by_one = discipline == Discipline::OneLimited;
                Some(if one_by_one { none } else { Held { burst_s, gathered_s, ..none } })
            }
            Kind::Ethernet { .. } => {
                let backed_off_s = self.all.packets_per_s() * burst_s * BACKED_OFF / self.rate;
                Some(Held { burst_s, backed_off_s, ..Held::default() })
            }
            Kind::Switch { .. } | Kind::Wifi { .. } => None,
        }
    }

    /// How much more regular than Poisson what comes out at a port is. Of a switch's port it is known.
    pub(crate) fn regular(&self, to: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(to.receives), regular: to.regular_in }.departures(),
            // What a shared medium carries leaves it one by one, and this port gets a part of it.
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => {
                let busy = self.busy().unwrap_or(1.0).min(1.0);
                let part = to.receives.packets_per_s() * to.stations / self.all.packets_per_s().max(1e-12);
                part * busy * busy * (1.0 - self.link(self.all).service.scv()).clamp(0.0, 1.0)
            }
        }
    }

    /// The same of what a port has sent, on its way to others.
    pub(crate) fn regular_out(&self, from: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(from.sends), regular: from.regular }.departures(),
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => 0.0,
        }
    }

    /// Mean way along a ring from a station behind one port to one behind another, as a share of
    /// once around. Stations stand in the order of their groups, gateways behind them.
    fn way(&self, hop: &Hop) -> f64 {
        let all: f64 = self.ports.iter().map(|p| p.stations).sum();
        let middle =
            |port: usize| self.ports[..port].iter().map(|p| p.stations).sum::<f64>() + self.ports[port].stations / 2.0;
        // There and back are once around.
        let ahead = if hop.from == hop.to { all / 2.0 } else { middle(hop.to) - middle(hop.from) };
        ahead.rem_euclid(all) / all
    }

    fn sender(&self, propagation_s: f64, own: Traffic) -> Sender {
        let (all, stations) = (self.all, self.senders);
        Sender { bits_per_s: self.rate, propagation_s, stations, all, own, imbalance: self.imbalance() }
    }

    fn ring(&self, walk_s: f64, discipline: Discipline, load: Traffic, own: Traffic) -> Ring {
        Ring {
            discipline,
            stations: self.senders.max(1.0),
            walk_s,
            arrivals_per_s: load.packets_per_s(),
            service: load.service(self.rate, 0.0),
            squares: self.ports.iter().map(|p| p.stations * (p.sends.bits_per_s() / self.rate).powi(2)).sum(),
            own_utilisation: own.bits_per_s() / self.rate,
            own_arrivals_per_s: own.packets_per_s(),
            imbalance: self.imbalance(),
        }
    }

    /// The busiest station's traffic over the average one's.
    fn imbalance(&self) -> f64 {
        let fair = self.all.bits_per_s() / self.senders.max(1.0);
        if fair > 0.0 { self.most / fair } else { 1.0 }
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
            squares: self.squares(queue, overhead_s),
            weather,
        }
    }

    /// The squares of what each queue of a wireless cell takes of the airtime, `queue` among them, which
    /// may have more than the flows bring.
    fn squares(&self, queue: Traffic, overhead_s: f64) -> f64 {
        let of = |(pair, stream): (&(usize, usize), &Traffic)| {
            let one = self.pair(*pair);
            let queues = if one.packets_per_s() > 0.0 { stream.packets_per_s() / one.packets_per_s() } else { 0.0 };
            queues * self.airtime(one, overhead_s).powi(2)
        };
        self.streams.iter().map(of).sum::<f64>().max(self.airtime(queue, overhead_s).powi(2))
    }

    /// How much more regular than Poisson packets come to a medium that all share.
    pub(crate) fn spaced(&self) -> f64 {
        let all = self.all.packets_per_s();
        let of = |p: &Port| p.stations * p.sends.packets_per_s() * p.regular;
        if all > 0.0 { self.ports.iter().map(of).sum::<f64>() / all } else { 0.0 }
    }
}

/// A copy's packets on a ring beside the others' load. A burst goes with the token, or one packet at
/// a time.
fn ring_need(ring: &Ring, wait_s: f64, sending: f64, way: f64) -> Need {
    let queue = Queue { arrivals_per_s: ring.arrivals_per_s, service: ring.service };
    let mut need = Need::queue(sending, queue, way * ring.around_s());
    for (stop, filled) in &mut need.stops {
        stop.wait_s = wait_s;
        if ring.discipline == Discipline::OneLimited {
            // Of the tokens that come some take the station's own other packets.
            let others = (1.0 - ring.utilisation() + ring.own_utilisation).max(1e-9);
            let own = (ring.own_arrivals_per_s * ring.around_s() + ring.own_utilisation) / others;
            let around = (sending + ring.around_s()) / others / (1.0 - own).max(1e-9);
            (stop.spacing_s, stop.between, filled.filled_s) = (around, 0.0, around);
        }
    }
    need
}
