//! Arrivals that are not Poisson in cells: packets that a processor or a line has spaced wait less
//! (`spacing.rs` of the model), and a packet's delay from one port of a medium to another.

use remora_model::{Hop, Kind};

use super::book::{Book, Pad};
use super::expr::{Expr, sum, when};
use super::inputs::Behind;
use super::loads::{Loads, Port, Streams};
use super::medium::{Cell, pair};
use super::queue::Queue;

/// How soon it counts less that a processor takes less time than the medium.
const APART: i32 = 6;

/// What packets that come spaced are spared on a medium.
pub(super) struct Spaced {
    /// At each port, in seconds.
    ports: Vec<Expr>,
    /// Of the waits for a shared medium.
    part: Expr,
    /// How much more regular than Poisson packets come to a medium that all share.
    pub(super) regular: Expr,
    /// The same at a switch's port because of processors.
    regular_at: Vec<Expr>,
}

impl Cell<'_> {
    fn is_switch(&self) -> bool {
        matches!(self.plan.kind(self.medium), Kind::Switch { .. })
    }

    /// How much more regular than Poisson packets come to a medium that all share.
    pub(super) fn spaced(&self, ports: &[Port]) -> Expr {
        let of = |p: &Port| &p.stations * &p.sends.pps * &p.regular;
        let regular = sum(ports.iter().map(of)) / &self.all.pps;
        when(&self.all.pps.gt(0.0), regular, 0.0)
    }

    /// Share of the time that the medium is taken; all of it where it is asked for more.
    fn taken(&self) -> Expr {
        self.busy.or(1.0).min(1.0)
    }

    /// How much more regular than Poisson what comes out at a port is; `spaced` is that of what comes in.
    pub(super) fn regular(&self, ports: &[Port], port: usize, spaced: &Expr) -> Expr {
        let to = &ports[port];
        if let Some((_, into)) = self.links.get(port) {
            return into.departures(&to.regular_in);
        }
        let busy = self.taken().powi(2);
        let part = &to.receives.pps * &to.stations / self.all.pps.max(1e-12);
        let own = &busy * (1.0 - &self.frame_scv).max(0.0).min(1.0);
        part * (own + (1.0 - busy) * spaced)
    }

    /// The same of what a port has sent, on its way to others.
    pub(super) fn regular_out(&self, ports: &[Port], port: usize) -> Expr {
        self.links.get(port).map_or(Expr::from(0.0), |(out, _)| out.departures(&ports[port].regular))
    }

    /// Writes what is spared.
    pub(super) fn put_spaced(&self, book: &mut Book, ports: &[Port], streams: &Streams) -> Spaced {
        let block = book.block(self.sheet, "Packets that come spaced", &[]);
        let mut pad = book.pad(block, 0);
        let regular = pad.put("more regular than Poisson", "", self.spaced(ports));
        let part = if self.is_switch() {
            Expr::from(0.0)
        } else {
            self.taken().powi(2) * regular.min(1.0) / (1.0 + &self.frame_scv)
        };
        let part = pad.put("part of the waits that is spared", "", part);
        let heads: Vec<String> = self.plan.ports[self.medium].iter().map(|b| self.plan.name(*b).to_owned()).collect();
        let block = book.block(self.sheet, "Packets that processors have spaced", &heads);
        let (mut spared, mut regular_at) = (Vec::new(), Vec::new());
        for (i, port) in ports.iter().enumerate() {
            let mut pad = book.pad(block, i);
            spared.push(self.spared(&mut pad, port));
            regular_at.push(pad.put("more regular than Poisson at the port", "", self.regular_at(ports, streams, i)));
        }
        Spaced { ports: spared, part, regular, regular_at }
    }

    /// What packets need not wait for others of the same station (Friedman 1965).
    fn spared(&self, pad: &mut Pad<'_>, from: &Port) -> Expr {
        let sent = from.sends.service(pad, "sent", &self.rate, &self.overhead);
        let points = sent.points(pad, "sent");
        let met = pad.put("met", "s2", points.mean_of(|time| time.min(&from.spacing).powi(2)));
        let own = &from.sends.pps * sent.mean.min(&from.spacing);
        let others = if self.is_switch() {
            Expr::from(0.0)
        } else {
            let apart = (&from.spacing / sent.mean.max(1e-12)).min(1.0).powi(APART);
            (self.busy.or(1.0) - &from.sends.pps * &sent.mean).max(0.0) * apart
        };
        let busy = pad.put("busy", "", (own + others).min(0.95));
        pad.put("wait that is spared", "s", &from.sends.pps * met / (2.0 * (1.0 - busy)))
    }

    /// How much more regular than Poisson packets come to a switch's port because of processors.
    fn regular_at(&self, ports: &[Port], streams: &Streams, to: usize) -> Expr {
        if !self.is_switch() {
            return Expr::from(0.0);
        }
        let port = &ports[to];
        let all = &port.receives.pps * &port.stations;
        let group = |from: usize| matches!(self.plan.ports[self.medium][from], Behind::Group(_));
        let terms = streams.iter().filter(|((from, at), _)| *at == to && group(*from)).map(|((from, _), stream)| {
            let from = &ports[*from];
            let part = &stream.pps / (&from.stations * &from.sends.pps).max(1e-300);
            &stream.pps / &all * &from.regular * (part / &port.stations)
        });
        when(&all.gt(0.0), sum(terms), 0.0)
    }

    /// Delay of packets of so many bits from one port to another.
    pub(super) fn delay(&self, pad: &mut Pad<'_>, hop: &Hop, bits: &Expr, (loads, spaced): (&Loads, &Spaced)) -> Expr {
        let (ports, streams) = (&loads.ports[self.medium], &loads.streams[self.medium]);
        let sending = pad.put("time to send", "s", bits / &self.rate);
        let delay = match (self.links.get(hop.from), self.links.get(hop.to)) {
            (Some((out, _)), Some((_, into))) => {
                let queues = Switched { out, into, regular: &spaced.regular_at[hop.to] };
                self.switched(pad, hop, &sending, (ports, streams), &queues)
            }
            _ => self.shared(pad, ports, (hop.from, hop.to), bits),
        };
        let spared = spaced.ports[hop.from].max(&spaced.part * (&delay - &sending));
        pad.put("delay", "s", &sending + (&delay - &sending - spared).max(0.0))
    }

    /// The same through a switch, before what is spared.
    fn switched(
        &self,
        pad: &mut Pad<'_>,
        hop: &Hop,
        sending: &Expr,
        (ports, streams): (&[Port], &Streams),
        queues: &Switched<'_>,
    ) -> Expr {
        // Of what a station's processor does to its own packets more is known.
        let regular = match self.plan.ports[self.medium][hop.from] {
            Behind::Group(_) => Expr::from(0.0),
            Behind::Gateway(_) => ports[hop.from].regular.clone(),
        };
        let wait_out = pad.put("wait to go to the switch", "s", queues.out.wait_of(&regular));
        let same = pair(ports, streams, (hop.from, hop.to)).put(pad, "from the same sender");
        let service = same.service(pad, "from the same sender", &self.rate, &Expr::from(0.0));
        let points = service.points(pad, "from the same sender");
        let before = Queue::put(pad, "from the same sender", &same.pps, service);
        let waited = pad.put("waited for the same sender before", "s", before.waited_before());
        let behind = |own: &Expr| {
            points.mean_of(|first| {
                let more = (first - own).max(0.0);
                &more * (first + &more / 2.0)
            })
        };
        let mean = pad.put("behind others of the same sender: mean", "s2", points.mean_of(behind));
        let own = pad.put("behind others of the same sender: this one", "s2", behind(sending));
        let longer = pad.put("waits more than others", "s", &same.pps * (own - mean));
        let busy = queues.into.busy.min(1.0);
        let left = 1.0 - queues.regular * busy.powi(2) / (1.0 + &queues.into.scv);
        let wait = (&queues.into.wait - waited).max(0.0) * left + longer;
        let wait_in = pad.put("wait to go from the switch", "s", wait.max(0.0));
        let latency = self.plan.medium(self.medium, "latency");
        pad.put("delay of Poisson arrivals", "s", wait_out + wait_in + 2.0 * sending + latency)
    }
}

/// The two queues of a way through a switch.
struct Switched<'a> {
    out: &'a Queue,
    into: &'a Queue,
    /// How much more regular than Poisson arrivals at the second one are.
    regular: &'a Expr,
}
