//! Arrivals that are not Poisson: packets spaced by a processor, a line or a gateway, and bursts
//! out of a medium where they waited for one another. Also packets in sequence: over one medium
//! after another they never meet again, or a short one runs into a long one before it. For
//! sequences only the light-traffic limit is known, and that the effect shrinks with traffic (as
//! fitted in [`Queue::waited_before`]); it raises a doubt, not a correction.

use super::medium::{Cell, Port};
use crate::formulas::queue::{self, GG1_WAIT, Queue, Tandem};
use crate::formulas::ring::Discipline;
use crate::network::Hop;
use crate::quantity::Traffic;
use crate::topology::Kind;

/// Regularity added by consecutive lines, per unit of load, above which it matters.
const LINES: f64 = 0.3;

/// The same where sizes vary, per unit of variation.
const CAUGHT: f64 = 0.6;

/// Exponent by which the effect of a processor faster than the medium fades.
const APART: i32 = 6;

impl Cell<'_> {
    /// The share of the waits for a shared medium that is absent because arrivals are more regular
    /// than Poisson: in heavy traffic as at a queue, in light traffic none (Whitt 1983).
    pub(super) fn spaced_part(&self) -> f64 {
        if matches!(self.medium.kind, Kind::Switch { .. }) {
            return 0.0;
        }
        let busy = self.busy().unwrap_or(1.0).min(1.0);
        busy * busy * self.spaced().min(1.0) / (1.0 + self.link(self.all).service.scv())
    }

    /// The deviation from the Poisson wait behind a line that packets crossed before. On each line
    /// of the same speed, packets that caught up with a longer one do so again.
    pub(super) fn lines(&self, from: &Port) -> f64 {
        let queue = self.link(from.sends);
        queue.utilisation() * (LINES + CAUGHT * queue.service.scv())
    }

    /// The wait in seconds saved for packets of the same station, which its processor spaced
    /// before: with constant times the slower of two queues has all of the wait (Friedman 1965).
    pub(super) fn saved(&self, from: &Port) -> f64 {
        let Port { sends, spacing_s, .. } = *from;
        let overhead_s = if let Kind::Wifi { overhead, .. } = self.medium.kind { overhead.get() } else { 0.0 };
        let sent = sends.service(self.rate, overhead_s);
        let met = sent.mean_of(|time| time.min(spacing_s).powi(2));
        let own = sends.packets_per_s() * sent.mean.min(spacing_s);
        let others = match self.medium.kind {
            Kind::Switch { .. } => 0.0,
            // Other stations matter only if packets of the same station never meet.
            _ => {
                let apart = (spacing_s / sent.mean.max(1e-12)).min(1.0).powi(APART);
                (self.busy().unwrap_or(1.0) - sends.packets_per_s() * sent.mean).max(0.0) * apart
            }
        };
        let busy = (own + others).min(0.95);
        sends.packets_per_s() * met / (2.0 * (1.0 - busy))
    }

    /// Regularity of the arrivals at a switch's port due to spacing by the stations' processors.
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

    /// The wait in seconds saved at a switch's port: packets of one sender waited for one another
    /// at the sender's own link and come spaced.
    pub(super) fn waited(&self, hop: &Hop) -> f64 {
        self.link(self.pair(hop.from, hop.to)).waited_before()
    }

    /// The wait in seconds that packets of another sender save at a switch's port, the maximum over
    /// senders: others find that much less before them, in part.
    pub(super) fn waited_by_another(&self, hop: &Hop) -> f64 {
        let another = |from: usize| from != hop.from || self.ports[from].stations > 1.0;
        let there = self.streams.keys().filter(|(from, to)| *to == hop.to && another(*from));
        there.map(|pair| self.link(self.pair(pair.0, pair.1)).waited_before()).fold(0.0, f64::max)
    }

    /// The added wait in seconds (negative for shorter packets) of packets of `bits` at a switch's
    /// port for packets of the same sender: a longer packet takes longer to arrive, and the one
    /// before it is gone by then. The light-traffic limit.
    pub(super) fn longer_wait(&self, hop: &Hop, bits: f64) -> f64 {
        let pair = self.pair(hop.from, hop.to);
        let before = self.link(pair).service;
        let behind = |own: f64| {
            before.mean_of(|first| {
                let more = (first - own).max(0.0);
                more * (first + more / 2.0)
            })
        };
        pair.packets_per_s() * (behind(bits / self.rate) - before.mean_of(behind))
    }

    /// Regularity of the departures at a port; known for a switch's port.
    pub(crate) fn regular(&self, to: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(to.receives), regular: to.regular_in }.departures(),
            // Packets leave a shared medium one by one, and this port gets a part of them.
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => {
                let busy = self.busy().unwrap_or(1.0).min(1.0);
                let part = to.receives.packets_per_s() * to.stations / self.all.packets_per_s().max(1e-12);
                let spaced = busy * busy * (1.0 - self.link(self.all).service.scv()).clamp(0.0, 1.0);
                part * (spaced + (1.0 - busy * busy) * self.spaced())
            }
        }
    }

    /// How much longer than the average packet one of `bits` takes to arrive at a port, in seconds.
    pub(crate) fn longer(&self, hop: &Hop, bits: f64) -> f64 {
        (bits - self.ports[hop.to].receives.mean_bits()) / self.rate
    }

    /// The burst size, in packets to a port, that others, a token or bad periods cause on a shared
    /// medium.
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

    /// Regularity of the packets that a port sent.
    pub(crate) fn regular_out(&self, from: &Port) -> f64 {
        match self.medium.kind {
            Kind::Switch { .. } => Tandem { queue: self.link(from.sends), regular: from.regular }.departures(),
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => 0.0,
        }
    }

    /// Regularity of the arrivals at a shared medium.
    pub(crate) fn spaced(&self) -> f64 {
        let all = self.all.packets_per_s();
        let of = |p: &Port| p.stations * p.sends.packets_per_s() * p.regular;
        if all > 0.0 { self.ports.iter().map(of).sum::<f64>() / all } else { 0.0 }
    }
}

/// Upper limit of the utilisation in these formulas.
const BUSY_MAX: f64 = 0.95;

/// The minimum spacing of packets in sequence.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Spacing {
    /// Seconds per bit of the slowest medium before.
    pub(crate) bit_s: f64,
    /// Minimum seconds between packets: the longest constant service of a gateway.
    pub(crate) least_s: f64,
}

impl Spacing {
    /// The minimum interarrival time, where the first bits of the next packet take `line_s`.
    fn apart(&self, line_s: f64) -> f64 {
        line_s.max(self.least_s)
    }
}

/// The remaining share of the Poisson wait, from that in light traffic and the utilisation of the
/// line before.
fn left(busy: f64, light: f64) -> f64 {
    let busy = busy.min(BUSY_MAX);
    light * (1.0 - busy * (0.6 + 0.28 * busy * busy))
}

/// The wait for a packet that needs `more_s` longer than the next one is behind it, integrated over
/// the time between the two, as a share of that of random arrivals.
fn caught(first_s: f64, more_s: f64) -> f64 {
    more_s * (first_s + more_s / 2.0)
}

impl Cell<'_> {
    /// Minimum time between packets of a lone station, in seconds, where each needs a token of its
    /// own.
    pub(crate) fn token_s(&self, hop: &Hop) -> f64 {
        match self.medium.kind {
            Kind::Ring { walk, discipline: Discipline::OneLimited } if self.ports[hop.from].stations <= 1.0 => {
                walk.get() * self.senders
            }
            _ => 0.0,
        }
    }

    /// By how much the wait of what a gateway sends here may not be what `delay_s` takes it for, in seconds.
    pub(crate) fn deviation(&self, hop: &Hop, spacing: &Spacing, delay_s: f64, bits: f64) -> f64 {
        let Port { sends, regular, .. } = self.ports[hop.from];
        let queue = self.link(sends);
        let slower = spacing.bit_s * self.rate;
        let light = queue.service.mean_of(|first| {
            let of = |next: f64| caught(spacing.apart(first * slower), (first - spacing.apart(next * slower)).max(0.0));
            queue.service.mean_of(of)
        });
        let light = 2.0 * light / queue.service.second.max(1e-300);
        let shared = !matches!(self.medium.kind, Kind::Switch { .. });
        let busy = if shared { self.busy().unwrap_or(1.0) } else { queue.utilisation() }.min(BUSY_MAX);
        let wait_s = queue.arrivals_per_s * queue.service.second / (2.0 * (1.0 - busy));
        let taken_for_s = if shared {
            // The saved wait of the others is known, and applies to this port as well.
            let spaced = self.spaced_part().min(BUSY_MAX);
            wait_s - spaced / (1.0 - spaced) * (delay_s - bits / self.rate).max(0.0)
        } else {
            GG1_WAIT.at(&Tandem { queue, regular }).value().copied().unwrap_or(wait_s)
        };
        (wait_s * left(queue.utilisation() * slower, light) - taken_for_s).abs()
    }

    /// The share of the Poisson wait saved (negative for an added wait) by packets of this medium
    /// at a gateway behind its port `to`, whose queue serves all of `arrives`, and their share of
    /// `arrives`. They arrive in sequence, those of other media at random.
    pub(crate) fn saved_in_sequence(
        &self,
        to: usize,
        spacing: &Spacing,
        gateway: &Queue,
        arrives: Traffic,
    ) -> (f64, f64) {
        let receives = self.ports[to].receives;
        let part = receives.packets_per_s() / arrives.packets_per_s().max(1e-300);
        let line = receives.service(1.0 / spacing.bit_s.max(1e-300), 0.0);
        let first_s = line.mean_of(|first| spacing.apart(first));
        let wait = |demand: f64| line.mean_of(|next| caught(first_s, (demand - spacing.apart(next)).max(0.0)));
        let light = 2.0 * gateway.service.mean_of(wait) / gateway.service.second.max(1e-300);
        (1.0 - left(receives.packets_per_s() * line.mean, light), part)
    }
}
