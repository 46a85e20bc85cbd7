//! Single queues: gateways, switch ports and stations' own queues. Arrivals are Poisson, or more
//! regular where they come out of another queue ([`GG1_WAIT`]).

use crate::formula::{Band, Formula, Quantity};
use crate::quantity::Moments;

/// A queue with one server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Queue {
    /// Arrivals a second, Poisson.
    pub arrivals_per_s: f64,
    /// The service time.
    pub service: Moments,
}

impl Queue {
    /// Share of time that the server is busy (above 1: overload).
    pub fn utilisation(&self) -> f64 {
        self.arrivals_per_s * self.service.mean
    }

    /// The wait, in seconds, saved at a second queue of the same speed by packets that waited for
    /// one another here. Packets of one size leave spaced and never wait for one another again:
    /// they save the mean wait of this queue (as in trees of such queues, Rubin 1974). Where a
    /// short packet catches up with a long one they may wait more than random arrivals, and the
    /// result is negative. The light-traffic limit is exact for packets of a minimum size plus an
    /// exponential part; beyond it, the result is fitted to simulation.
    pub(crate) fn waited_before(&self) -> f64 {
        let (busy, scv) = (self.utilisation().min(1.0), self.service.scv());
        let light = 1.0 - (2.5 * scv + scv.sqrt()) / (1.0 + scv);
        let spaced = light + (1.0 - light) * busy * (0.6 + 0.28 * busy * busy);
        wait(self).map_or(0.0, |wait| wait * spaced)
    }
}

/// Below this utilisation a queue hardly matters.
const IDLE: f64 = 0.1;
/// Above this utilisation the saved wait of packets of varied sizes is poorly known.
const CROWDED: f64 = 0.7;

const STABLE: &[Band<Queue>] =
    &[Band { quantity: Quantity::Utilisation, of: Queue::utilisation, low: 0.0, high: 0.95 }];

/// Mean time before service begins, in seconds.
pub static MG1_WAIT: Formula<Queue, f64> = Formula {
    name: "M/G/1",
    source: "Pollaczek 1930, Khinchine 1932: W = l*E[S^2] / (2*(1 - rho)); exact for Poisson arrivals. \
             Beyond 0.95 the mean takes longer to settle than a network keeps its load.",
    compute: wait,
    bands: STABLE,
};

/// The 95th percentile of time in queue and service, in seconds.
pub static MM1_P95: Formula<Queue, f64> = Formula {
    name: "M/M/1",
    source: "the sojourn time is exponential (Kleinrock 1975, 5.118): p95 = ln 20 * S / (1 - rho)",
    compute: |q| (q.utilisation() < 1.0).then(|| 20f64.ln() * q.service.mean / (1.0 - q.utilisation())),
    bands: STABLE,
};

/// A queue whose arrivals come out of other queues.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tandem {
    /// The queue under Poisson arrivals.
    pub queue: Queue,
    /// Regularity of the arrivals: 1 minus their squared coefficient of variation (range: 0 to 1).
    pub regular: f64,
}

impl Tandem {
    /// Regularity of the departures (Whitt 1983, equation 38): a busy server spaces them by its
    /// service, an idle one leaves them as they arrived.
    pub fn departures(&self) -> f64 {
        let busy = self.queue.utilisation().clamp(0.0, 1.0).powi(2);
        (busy * (1.0 - self.queue.service.scv()) + (1.0 - busy) * self.regular).clamp(0.0, 1.0)
    }

    fn wait(&self) -> Option<f64> {
        let poisson = wait(&self.queue)?;
        let (rho, own, arrivals) = (self.queue.utilisation(), self.queue.service.scv(), 1.0 - self.regular);
        let both = own + arrivals;
        if rho <= 0.0 || both <= 0.0 {
            return Some(0.0);
        }
        let few = (-2.0 * (1.0 - rho) * self.regular * self.regular / (3.0 * rho * both)).exp();
        Some(poisson * both / (1.0 + own) * few)
    }
}

/// Mean time before service begins where arrivals come out of other queues, in seconds.
pub static GG1_WAIT: Formula<Tandem, f64> = Formula {
    name: "G/G/1",
    source: "M/G/1 times (ca2 + cs2) / (1 + cs2) with the correction of Kraemer & Langenbach-Belz 1976 for regular \
             arrivals, whose variation is that of the queue they come from (Whitt 1983, the Queueing Network Analyzer)",
    compute: Tandem::wait,
    bands: &[
        Band { quantity: Quantity::Utilisation, of: |t| t.queue.utilisation(), low: 0.0, high: 0.95 },
        Band { quantity: Quantity::Regularity, of: |t| t.regular * t.queue.utilisation(), low: 0.0, high: 0.15 },
    ],
};

/// Mean time before a packet leaves a switch's port, in seconds: the M/G/1 wait minus what its
/// packets waited for one another before.
pub static PORT_WAIT: Formula<Port, f64> = Formula {
    name: "switch port",
    source: "M/G/1 less the waits for packets of the same sender, which have come spaced (trees of queues with \
             constant service, Rubin 1974; with others fitted to simulation)",
    compute: |port| wait(&port.queue).map(|wait| (wait - port.waited_s).max(0.0)),
    bands: &[
        Band { quantity: Quantity::Utilisation, of: |p| p.queue.utilisation(), low: 0.0, high: 0.95 },
        Band { quantity: Quantity::Variation, of: Port::variation, low: 0.0, high: 2.0 },
        Band { quantity: Quantity::Variation, of: Port::crowded, low: 0.0, high: 0.25 },
        Band { quantity: Quantity::BothPorts, of: Port::both, low: 0.0, high: 0.35 },
    ],
};

/// A switch's port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Port {
    /// The queue under Poisson arrivals.
    pub queue: Queue,
    /// Wait for packets of the same sender at an earlier queue, in seconds.
    pub waited_s: f64,
    /// Utilisation of the sender's own port.
    pub sender: f64,
}

impl Port {
    /// Product of both ports' utilisation, raised where sizes vary much, since the wait of short
    /// packets behind long ones they waited for before is known from two moments only.
    fn both(&self) -> f64 {
        self.sender * self.queue.utilisation() * (0.8 + 0.8 * self.queue.service.scv()).max(1.0)
    }

    /// The variation of sizes on a busy port.
    fn crowded(&self) -> f64 {
        if self.queue.utilisation() > CROWDED { self.queue.service.scv() } else { 0.0 }
    }

    /// The variation of sizes on a port that is not idle.
    fn variation(&self) -> f64 {
        if self.queue.utilisation() > IDLE { self.queue.service.scv() } else { 0.0 }
    }
}

/// Whether arrivals at a shared medium may count as Poisson, by their regularity.
pub static POISSON: Formula<f64, ()> = Formula {
    name: "Poisson arrivals",
    source: "a busy server with constant service spaces what leaves it (Whitt 1983)",
    compute: |_| Some(()),
    bands: &[Band { quantity: Quantity::Regularity, of: |r| *r, low: 0.0, high: 0.105 }],
};

/// Whether the wait saved by processors' spacing is known well enough, by its share of the delay.
pub static SPACED: Formula<f64, ()> = Formula {
    name: "spaced before",
    source: "the wait in the slower of two queues with constant service is all there is (Friedman 1965); with others' \
             packets in between less is known",
    compute: |_| Some(()),
    bands: &[Band { quantity: Quantity::Spacing, of: |s| *s, low: 0.0, high: 0.095 }],
};

/// Whether the bursts in which packets leave a shared medium are negligible, by their share of the
/// delay.
pub static BURSTS: Formula<f64, ()> = Formula {
    name: "bursts into a gateway",
    source: "packets that have waited for others or for a token come out together, and a slower gateway queues them",
    compute: |_| Some(()),
    bands: &[Band { quantity: Quantity::Bursts, of: |s| *s, low: 0.0, high: 0.05 }],
};

/// Whether the wait of packets in sequence from an earlier medium is known well enough, by its
/// share of the delay.
pub static BEHIND: Formula<f64, ()> = Formula {
    name: "one behind the other",
    source: "packets of one size never meet again (Rubin 1974), a short one catches up with a long one; the limit of \
             light traffic says how much that may be",
    compute: |_| Some(()),
    bands: &[Band { quantity: Quantity::Behind, of: |s| *s, low: 0.0, high: 0.03 }],
};

/// A station's processor, of which only the utilisation is modelled; its wait is negligible.
pub static PROCESSOR: Formula<f64, ()> = Formula {
    name: "station software",
    source: "a processor that is asked for more than it can do sends less than the flows say",
    compute: |busy| (*busy < 1.0).then_some(()),
    bands: &[Band { quantity: Quantity::Utilisation, of: |busy| *busy, low: 0.0, high: 0.95 }],
};

fn wait(q: &Queue) -> Option<f64> {
    let rho = q.utilisation();
    (rho < 1.0).then(|| q.arrivals_per_s * q.service.second / (2.0 * (1.0 - rho)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_equals_that_of_the_tables() {
        // Service of 1 s: M/M/1 waits rho / (1 - rho), M/D/1 half of it.
        for (rho, mm1) in [(0.0, 0.0), (0.1, 1.0 / 9.0), (0.5, 1.0), (0.8, 4.0), (0.9, 9.0)] {
            for (service, expected) in [(Moments::exponential(1.0), mm1), (Moments::constant(1.0), mm1 / 2.0)] {
                let got = MG1_WAIT.at(&Queue { arrivals_per_s: rho, service });
                assert!((got.value().unwrap() - expected).abs() < 1e-12, "{rho}: {got:?}");
                assert!(got.outside().is_empty());
            }
        }
    }

    #[test]
    fn mm1_p95_is_three_means() {
        let q = Queue { arrivals_per_s: 0.5, service: Moments::exponential(1.0) };
        assert!((MM1_P95.at(&q).value().unwrap() - 2.0 * 2.995_732_273_553_991).abs() < 1e-12);
    }

    #[test]
    fn regular_arrivals_wait_less_than_poisson() {
        let queue = Queue { arrivals_per_s: 0.8, service: Moments::constant(1.0) };
        let wait = |regular| GG1_WAIT.at(&Tandem { queue, regular }).value().copied().unwrap();
        assert!((wait(0.0) - 2.0).abs() < 1e-12);
        assert!(wait(0.5) < 1.0 && wait(0.9) < wait(0.5));
        // D/D/1 does not wait, and its departures are as regular as can be.
        assert_eq!(wait(1.0), 0.0);
        assert!((Tandem { queue, regular: 0.0 }.departures() - 0.64).abs() < 1e-12);
    }

    /// Packets of one size never wait for one another again; of varied sizes they do, in light
    /// traffic more than random arrivals (simulation: 1.53, 0.99 and 0.40 of the M/G/1 wait).
    #[test]
    fn second_queue_saves_the_first_queues_wait() {
        let queue = |busy: f64, service| Queue { arrivals_per_s: busy, service };
        let port = |queue: Queue| {
            let waited_s = queue.waited_before();
            *PORT_WAIT.at(&Port { queue, waited_s, sender: 0.0 }).value().unwrap()
        };
        assert!(port(queue(0.8, Moments::constant(1.0))) < 1e-12);
        for (busy, share) in [(0.2, 1.53), (0.6, 0.99), (0.9, 0.40)] {
            let queue = queue(busy, Moments::exponential(1.0));
            let got = port(queue) / MG1_WAIT.at(&queue).value().unwrap();
            assert!((got - share).abs() < 0.06, "{busy}: {got}");
        }
    }

    #[test]
    fn overloaded_queue_has_no_mean() {
        for rho in [1.0, 1.5] {
            let got = MG1_WAIT.at(&Queue { arrivals_per_s: rho, service: Moments::constant(1.0) });
            assert_eq!((got.value(), got.outside().len()), (None, 2));
        }
    }
}
