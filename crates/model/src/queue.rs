//! Single queues with Poisson arrivals: what a gateway, a switch's port and a station's own queue
//! are.

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
    fn a_queue_that_cannot_keep_up_has_no_mean() {
        for rho in [1.0, 1.5] {
            let got = MG1_WAIT.at(&Queue { arrivals_per_s: rho, service: Moments::constant(1.0) });
            assert_eq!((got.value(), got.outside().len()), (None, 2));
        }
    }
}
