//! A flow's way through media and gateways: what it has met so far, and what that leaves to doubt.

use crate::cell::Came;
use crate::formula::Estimate;
use crate::queue::{BEHIND, BURSTS, SPACED};
use crate::report::Part;

/// What the flows tell about the places on their ways.
pub(crate) struct Across {
    /// Packets a second, and packets a second times delay.
    pub(crate) media: Vec<Option<Estimate<(f64, f64)>>>,
    /// What their waits may be off by.
    pub(crate) gateways: Vec<Behind>,
}

/// How far a gateway's wait may be from that of Poisson arrivals: sums over packets a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Behind {
    packets: f64,
    astray_s: f64,
    bursts_s: f64,
}

impl Behind {
    pub(crate) fn add(&mut self, packets_per_s: f64, astray_s: f64, bursts_s: f64) {
        self.packets += packets_per_s;
        self.astray_s += packets_per_s * astray_s;
        self.bursts_s += packets_per_s * bursts_s;
    }

    /// A gateway's delay with the doubts that come of it.
    pub(crate) fn doubted(&self, delay: Estimate<f64>) -> Estimate<f64> {
        let part = |sum_s: f64| delay.value().map_or(0.0, |d| sum_s / self.packets.max(1e-300) / d.max(1e-12));
        let (astray, bursts) = (BEHIND.at(&part(self.astray_s)), BURSTS.at(&part(self.bursts_s)));
        delay.with(astray, |delay, ()| delay).with(bursts, |delay, ()| delay)
    }
}

/// A flow's packets on their way.
pub(crate) struct Walk {
    /// The sender's group.
    pub(crate) from: usize,
    pub(crate) packets_per_s: f64,
    /// Their mean size.
    pub(crate) bits: f64,
    /// How they have come so far.
    pub(crate) came: Came,
    /// Mean time across the medium that they have crossed last, in seconds.
    pub(crate) here_s: Option<f64>,
    /// The longest service of the gateways ahead, in seconds.
    pub(crate) slowest_s: f64,
    /// Packets of all that have come out of shared media together.
    pub(crate) together: f64,
    /// What those may add at gateways, in seconds.
    pub(crate) bursts_s: f64,
    /// What they need not wait at gateways because a processor has spaced them, in seconds.
    pub(crate) spaced_s: f64,
    /// What they may wait more or less because they have come one behind the other, in seconds.
    pub(crate) astray_s: f64,
    pub(crate) parts: Vec<Part>,
    total: Estimate<f64>,
}

impl Walk {
    pub(crate) fn new(from: usize, packets_per_s: f64, bits: f64) -> Walk {
        Walk {
            from,
            packets_per_s,
            bits,
            came: Came::default(),
            here_s: None,
            slowest_s: 0.0,
            together: 0.0,
            bursts_s: 0.0,
            spaced_s: 0.0,
            astray_s: 0.0,
            parts: Vec::new(),
            total: Estimate::given(0.0),
        }
    }

    /// Another place on the way.
    pub(crate) fn add(&mut self, name: &str, delay: Estimate<f64>) {
        self.parts.push(Part { name: name.to_owned(), delay_s: delay.value().copied() });
        self.total = std::mem::replace(&mut self.total, Estimate::given(0.0)).plus(delay);
    }

    /// The whole delay with its doubts, and its parts.
    pub(crate) fn doubted(self) -> (Estimate<f64>, Vec<Part>) {
        let Walk { total, parts, astray_s, bursts_s, spaced_s, .. } = self;
        let part = |seconds: f64| total.value().map_or(0.0, |total_s| seconds / total_s.max(1e-12));
        let (astray, bursts, spaced) =
            (BEHIND.at(&part(astray_s)), BURSTS.at(&part(bursts_s)), SPACED.at(&part(spaced_s)));
        let total = total.with(astray, |total, ()| total).with(bursts, |total, ()| total);
        (total.with(spaced, |total, ()| total), parts)
    }
}
