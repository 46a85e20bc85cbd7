//! Packets that have come one behind the other over a medium before: at the next place they never meet again, or a
//! short one runs into the long one before it. Formulas that take them for Poisson are off by this; what is known
//! of it is the limit of light traffic, and that it gets less with more (as fitted in
//! [`Queue::waited_before`](crate::queue::Queue)). A doubt, not a correction.

use super::{Cell, Port};
use crate::network::Hop;
use crate::quantity::Traffic;
use crate::queue::{GG1_WAIT, Queue, Tandem};
use crate::ring::Discipline;
use crate::topology::Kind;

/// Fuller than this places are not taken for.
const BUSY_MAX: f64 = 0.95;

/// How packets have come: one behind the other.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Came {
    /// Seconds a bit of the slowest medium before.
    pub(crate) bit_s: f64,
    /// Seconds from one to the next at least: the longest constant service of a gateway.
    pub(crate) least_s: f64,
}

impl Came {
    /// From one packet's coming to the next one's at least, where the first bits of the next take `line_s`.
    fn apart(&self, line_s: f64) -> f64 {
        line_s.max(self.least_s)
    }
}

/// What of the wait of Poisson arrivals is left, by what is left of it with little traffic and how busy the line
/// is that they have come over.
fn left(busy: f64, light: f64) -> f64 {
    let busy = busy.min(BUSY_MAX);
    light * (1.0 - busy * (0.6 + 0.28 * busy * busy))
}

/// The wait for one before that needs `more_s` longer than the next one is behind it, over all times between the
/// two, as a part of what it would be if they came at random.
fn caught(first_s: f64, more_s: f64) -> f64 {
    more_s * (first_s + more_s / 2.0)
}

impl Cell<'_> {
    /// From one packet of a lone station to its next one at least, in seconds: where each needs a token of its own.
    pub(crate) fn token_s(&self, hop: &Hop) -> f64 {
        match self.medium.kind {
            Kind::Ring { walk, discipline: Discipline::OneLimited } if self.ports[hop.from].stations <= 1.0 => {
                walk.get() * self.senders
            }
            _ => 0.0,
        }
    }

    /// By how much the wait of what a gateway sends here may not be what `delay_s` takes it for, in seconds.
    pub(crate) fn astray(&self, hop: &Hop, came: &Came, delay_s: f64, bits: f64) -> f64 {
        let Port { sends, regular, .. } = self.ports[hop.from];
        let queue = self.link(sends);
        let slower = came.bit_s * self.rate;
        let light = queue.service.mean_of(|first| {
            let of = |next: f64| caught(came.apart(first * slower), (first - came.apart(next * slower)).max(0.0));
            queue.service.mean_of(of)
        });
        let light = 2.0 * light / queue.service.second.max(1e-300);
        let shared = !matches!(self.medium.kind, Kind::Switch { .. });
        let busy = if shared { self.busy().unwrap_or(1.0) } else { queue.utilisation() }.min(BUSY_MAX);
        let wait_s = queue.arrivals_per_s * queue.service.second / (2.0 * (1.0 - busy));
        let taken_for_s = if shared {
            // What has been left out of the delay is known, and is this port's as much as others'.
            let spaced = self.spaced_part().min(BUSY_MAX);
            wait_s - spaced / (1.0 - spaced) * (delay_s - bits / self.rate).max(0.0)
        } else {
            GG1_WAIT.at(&Tandem { queue, regular }).value().copied().unwrap_or(wait_s)
        };
        (wait_s * left(queue.utilisation() * slower, light) - taken_for_s).abs()
    }

    /// What packets of this medium need not wait (or more, below 0) at a gateway behind its port `to`, whose queue
    /// has all of `arrives` to serve, as a part of what they would if they came at random; and their part of
    /// `arrives`. They come one behind the other, those of other media whenever they do.
    pub(crate) fn spared_behind(&self, to: usize, came: &Came, gateway: &Queue, arrives: Traffic) -> (f64, f64) {
        let receives = self.ports[to].receives;
        let part = receives.packets_per_s() / arrives.packets_per_s().max(1e-300);
        let line = receives.service(1.0 / came.bit_s.max(1e-300), 0.0);
        let first_s = line.mean_of(|first| came.apart(first));
        let wait = |needs: f64| line.mean_of(|next| caught(first_s, (needs - came.apart(next)).max(0.0)));
        let light = 2.0 * gateway.service.mean_of(wait) / gateway.service.second.max(1e-300);
        (1.0 - left(receives.packets_per_s() * line.mean, light), part)
    }
}
