//! Single queues: what a gateway, a switch's port and a station's own queue are. Arrivals are
//! Poisson, or more regular where they come out of another queue ([`GG1_WAIT`]).

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
    /// Share of the time that the server is busy (above 1: it can't keep up).
    pub fn utilisation(&self) -> f64 {
        self.arrivals_per_s * self.service.mean
    }
}

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

/// The time in queue and service that 95 % of the arrivals stay below, in seconds.
pub static MM1_P95: Formula<Queue, f64> = Formula {
    name: "M/M/1",
    source: "the sojourn time is exponential (Kleinrock 1975, 5.118): p95 = ln 20 * S / (1 - rho)",
    compute: |q| (q.utilisation() < 1.0).then(|| 20f64.ln() * q.service.mean / (1.0 - q.utilisation())),
    bands: STABLE,
};

/// Arrivals that come out of other queues, and where they go.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tandem {
    /// The queue, as if arrivals were Poisson.
    pub queue: Queue,
    /// How much more regular than Poisson they are: 1 less their squared coefficient of variation
    /// (range: 0 to 1).
    pub regular: f64,
}

impl Tandem {
    /// How much more regular than Poisson departures are (Whitt 1983, equation 38): a busy server
    /// spaces them by its service, an idle one leaves them as they came.
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
    bands: &[Band { quantity: Quantity::Utilisation, of: |t| t.queue.utilisation(), low: 0.0, high: 0.95 }],
};

fn wait(q: &Queue) -> Option<f64> {
    let rho = q.utilisation();
    (rho < 1.0).then(|| q.arrivals_per_s * q.service.second / (2.0 * (1.0 - rho)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_those_of_the_tables() {
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
    fn nineteen_in_twenty_are_through_in_three_means() {
        let q = Queue { arrivals_per_s: 0.5, service: Moments::exponential(1.0) };
        assert!((MM1_P95.at(&q).value().unwrap() - 2.0 * 2.995_732_273_553_991).abs() < 1e-12);
    }

    #[test]
    fn regular_arrivals_wait_less_and_poisson_ones_as_ever() {
        let queue = Queue { arrivals_per_s: 0.8, service: Moments::constant(1.0) };
        let wait = |regular| GG1_WAIT.at(&Tandem { queue, regular }).value().copied().unwrap();
        assert!((wait(0.0) - 2.0).abs() < 1e-12);
        assert!(wait(0.5) < 1.0 && wait(0.9) < wait(0.5));
        // D/D/1 does not wait, and its departures are as regular as can be.
        assert_eq!(wait(1.0), 0.0);
        assert!((Tandem { queue, regular: 0.0 }.departures() - 0.64).abs() < 1e-12);
    }

    #[test]
    fn a_queue_that_cannot_keep_up_has_no_mean() {
        for rho in [1.0, 1.5] {
            let got = MG1_WAIT.at(&Queue { arrivals_per_s: rho, service: Moments::constant(1.0) });
            assert_eq!((got.value(), got.outside().len()), (None, 2));
        }
    }
}
