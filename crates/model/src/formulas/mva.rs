//! Windowed copies as a closed queueing network: `window` requests circulate through sender, media,
//! gateways and receiver; exact single-class mean-value analysis (Reiser & Lavenberg 1980).
//!
//! Others' traffic is an open load at each station, which leaves the copy `1 - load` of it (the
//! shadow server; exact for mixed product-form networks, Lazowska et al. 1984, chapter 7).

use crate::formula::{Band, Formula, Quantity};

/// Maximum of outstanding requests, and of the solution's steps.
pub const WINDOW_MAX: u32 = 4096;

/// A service centre.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Centre {
    /// Service demand of a request, in seconds.
    pub demand_s: f64,
    /// Share of its time used by others.
    pub open: f64,
}

impl Centre {
    /// The demand stretched by the others' load; `None` if they leave nothing.
    fn inflated(self) -> Option<f64> {
        (self.open < 1.0).then(|| self.demand_s / (1.0 - self.open.max(0.0)))
    }
}

/// A closed network.
#[derive(Clone, PartialEq, Debug)]
pub struct Closed {
    /// Requests outstanding (1 to [`WINDOW_MAX`]; larger values count as that).
    pub window: u32,
    /// Think time of a round (a request's way through all stations and back), without queueing, in
    /// seconds.
    pub think_s: f64,
    pub centres: Vec<Centre>,
}

/// The throughput and queues of a copy.
#[derive(Clone, PartialEq, Debug)]
pub struct Pace {
    /// Requests completed a second.
    pub requests_per_s: f64,
    /// Response time of a request without think time, in seconds.
    pub response_s: f64,
    /// Requests at each centre on average.
    pub queued: Vec<f64>,
    /// Utilisation of each centre by the copy and the others.
    pub busy: Vec<f64>,
}

impl Pace {
    /// The result where a round takes `factor` times as long (1 or more) and `think_s` stays the
    /// same.
    #[must_use]
    pub(crate) fn slower(mut self, times: f64, think_s: f64) -> Pace {
        self.requests_per_s /= times;
        self.response_s = (self.response_s + think_s) * times - think_s;
        self
    }
}

/// The throughput of a windowed copy.
pub static PACE: Formula<Closed, Pace> = Formula {
    name: "closed MVA",
    source: "exact mean-value analysis of one closed class (Reiser & Lavenberg 1980) with shadow servers; exact for \
             exponential service, less than a request in one centre too many elsewhere",
    compute: pace,
    bands: &[Band { quantity: Quantity::Utilisation, of: most_open, low: 0.0, high: 0.95 }],
};

fn most_open(closed: &Closed) -> f64 {
    closed.centres.iter().map(|c| c.open).fold(0.0, f64::max)
}

fn pace(closed: &Closed) -> Option<Pace> {
    let demands: Vec<f64> = closed.centres.iter().map(|c| c.inflated()).collect::<Option<_>>()?;
    let mut queued = vec![0.0; demands.len()];
    let (mut rate, mut response) = (0.0, 0.0);
    for n in 1..=closed.window.clamp(1, WINDOW_MAX) {
        response = demands.iter().zip(&queued).map(|(d, q)| d * (1.0 + q)).sum();
        let round = closed.think_s + response;
        if round <= 0.0 {
            return None;
        }
        rate = f64::from(n) / round;
        for (q, d) in queued.iter_mut().zip(&demands) {
            *q = rate * d * (1.0 + *q);
        }
    }
    let busy = closed.centres.iter().map(|c| c.open + rate * c.demand_s).collect();
    Some(Pace { requests_per_s: rate, response_s: response, queued, busy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn closed(window: u32, think_s: f64, demands: &[f64]) -> Closed {
        let centres = demands.iter().map(|d| Centre { demand_s: *d, open: 0.0 }).collect();
        Closed { window, think_s, centres }
    }

    #[test]
    fn balanced_network_equals_closed_form() {
        // K equal centres without think time: X = N / (D * (N + K - 1)).
        for (n, k) in [(1, 1), (1, 3), (4, 2), (16, 5)] {
            let got = PACE.at(&closed(n, 0.0, &vec![0.01; k]));
            let expected = f64::from(n) / (0.01 * (f64::from(n) + k as f64 - 1.0));
            assert!((got.value().unwrap().requests_per_s / expected - 1.0).abs() < 1e-12, "{n} {k}");
        }
    }

    #[test]
    fn single_request_sees_its_demand_and_the_open_load() {
        let mut one = closed(1, 0.5, &[0.1, 0.2]);
        assert!((PACE.at(&one).value().unwrap().requests_per_s - 1.0 / 0.8).abs() < 1e-12);
        one.centres[1].open = 0.5;
        assert!((PACE.at(&one).value().unwrap().requests_per_s - 1.0).abs() < 1e-12);
        one.centres[1].open = 1.0;
        assert_eq!(PACE.at(&one).value(), None);
    }

    proptest! {
        #[test]
        fn throughput_obeys_asymptotic_bounds(n in 1u32..200, z in 0.0f64..0.1, demands in prop::collection::vec(1e-5f64..0.1, 1..8)) {
            let got = PACE.at(&closed(n, z, &demands));
            let pace = got.value().unwrap();
            let sum: f64 = z + demands.iter().sum::<f64>();
            let most = demands.iter().copied().fold(0.0, f64::max);
            let bound = (f64::from(n) / sum).min(1.0 / most);
            prop_assert!(pace.requests_per_s <= bound * (1.0 + 1e-9));
            // Little's law over the whole round.
            let inside: f64 = pace.queued.iter().sum::<f64>() + pace.requests_per_s * z;
            prop_assert!((inside / f64::from(n) - 1.0).abs() < 1e-9);
            let wider = PACE.at(&closed(n + 1, z, &demands));
            prop_assert!(wider.value().unwrap().requests_per_s >= pace.requests_per_s * (1.0 - 1e-12));
        }
    }
}
