//! Polling systems: the stations of a ring, and the pairs of a wireless cell, which take turns.

use super::medium::{Cell, Port};
use crate::formulas::ring::{Discipline, Ring};
use crate::formulas::wifi;
use crate::network::Hop;
use crate::quantity::{Moments, Traffic};
use crate::topology::Kind;

/// Up to this ratio queues count as equal.
const ALIKE: f64 = 1.2;

impl Cell<'_> {
    /// Mean distance along a ring between stations behind two ports, as a share of the rotation.
    /// Stations stand in the order of their groups, gateways behind them.
    pub(super) fn way(&self, hop: &Hop) -> f64 {
        let all: f64 = self.ports.iter().map(|p| p.stations).sum();
        let middle =
            |port: usize| self.ports[..port].iter().map(|p| p.stations).sum::<f64>() + self.ports[port].stations / 2.0;
        // Both directions add up to one rotation.
        let ahead = if hop.from == hop.to { all / 2.0 } else { middle(hop.to) - middle(hop.from) };
        ahead.rem_euclid(all) / all
    }

    /// The load of the stations on the way along a ring from one station to another, and its
    /// possible excess: the stations' positions in their groups are unknown; on average half of the
    /// others stand in between. The second station's own traffic precedes, as does the first
    /// station's under exhaustive service (`all`).
    pub(super) fn passed(&self, hop: &Hop, all: bool) -> (f64, f64) {
        let own = |port: usize| self.ports[port].sends.bits_per_s() / self.rate;
        let others = |port: usize| (self.ports[port].stations - 1.0) * own(port);
        let count = self.ports.len();
        let between = (1..count).map(|i| (hop.from + i) % count).take_while(|port| *port != hop.to);
        let between: f64 = between.map(|port| own(port) + others(port)).sum();
        let unplaced = (others(hop.from) + others(hop.to)) / 2.0;
        let first = if all { own(hop.from) } else { 0.0 };
        (between + unplaced + first + own(hop.to), unplaced)
    }

    pub(super) fn ring(&self, walk_s: f64, discipline: Discipline, load: Traffic, own: Traffic) -> Ring {
        Ring {
            discipline,
            stations: self.senders.max(1.0),
            walk_s,
            arrivals_per_s: load.packets_per_s(),
            service: load.service(self.rate, 0.0),
            squares: self.ports.iter().map(|p| p.stations * (p.sends.bits_per_s() / self.rate).powi(2)).sum(),
            own_utilisation: own.bits_per_s() / self.rate,
            own_arrivals_per_s: own.packets_per_s(),
            met_squares: self.met_squares(),
            own_met: if load.packets_per_s() > 0.0 { second(own) / second(load).max(1e-300) } else { 0.0 },
            imbalance: self.imbalanced(),
            unlike: self.unlike(load),
            turns: self.turns(load, 0.0),
        }
    }

    /// Each queue of the polling system with the number of queues equal to it: on a ring a station,
    /// in a cell a pair of stations.
    pub(super) fn queues(&self) -> Vec<(f64, Traffic)> {
        let of = |(pair, all): (&(usize, usize), &Traffic)| {
            let one = self.pair(pair.0, pair.1);
            (all.packets_per_s() / one.packets_per_s(), one)
        };
        let queues: Vec<(f64, Traffic)> = match self.medium.kind {
            Kind::Wifi { .. } => self.streams.iter().map(of).collect(),
            _ => self.ports.iter().map(|p| (p.stations, p.sends)).collect(),
        };
        queues.into_iter().filter(|(_, one)| one.packets_per_s() > 0.0).collect()
    }

    /// The sum over all stations of load times share of the work in progress at an arrival.
    pub(super) fn met_squares(&self) -> f64 {
        let all: f64 = self.ports.iter().map(|p| p.stations * second(p.sends)).sum();
        let of = |p: &Port| p.stations * p.sends.bits_per_s() / self.rate * second(p.sends);
        if all > 0.0 { self.ports.iter().map(of).sum::<f64>() / all } else { 0.0 }
    }

    /// Ratio of the queue with the most traffic to the one with the least, in packets, bits or (by
    /// its root) the work that others meet.
    pub(super) fn imbalanced(&self) -> f64 {
        let queues = self.queues();
        let ratio = |of: fn(Traffic) -> f64| {
            let most = queues.iter().map(|(_, one)| of(*one)).fold(0.0, f64::max);
            most / queues.iter().map(|(_, one)| of(*one)).fold(f64::INFINITY, f64::min)
        };
        if queues.is_empty() {
            return 1.0;
        }
        ratio(Traffic::packets_per_s).max(ratio(Traffic::bits_per_s)).max(ratio(second).sqrt())
    }

    /// Total variation distance between the stations' shares of `load` and of the work in progress
    /// at an arrival.
    fn unlike(&self, load: Traffic) -> f64 {
        let (bits, work) = (load.bits_per_s().max(1e-300), second(load).max(1e-300));
        let of = |p: &Port| p.stations * (p.sends.bits_per_s() / bits - second(p.sends) / work).abs();
        self.ports.iter().map(of).sum::<f64>() / 2.0
    }

    /// Packets a second of the queue with the most.
    pub(super) fn most_packets(&self) -> f64 {
        self.queues().iter().map(|(_, one)| one.packets_per_s()).fold(0.0, f64::max)
    }

    /// Packets that arrive at one queue during another one's turn, at most; 0 where all are equal.
    pub(super) fn turns(&self, all: Traffic, overhead_s: f64) -> f64 {
        if self.imbalanced() <= ALIKE {
            return 0.0;
        }
        let airtime = all.service(self.rate, overhead_s);
        // Long packets occupy the medium for most of the time.
        let turn_s = airtime.second / airtime.mean;
        let others = |one: Traffic| 1.0 - self.airtime(one, overhead_s) / self.airtime(all, overhead_s);
        self.queues().iter().map(|(_, one)| one.packets_per_s() * turn_s * others(*one)).fold(0.0, f64::max)
    }

    pub(super) fn station(&self, queue: Traffic, overhead_s: f64, channel: wifi::TwoStateChannel) -> wifi::Station {
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
            turns: self.turns(self.all, overhead_s),
            beside_per_s: 0.0,
            beside: Moments::constant(0.0),
            channel,
        }
    }

    /// The sum of the squared airtime shares of a wireless cell's queues, including `queue`, which
    /// may exceed its flows.
    pub(super) fn squares(&self, queue: Traffic, overhead_s: f64) -> f64 {
        let of = |(pair, stream): (&(usize, usize), &Traffic)| {
            let one = self.pair(pair.0, pair.1);
            let queues = if one.packets_per_s() > 0.0 { stream.packets_per_s() / one.packets_per_s() } else { 0.0 };
            queues * self.airtime(one, overhead_s).powi(2)
        };
        self.streams.iter().map(of).sum::<f64>().max(self.airtime(queue, overhead_s).powi(2))
    }
}

/// The work in progress at an arrival, up to the speed.
fn second(traffic: Traffic) -> f64 {
    traffic.packets_per_s() * traffic.second_bits2()
}
