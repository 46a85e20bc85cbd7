//! Arrivals that are not Poisson: packets that a processor, a line or a gateway has spaced, and bursts out of a
//! medium where they have waited for one another.

use super::{Cell, Port};
use crate::network::Hop;
use crate::quantity::Traffic;
use crate::queue::{self, Tandem};
use crate::topology::Kind;

/// How much more regular what comes over one line after the other is, for each part of its load: more
/// than this makes a difference.
const LINES: f64 = 0.3;

/// The same where sizes vary, for each part of their variation.
const CAUGHT: f64 = 0.6;

/// How soon it counts less that a processor takes less time than the medium: sixth power.
const APART: i32 = 6;

impl Cell<'_> {
    /// The part of the waits for a shared medium that is not there because packets come more regular than Poisson
    /// to it: with much load as of a queue, with little nothing (Whitt 1983).
    pub(super) fn spaced_part(&self) -> f64 {
        if matches!(self.medium.kind, Kind::Switch { .. }) {
            return 0.0;
        }
        let busy = self.busy().unwrap_or(1.0).min(1.0);
        busy * busy * self.spaced().min(1.0) / (1.0 + self.link(self.all).service.scv())
    }

    /// By how much the waits behind a line that packets have come over before are not those of Poisson arrivals.
    /// On each line of the same speed those that once ran into a longer one run into it again.
    pub(super) fn lines(&self, from: &Port) -> f64 {
        let queue = self.link(from.sends);
        queue.utilisation() * (LINES + CAUGHT * queue.service.scv())
    }

    /// What packets need not wait for others of the same station, for its processor has spaced them before, in
    /// seconds: with constant times the slower of two queues has all of the wait (Friedman 1965).
    pub(super) fn spared(&self, from: &Port) -> f64 {
        let Port { sends, spacing_s, .. } = *from;
        let overhead_s = if let Kind::Wifi { overhead, .. } = self.medium.kind { overhead.get() } else { 0.0 };
        let sent = sends.service(self.rate, overhead_s);
        let met = sent.mean_of(|time| time.min(spacing_s).powi(2));
        let own = sends.packets_per_s() * sent.mean.min(spacing_s);
        let others = match self.medium.kind {
            Kind::Switch { .. } => 0.0,
            // Others make more of it only if packets of the same station never meet.
            _ => {
                let apart = (spacing_s / sent.mean.max(1e-12)).min(1.0).powi(APART);
                (self.busy().unwrap_or(1.0) - sends.packets_per_s() * sent.mean).max(0.0) * apart
            }
        };
        let busy = (own + others).min(0.95);
        sends.packets_per_s() * met / (2.0 * (1.0 - busy))
    }

    /// How much more regular than Poisson packets come to a switch's port because their stations' processors have
    /// spaced them.
    pub(super) fn regular_at(&self, to: usize) -> f64 {
        let all = self.ports[to].receives.packets_per_s() * self.ports[to].stations;
        let of = |((from, _), stream): (&(usize, usize), &Traffic)| {
            let from = &self.ports[*from];
            let part = stream.packets_per_s() / (from.stations * from.sends.packets_per_s()).max(1e-300);
            let receivers = part / self.ports[to].stations;
            if from.spacing_s > 0.0 { stream.packets_per_s() / all * from.regular * receivers } else { 0.0 }
        };
        if all > 0.0 { self.streams.iter().filter(|((_, at), _)| *at == to).map(of).sum() } else { 0.0 }
    }

    /// What packets to a switch's port need not wait there, in seconds: those of one sender have waited
    /// for one another at the sender's own link already and come spaced.
    pub(super) fn waited(&self, hop: &Hop) -> f64 {
        self.link(self.pair((hop.from, hop.to))).waited_before()
    }

    /// What the packets of another sender need not wait for one another at a switch's port, in seconds, of the sender
    /// of which that is most: so much less, in part, others find before them.
    pub(super) fn waited_by_another(&self, hop: &Hop) -> f64 {
        let another = |from: usize| from != hop.from || self.ports[from].stations > 1.0;
        let there = self.streams.keys().filter(|(from, to)| *to == hop.to && another(*from));
        there.map(|pair| self.link(self.pair(*pair)).waited_before()).fold(0.0, f64::max)
    }

    /// What packets of `bits` wait more (or less, below 0) than others at a switch's port for packets of the
    /// same sender: a longer one takes longer to come, and the one before it is gone by then. The limit of light
    /// traffic.
    pub(super) fn longer_wait(&self, hop: &Hop, bits: f64) -> f64 {
        let pair = self.pair((hop.from, hop.to));
        let before = self.link(pair).service;
        let behind = |own: f64| {
            before.mean_of(|first| {
                let more = (first - own).max(0.0);
                more * (first + more / 2.0)
            })
        };
        pair.packets_per_s() * (behind(bits / self.rate) - before.mean_of(behind))
    }

    /// How much more regular than Poisson what comes out at a port is. Of a switch's port it is known.
    pub(crate) fn regular(&self, to: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(to.receives), regular: to.regular_in }.departures(),
            // What a shared medium carries leaves it one by one, and this port gets a part of it.
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => {
                let busy = self.busy().unwrap_or(1.0).min(1.0);
                let part = to.receives.packets_per_s() * to.stations / self.all.packets_per_s().max(1e-12);
                let spaced = busy * busy * (1.0 - self.link(self.all).service.scv()).clamp(0.0, 1.0);
                part * (spaced + (1.0 - busy * busy) * self.spaced())
            }
        }
    }

    /// How much longer than the average packet one of `bits` takes to come in at a port, in seconds.
    pub(crate) fn longer(&self, hop: &Hop, bits: f64) -> f64 {
        (bits - self.ports[hop.to].receives.mean_bits()) / self.rate
    }

    /// How many packets of all that go to a port come out of a shared medium together because others, a token or
    /// bad periods held them up.
    pub(crate) fn bunched(&self, hop: &Hop, delay_s: f64, bits: f64) -> f64 {
        if matches!(self.medium.kind, Kind::Switch { .. }) {
            return 0.0;
        }
        let to = &self.ports[hop.to];
        let rate = to.receives.packets_per_s() * to.stations;
        let part = to.receives.bits_per_s() * to.stations / self.all.bits_per_s().max(1e-300);
        let way_s = match self.medium.kind {
            Kind::Ring { walk, .. } => self.way(hop) * walk.get() * self.senders,
            _ => 0.0,
        };
        let queue = queue::MG1_WAIT.at(&self.link(self.all)).value().copied().unwrap_or(0.0);
        rate * (delay_s - bits / self.rate - way_s - part * queue).max(0.0)
    }

    /// The same of what a port has sent, on its way to others.
    pub(crate) fn regular_out(&self, from: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(from.sends), regular: from.regular }.departures(),
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => 0.0,
        }
    }

    /// How much more regular than Poisson packets come to a medium that all share.
    pub(crate) fn spaced(&self) -> f64 {
        let all = self.all.packets_per_s();
        let of = |p: &Port| p.stations * p.sends.packets_per_s() * p.regular;
        if all > 0.0 { self.ports.iter().map(of).sum::<f64>() / all } else { 0.0 }
    }
}
