//! A medium with what it carries: which formulas answer for it. What follows from loads alone is here;
//! what packets that are spaced save is in [`super::spacing`].

use std::collections::BTreeMap;

use remora_model::queue::PORT_WAIT;
use remora_model::ring::WAIT;
use remora_model::wifi::DELAY;
use remora_model::{Kind, Quantity};

use super::book::{Block, Book, Pad};
use super::ethernet::{self, Sender};
use super::expr::{Cond, Expr, most, sum, when};
use super::formulas;
use super::inputs::Plan;
use super::loads::{Loads, Port, Streams};
use super::queue::Queue;
use super::ring::{self, Ring};
use super::traffic::{Moments, Traffic};
use super::wifi::{Station, Weather};

/// What a formula holds for: not where one of these does.
pub(super) type Doubts = Vec<(Cond, String)>;

/// A medium and its load.
pub(super) struct Cell<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) medium: usize,
    /// The sheet that its formulas are on.
    pub(super) sheet: usize,
    pub(super) rate: Expr,
    /// What packets take beside their bits.
    pub(super) overhead: Expr,
    pub(super) all: Traffic,
    pub(super) senders: Expr,
    /// Time to send a packet of all.
    pub(super) frame: Moments,
    pub(super) frame_scv: Expr,
    pub(super) load: Expr,
    /// Share of the time that the medium is taken; no value where it is asked for more than it can carry.
    pub(super) busy: Expr,
    /// Queues of a switch's ports, out and in.
    pub(super) links: Vec<(Queue, Queue)>,
    /// Mean wait or delay by port, on a wireless cell by pair of ports, if arrivals were Poisson.
    waits: BTreeMap<(usize, usize), Expr>,
    doubts: BTreeMap<(usize, usize), Doubts>,
    around: Expr,
}

/// Beyond this none of the four bands of CSMA/CD delay holds.
const ETHERNET_BUSY: f64 = 0.825;

impl<'a> Cell<'a> {
    /// Writes what follows from the loads.
    pub(super) fn new(plan: &'a Plan<'a>, book: &mut Book, sheet: usize, medium: usize, loads: &Loads) -> Cell<'a> {
        let (ports, streams) = (&loads.ports[medium], &loads.streams[medium]);
        let block = book.block(sheet, "The medium", std::slice::from_ref(&plan.topology.media[medium].name));
        let mut pad = book.pad(block, 0);
        let mut cell = Cell::about(plan, &mut pad, sheet, medium, ports);
        match plan.kind(medium) {
            Kind::Switch { .. } => cell.add_links(book, ports),
            Kind::Ethernet { .. } => cell.add_senders(book, ports),
            Kind::Ring { walk: _, discipline } => {
                let walk = plan.medium(medium, "walk");
                let rate = cell.rate.clone();
                let block = book.block(sheet, "The ring", &[]);
                let ring = Ring::put(&mut book.pad(block, 0), (*discipline, &walk), &rate, ports);
                cell.around = ring.around.clone();
                cell.add_stations(book, &ring, ports);
            }
            Kind::Wifi { .. } => cell.add_pairs(book, (ports, streams)),
        }
        cell
    }

    /// What any medium has.
    fn about(plan: &'a Plan<'a>, pad: &mut Pad<'_>, sheet: usize, medium: usize, ports: &[Port]) -> Cell<'a> {
        let kind = plan.kind(medium);
        let rate = plan.medium(medium, "rate");
        let overhead = match kind {
            Kind::Wifi { .. } => plan.medium(medium, "overhead"),
            _ => Expr::from(0.0),
        };
        let each: Vec<Traffic> = ports.iter().map(|p| p.sends.times(&p.stations)).collect();
        let all = Traffic::sum(&each).put(pad, "all");
        let frame = all.service(pad, "a packet", &rate, &Expr::from(0.0));
        let frame_scv = pad.put("variation of the sizes", "", frame.scv());
        let senders = match kind {
            Kind::Ring { .. } => sum(ports.iter().map(|p| p.stations.clone())),
            _ => sum(ports.iter().map(|p| when(&p.sends.pps.gt(0.0), &p.stations, 0.0))),
        };
        let senders = pad.put("stations that send, or pass a token", "", senders);
        let fullest = most(ports.iter().flat_map(|p| [p.sends.bits.clone(), p.receives.bits.clone()]));
        let load = if matches!(kind, Kind::Switch { .. }) { fullest } else { all.bits.clone() };
        let load = pad.put("load", "", load / &rate);
        let taken = if matches!(kind, Kind::Wifi { .. }) { all.airtime(&rate, &overhead) } else { load.clone() };
        let busy = pad.put("share of the time that it is taken", "", taken.only_if(&taken.lt(1.0)));
        let (waits, doubts) = (BTreeMap::new(), BTreeMap::new());
        let (links, around) = (Vec::new(), Expr::from(0.0));
        Cell {
            plan,
            medium,
            sheet,
            rate,
            overhead,
            all,
            senders,
            frame,
            frame_scv,
            load,
            busy,
            links,
            waits,
            doubts,
            around,
        }
    }

    fn name(&self, port: usize) -> String {
        self.plan.name(self.plan.ports[self.medium][port]).to_owned()
    }

    /// A block with a column for each port.
    fn of_ports(&self, book: &mut Book, title: &str) -> Block {
        let heads: Vec<String> = (0..self.plan.ports[self.medium].len()).map(|p| self.name(p)).collect();
        book.block(self.sheet, title, &heads)
    }

    fn doubt(&mut self, at: (usize, usize), condition: Cond, what: &str) {
        let name = &self.plan.topology.media[self.medium].name;
        self.doubts.entry(at).or_default().push((condition, format!("{name}: {what}")));
    }

    fn add_links(&mut self, book: &mut Book, ports: &[Port]) {
        let block = self.of_ports(book, "Lines from and to the switch (M/G/1)");
        let zero = Expr::from(0.0);
        for (i, port) in ports.iter().enumerate() {
            let mut pad = book.pad(block, i);
            let sends = port.sends.service(&mut pad, "to the switch", &self.rate, &zero);
            let sends = Queue::put(&mut pad, "to the switch", &port.sends.pps, sends);
            let receives = port.receives.service(&mut pad, "from the switch", &self.rate, &zero);
            let receives = Queue::put(&mut pad, "from the switch", &port.receives.pps, receives);
            self.links.push((sends, receives));
        }
    }

    fn add_senders(&mut self, book: &mut Book, ports: &[Port]) {
        let propagation = self.plan.medium(self.medium, "propagation");
        let mut heads = vec!["the average station".to_owned()];
        let speak: Vec<usize> = (0..ports.len()).filter(|p| !ports[*p].sends.is_none()).collect();
        heads.extend(speak.iter().map(|p| self.name(*p)));
        let block = book.block(self.sheet, "CSMA/CD: frames through their attempts", &heads);
        let (rate, all) = (self.rate.clone(), self.all.clone());
        let average = all.over(&self.senders.max(1.0));
        let columns = speak.iter().map(|p| (Some(*p), ports[*p].sends.clone()));
        for (column, (port, own)) in std::iter::once((None, average)).chain(columns).enumerate() {
            let mut pad = book.pad(block, column);
            let own = own.put(&mut pad, "station sends");
            let sender = Sender { rate: &rate, propagation: &propagation, all: &all, own: &own };
            let access = sender.settle(&mut pad);
            let delay = sender.delay(&mut pad, &access);
            if let Some(port) = port {
                self.waits.insert((port, 0), delay);
                self.doubt((port, 0), access.busy.gt(ETHERNET_BUSY), &format!("busy beyond {ETHERNET_BUSY}"));
            } else {
                self.busy = access.busy;
            }
        }
    }

    fn add_stations(&mut self, book: &mut Book, ring: &Ring<'_>, ports: &[Port]) {
        let block = self.of_ports(book, "Stations on the ring");
        for (i, port) in ports.iter().enumerate() {
            let wait = ring.wait(&mut book.pad(block, i), &self.all, &self.frame, &port.sends);
            self.waits.insert((i, 0), wait.wait);
            let most = formulas::high(&WAIT, Quantity::Utilisation);
            self.doubt((i, 0), wait.share.gt(most), &format!("utilisation beyond {most}"));
        }
    }

    fn add_pairs(&mut self, book: &mut Book, (ports, streams): (&[Port], &Streams)) {
        let heads: Vec<String> =
            streams.keys().map(|(from, to)| format!("{} > {}", self.name(*from), self.name(*to))).collect();
        if heads.is_empty() {
            return;
        }
        let (rate, overhead, all, weather) =
            (self.rate.clone(), self.overhead.clone(), self.all.clone(), self.weather());
        let squares = |(pair, stream): (&(usize, usize), &Traffic)| {
            stream.airtime(&rate, &overhead).powi(2) / pairs(ports, *pair)
        };
        let block = book.block(self.sheet, "Queues that take turns", &[]);
        let squares = book.pad(block, 0).put("squares of the queues' airtime", "", sum(streams.iter().map(squares)));
        let block = book.block(self.sheet, "From one station to another", &heads);
        for (column, (from, to)) in streams.keys().copied().enumerate() {
            let mut pad = book.pad(block, column);
            let queue = pair(ports, streams, (from, to)).put(&mut pad, "queue");
            let beside = pair(ports, streams, (to, from)).put(&mut pad, "the other way");
            let (rate, overhead) = (&rate, &overhead);
            let (all, weather, squares) = (&all, &weather, &squares);
            let station = Station { rate, overhead, weather, all, queue: &queue, beside: &beside, squares };
            let delay = station.delay(&mut pad);
            let longer = pad.put("mean frame", "bit", queue.mean_bits());
            // As a wait, to which a packet's own bits come.
            self.waits.insert((from, to), delay.delay - longer / rate);
            let [load, loss] = [Quantity::Load, Quantity::FrameLoss].map(|q| formulas::high(&DELAY, q));
            self.doubt((from, to), delay.load.gt(load), &format!("load beyond {load}"));
            self.doubt((from, to), delay.loss.gt(loss), &format!("frames meet bad periods more often than {loss}"));
        }
    }

    /// A wireless cell's channels; without breaks elsewhere.
    pub(super) fn weather(&self) -> Weather {
        let Kind::Wifi { channel: weather, .. } = self.plan.kind(self.medium) else {
            return Weather {
                good: Expr::from(1.0),
                bad: Expr::from(0.0),
                periods: remora_model::wifi::Periods::Constant,
            };
        };
        let get = |key| self.plan.medium(self.medium, key);
        Weather { good: get("good"), bad: get("bad"), periods: weather.bad }
    }

    /// Why to doubt delays from one port to another.
    pub(super) fn doubts(&self, from: usize, to: usize) -> Doubts {
        let wireless = matches!(self.plan.kind(self.medium), Kind::Wifi { .. });
        let own = self.doubts.get(&(from, if wireless { to } else { 0 })).cloned().unwrap_or_default();
        let links = [self.links.get(from).map(|(out, _)| out), self.links.get(to).map(|(_, into)| into)];
        let name = &self.plan.topology.media[self.medium].name;
        let most = formulas::high(&PORT_WAIT, Quantity::Utilisation);
        let full = |q: &Queue| (q.busy.gt(most), format!("{name}: utilisation beyond {most}"));
        own.into_iter().chain(links.into_iter().flatten().map(full)).collect()
    }

    /// Mean delay on a shared medium of packets of so many bits from port to port, if arrivals were Poisson.
    pub(super) fn shared(&self, pad: &mut Pad<'_>, ports: &[Port], (from, to): (usize, usize), bits: &Expr) -> Expr {
        let wait = |at| self.waits.get(&at).cloned().unwrap_or_else(Expr::none);
        let delay = match self.plan.kind(self.medium) {
            Kind::Ethernet { .. } => wait((from, 0)) + (bits - ports[from].sends.mean_bits()) / &self.rate,
            Kind::Ring { .. } => {
                let way = pad.put("part of the ring on the way", "", ring::way(ports, from, to));
                wait((from, 0)) + bits / &self.rate + way * &self.around
            }
            Kind::Wifi { .. } | Kind::Switch { .. } => wait((from, to)) + bits / &self.rate,
        };
        pad.put("delay of Poisson arrivals", "s", delay)
    }

    /// Packets a second that the medium could carry at most; no value where no formula says.
    pub(super) fn capacity(&self) -> Expr {
        let Kind::Ethernet { .. } = self.plan.kind(self.medium) else { return Expr::none() };
        let propagation = self.plan.medium(self.medium, "propagation");
        let most = ethernet::capacity(&self.rate, &propagation, &self.senders, &self.frame.mean);
        most.only_if(&self.all.pps.gt(0.0))
    }
}

/// Pairs of stations behind two ports; nobody sends to itself.
fn pairs(ports: &[Port], (from, to): (usize, usize)) -> Expr {
    let (senders, receivers) = (&ports[from].stations, &ports[to].stations);
    let pairs = if from == to { senders * (receivers - 1.0) } else { senders * receivers };
    pairs.max(1.0)
}

/// What one station behind a port sends to one behind another.
pub(super) fn pair(ports: &[Port], streams: &Streams, at: (usize, usize)) -> Traffic {
    streams.get(&at).map_or_else(Traffic::none, |all| all.over(&pairs(ports, at)))
}
