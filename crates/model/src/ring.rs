//! Token ring: N stations in a cycle; the token takes `walk` seconds from one to the next.
//!
//! Mean waits of symmetric stations with Poisson arrivals, by what a station may send when the
//! token comes: all it has (exhaustive), what it had when the token came (gated), or one packet
//! (1-limited). Time to send is the packet's; it then travels half the ring on average.

use serde::Serialize;

use crate::formula::{Band, Formula, Quantity};
use crate::quantity::Moments;

/// What a station may send when it has the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Until its queue is empty.
    Exhaustive,
    /// What was there when the token came.
    Gated,
    /// One packet.
    OneLimited,
}

/// A ring and its load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ring {
    /// When a station passes the token on.
    pub discipline: Discipline,
    /// Stations (1 or more).
    pub stations: f64,
    /// From one station to the next, in seconds.
    pub walk_s: f64,
    /// Packets a second of all stations.
    pub arrivals_per_s: f64,
    /// Time to send a packet.
    pub service: Moments,
    /// The busiest station's traffic over the average station's.
    pub imbalance: f64,
}

impl Ring {
    /// Share of the time that packets are being sent.
    pub fn utilisation(&self) -> f64 {
        self.arrivals_per_s * self.service.mean
    }

    /// Share of what the ring can carry: a 1-limited ring also pays a walk for each packet.
    fn share(&self) -> f64 {
        let walks = match self.discipline {
            Discipline::OneLimited => self.arrivals_per_s * self.walk_s,
            Discipline::Exhaustive | Discipline::Gated => 0.0,
        };
        self.utilisation() + walks
    }

    /// The same where stations send one packet at a time; elsewhere 0.
    fn one_by_one(&self) -> f64 {
        if self.discipline == Discipline::OneLimited { self.share() } else { 0.0 }
    }

    /// Mean way from sender to receiver, in seconds: half the ring.
    pub fn travel_s(&self) -> f64 {
        self.stations * self.walk_s / 2.0
    }
}

/// Mean time before a packet's transmission begins, in seconds.
pub static WAIT: Formula<Ring, f64> = Formula {
    name: "token ring",
    source: "symmetric cyclic service: exhaustive and gated by Konheim & Meister 1974 and Ferguson & Aminetzah 1985, \
             1-limited by Fuhrmann 1985 and Takagi 1986; exact for equal stations with Poisson arrivals",
    compute: wait,
    bands: &[
        Band { quantity: Quantity::Utilisation, of: Ring::share, low: 0.0, high: 0.95 },
        Band { quantity: Quantity::Imbalance, of: |r| r.imbalance, low: 0.0, high: 1.2 },
    ],
};

/// Mean time until a station that has sent nothing for a while may send, in seconds.
pub static TOKEN: Formula<Ring, f64> = Formula {
    name: "token",
    source: "the wait of a packet beside the others' load; with one packet at a time a station that has no queue of \
             its own waits less, which shows at high load",
    compute: wait,
    bands: &[
        Band { quantity: Quantity::Utilisation, of: Ring::share, low: 0.0, high: 0.95 },
        Band { quantity: Quantity::Load, of: Ring::one_by_one, low: 0.0, high: 0.8 },
        Band { quantity: Quantity::Imbalance, of: |r| r.imbalance, low: 0.0, high: 1.2 },
    ],
};

fn wait(ring: &Ring) -> Option<f64> {
    let Ring { discipline, stations: n, walk_s: r, arrivals_per_s, service, .. } = *ring;
    let rho = ring.utilisation();
    let left = 1.0 - ring.share();
    if left <= 0.0 {
        return None;
    }
    let walking = match discipline {
        Discipline::Exhaustive => r * (n - rho),
        Discipline::Gated | Discipline::OneLimited => r * (n + rho),
    };
    Some((arrivals_per_s * service.second + walking) / (2.0 * left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Discipline; 3] = [Discipline::Exhaustive, Discipline::Gated, Discipline::OneLimited];

    fn ring(discipline: Discipline, stations: f64, walk_s: f64, arrivals_per_s: f64) -> Ring {
        Ring { discipline, stations, walk_s, arrivals_per_s, service: Moments::constant(1e-3), imbalance: 1.0 }
    }

    #[test]
    fn waits_by_hand() {
        // Ten stations, walk 0.1 ms, rho 0.5, packets of 1 ms: (0.5 + walking) / (1, or less) ms.
        for (discipline, ms) in [
            (Discipline::Exhaustive, (0.5 + 0.1 * 9.5) / 1.0),
            (Discipline::Gated, (0.5 + 0.1 * 10.5) / 1.0),
            (Discipline::OneLimited, (0.5 + 0.1 * 10.5) / (2.0 * (0.5 - 0.05))),
        ] {
            let got = WAIT.at(&ring(discipline, 10.0, 1e-4, 500.0));
            assert!((got.value().unwrap() * 1e3 - ms).abs() < 1e-12, "{discipline:?}: {got:?}");
            assert!(got.outside().is_empty());
        }
    }

    #[test]
    fn a_ring_of_one_without_walk_is_a_queue() {
        for discipline in ALL {
            let got = WAIT.at(&ring(discipline, 1.0, 0.0, 800.0));
            assert!((got.value().unwrap() - 2e-3).abs() < 1e-12, "{discipline:?}: {got:?}");
        }
    }

    #[test]
    fn without_load_the_token_is_half_a_ring_away() {
        for discipline in ALL {
            let got = WAIT.at(&ring(discipline, 10.0, 1e-4, 0.0));
            assert!((got.value().unwrap() - 5e-4).abs() < 1e-12, "{discipline:?}: {got:?}");
        }
    }

    #[test]
    fn full_and_uneven_rings_say_so() {
        assert_eq!(WAIT.at(&ring(Discipline::OneLimited, 10.0, 1e-4, 910.0)).value(), None);
        assert!(WAIT.at(&ring(Discipline::Gated, 10.0, 1e-4, 910.0)).value().is_some());
        let uneven = Ring { imbalance: 3.0, ..ring(Discipline::Gated, 10.0, 1e-4, 10.0) };
        assert_eq!(WAIT.at(&uneven).outside().len(), 1);
    }

    proptest! {
        #[test]
        fn more_load_is_never_less_wait(kind in 0usize..3, n in 1f64..300.0, a in 0f64..800.0, more in 0f64..50.0) {
            let wait = |l| WAIT.at(&ring(ALL[kind], n, 1e-5, l)).value().copied().unwrap_or(f64::INFINITY);
            prop_assert!(wait(a) <= wait(a + more));
        }
    }
}
