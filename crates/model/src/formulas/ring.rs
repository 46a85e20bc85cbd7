//! Token ring: N stations in a cycle; the token takes `walk` seconds from one to the next.
//!
//! Mean waits for Poisson arrivals, by the service discipline at each station: exhaustive, gated,
//! or 1-limited.
//!
//! The load-weighted sum of all stations' waits is known exactly (the pseudo-conservation law of
//! Boxma & Groenendijk 1987). For equal stations it gives the wait itself. Unequal stations divide
//! it as in Boxma & Meister 1987: in proportion to the residual cycle at an arrival, and the number
//! of cycles waited.

use serde::Serialize;

use crate::formula::{Band, Formula, Quantity};
use crate::quantity::Moments;

/// The service discipline of a station that holds the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Until its queue is empty.
    Exhaustive,
    /// The packets that were queued when the token arrived.
    Gated,
    OneLimited,
}

/// A ring and its load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ring {
    pub discipline: Discipline,
    /// Stations (1 or more).
    pub stations: f64,
    /// From one station to the next, in seconds.
    pub walk_s: f64,
    /// Packets a second of all stations.
    pub arrivals_per_s: f64,
    /// Time to send a packet.
    pub service: Moments,
    /// The sum over all stations of the squared share of sending time.
    pub squares: f64,
    /// Share of sending time of the station in question (0 if silent).
    pub own_utilisation: f64,
    /// Packets a second of the station in question.
    pub own_arrivals_per_s: f64,
    /// The sum of each station's share of sending time times its share of the work in progress at
    /// an arrival.
    pub met_squares: f64,
    /// Share of the station in question of the work in progress at an arrival (0 to 1).
    pub own_met: f64,
    /// Traffic of the busiest station over that of the least busy, in packets or bits.
    pub imbalance: f64,
    /// The load that would have to move between stations to make each one's share of the load equal
    /// its share of the work in progress at an arrival (0 to 1).
    pub unlike: f64,
    /// Packets that arrive at one station during another one's turn, the maximum over all stations;
    /// 0 where all are equal.
    pub turns: f64,
}

impl Ring {
    /// Share of time that packets are in transmission.
    pub fn utilisation(&self) -> f64 {
        self.arrivals_per_s * self.service.mean
    }

    /// Share of the ring's capacity in use: a 1-limited ring also pays a walk for each packet.
    fn share(&self) -> f64 {
        let walks = match self.discipline {
            // The token must return as often as this station's packets arrive.
            Discipline::OneLimited => self.walk_s * self.arrivals_per_s.max(self.own_arrivals_per_s * self.stations),
            Discipline::Exhaustive | Discipline::Gated => 0.0,
        };
        self.utilisation() + walks
    }

    /// Packets a second of the station on a 1-limited ring; elsewhere 0.
    fn own_limit(&self) -> f64 {
        if self.discipline == Discipline::OneLimited { self.own_arrivals_per_s } else { 0.0 }
    }

    /// The imbalance on a 1-limited ring; elsewhere 0.
    fn one_by_one(&self) -> f64 {
        if self.discipline == Discipline::OneLimited { self.share() } else { 0.0 }
    }

    /// The share in use on an unbalanced 1-limited ring; elsewhere 0.
    fn uneven(&self) -> f64 {
        if self.imbalance > EVEN { self.one_by_one() } else { 0.0 }
    }

    /// The share in use on an unbalanced exhaustive or gated ring, where each station's effect on
    /// the others' waits is known for light and heavy traffic only; elsewhere 0.
    fn guessed(&self) -> f64 {
        if self.discipline == Discipline::OneLimited { 0.0 } else { self.utilisation() * self.unlike }
    }

    /// `turns` on a 1-limited ring; elsewhere 0.
    fn turns(&self) -> f64 {
        if self.discipline == Discipline::OneLimited { self.turns } else { 0.0 }
    }

    /// The utilisation on an exhaustive or gated ring; elsewhere 0. Behind a gate the station's own
    /// packets count twice, since they may split a burst.
    fn bursts_of_others(&self) -> f64 {
        match self.discipline {
            Discipline::OneLimited => 0.0,
            Discipline::Gated => self.utilisation() + self.own_utilisation,
            Discipline::Exhaustive => self.utilisation(),
        }
    }

    /// The token's rotation time without traffic, in seconds.
    pub fn around_s(&self) -> f64 {
        self.stations * self.walk_s
    }
}

/// Up to this imbalance stations count as equal.
const EVEN: f64 = 1.2;

/// Mean time before a packet's transmission begins, in seconds.
pub static WAIT: Formula<Ring, f64> = Formula {
    name: "token ring",
    source: "cyclic service: pseudo-conservation laws (Boxma & Groenendijk 1987), which for equal stations are the \
             exact waits (Konheim & Meister 1974, Ferguson & Aminetzah 1985, Fuhrmann 1985, Takagi 1986), shared by \
             unequal ones as in Boxma & Meister 1987",
    compute: wait,
    bands: &[
        Band { quantity: Quantity::Utilisation, of: Ring::share, low: 0.0, high: 0.95 },
        Band { quantity: Quantity::Load, of: Ring::uneven, low: 0.0, high: 0.3 },
        Band { quantity: Quantity::Unlike, of: Ring::guessed, low: 0.0, high: 0.3 },
        Band { quantity: Quantity::Turns, of: Ring::turns, low: 0.0, high: 0.3 },
    ],
};

/// Mean time until a station that was silent for a while may send, in seconds.
pub static TOKEN: Formula<Ring, f64> = Formula {
    name: "token",
    source: "the wait of a packet beside the others' load; with one packet at a time a station that has no queue of \
             its own waits less, which shows at high load",
    compute: wait,
    bands: &[
        Band { quantity: Quantity::Utilisation, of: Ring::share, low: 0.0, high: 0.95 },
        Band { quantity: Quantity::Load, of: Ring::one_by_one, low: 0.0, high: 0.6 },
        Band { quantity: Quantity::Load, of: Ring::uneven, low: 0.0, high: 0.2 },
        Band { quantity: Quantity::Turns, of: Ring::turns, low: 0.0, high: 0.3 },
        Band { quantity: Quantity::OthersLoad, of: Ring::bursts_of_others, low: 0.0, high: 0.5 },
    ],
};

fn wait(ring: &Ring) -> Option<f64> {
    let rho = ring.utilisation();
    let left = 1.0 - rho;
    let around_s = ring.around_s();
    let own_left = left - ring.own_limit() * around_s;
    if left <= 0.0 || ring.share() >= 1.0 || own_left <= 0.0 {
        return None;
    }
    // The conservation law, divided by the utilisation.
    let square = if rho > 0.0 { ring.squares / rho } else { 0.0 };
    let queue = ring.arrivals_per_s * ring.service.second / (2.0 * left);
    let own = ring.own_utilisation;
    // In light traffic the work in progress decides the order, in heavy traffic the load.
    let part = left * rho * ring.own_met + rho * own;
    let parts = left * ring.met_squares + rho * square;
    let walking = around_s / (2.0 * left);
    Some(match ring.discipline {
        Discipline::Exhaustive => queue * (1.0 - part) / (1.0 - parts) + walking * (1.0 - own),
        Discipline::Gated => queue * (1.0 + part) / (1.0 + parts) + walking * (1.0 + own),
        Discipline::OneLimited => {
            let law = queue + around_s / 2.0 + walking * (rho + square);
            law * (left + own) / own_left * left / (left + square)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Discipline; 3] = [Discipline::Exhaustive, Discipline::Gated, Discipline::OneLimited];

    fn ring(discipline: Discipline, stations: f64, walk_s: f64, arrivals_per_s: f64) -> Ring {
        let own = arrivals_per_s * 1e-3 / stations;
        Ring {
            discipline,
            stations,
            walk_s,
            arrivals_per_s,
            service: Moments::constant(1e-3),
            squares: stations * own * own,
            own_utilisation: own,
            own_arrivals_per_s: arrivals_per_s / stations,
            met_squares: own,
            own_met: 1.0 / stations,
            imbalance: 1.0,
            unlike: 0.0,
            turns: 0.0,
        }
    }

    #[test]
    fn wait_equals_that_calculated_by_hand() {
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
    fn ring_of_one_without_walk_is_a_queue() {
        for discipline in ALL {
            let got = WAIT.at(&ring(discipline, 1.0, 0.0, 800.0));
            assert!((got.value().unwrap() - 2e-3).abs() < 1e-12, "{discipline:?}: {got:?}");
        }
    }

    #[test]
    fn token_is_half_a_ring_away_without_load() {
        for discipline in ALL {
            let got = WAIT.at(&ring(discipline, 10.0, 1e-4, 0.0));
            assert!((got.value().unwrap() - 5e-4).abs() < 1e-12, "{discipline:?}: {got:?}");
        }
    }

    /// The load-weighted waits of unequal stations sum as the conservation law requires.
    #[test]
    fn unequal_stations_obey_the_conservation_law() {
        // One of ten stations sends half of all; without a walk the law is that of one queue.
        let (all, heavy) = (500.0, 0.25);
        let light = heavy / 9.0;
        let squares = heavy * heavy + 9.0 * light * light;
        for discipline in ALL {
            let wait = |own: f64| {
                let base = ring(discipline, 10.0, 0.0, all);
                let rho = all * 1e-3;
                let one = Ring {
                    squares,
                    own_utilisation: own,
                    own_arrivals_per_s: own / 1e-3,
                    met_squares: squares / rho,
                    own_met: own / rho,
                    ..base
                };
                *WAIT.at(&one).value().unwrap()
            };
            let sum = heavy * wait(heavy) + 9.0 * light * wait(light);
            assert!((sum / (0.5 * 0.5e-3) - 1.0).abs() < 1e-9, "{discipline:?}: {sum}");
        }
    }

    #[test]
    fn full_or_unbalanced_ring_is_doubted() {
        assert_eq!(WAIT.at(&ring(Discipline::OneLimited, 10.0, 1e-4, 910.0)).value(), None);
        assert!(WAIT.at(&ring(Discipline::Gated, 10.0, 1e-4, 910.0)).value().is_some());
        let uneven = |d| Ring { imbalance: 3.0, ..ring(d, 10.0, 1e-4, 500.0) };
        assert_eq!(WAIT.at(&uneven(Discipline::OneLimited)).outside().len(), 1);
        assert_eq!(WAIT.at(&uneven(Discipline::Gated)).outside().len(), 0);
        let unlike = |d| Ring { unlike: 0.7, ..ring(d, 10.0, 1e-4, 500.0) };
        assert_eq!(WAIT.at(&unlike(Discipline::Exhaustive)).outside().len(), 1);
        assert_eq!(WAIT.at(&unlike(Discipline::OneLimited)).outside().len(), 0);
    }

    proptest! {
        #[test]
        fn wait_grows_with_load(kind in 0usize..3, n in 1f64..300.0, a in 0f64..800.0, more in 0f64..50.0) {
            let wait = |l| WAIT.at(&ring(ALL[kind], n, 1e-5, l)).value().copied().unwrap_or(f64::INFINITY);
            prop_assert!(wait(a) <= wait(a + more));
        }
    }
}
