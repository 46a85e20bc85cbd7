//! When packets are due: moments since the run's start, each reckoned from the start and not from
//! the packet before, so that nothing adds up.

use remora_base::{Rng, Time};

use super::Plan;

/// How packets follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// At equal distances, as `udpsend` does. Where the first one falls in its distance is drawn, so
    /// that several senders do not march in step.
    Even,
    /// At exponential distances: a Poisson process, as the formulas have it.
    Poisson,
}

/// The moments at which a plan's packets are due, in order, without end.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    law: Law,
    rng: Rng,
    /// From one packet to the next on average, in nanoseconds.
    distance_ns: f64,
    /// The number of the next packet.
    number: u64,
    /// When the last one was due (the first one's place, if even), in nanoseconds. A float of
    /// 53 bits counts single nanoseconds for 100 days.
    at_ns: f64,
}

impl Pace {
    pub(super) fn new(plan: &Plan) -> Pace {
        let distance_ns = (plan.packet_bytes() * 8) as f64 * 1e9 / plan.rate.bits() as f64;
        let mut rng = Rng::stream(plan.run, "load");
        let at_ns = if plan.law == Law::Even { rng.unit() * distance_ns } else { 0.0 };
        Pace { law: plan.law, rng, distance_ns, number: 0, at_ns }
    }

    /// When the next packet is due.
    pub(super) fn next(&mut self) -> Time {
        let due = match self.law {
            Law::Even => self.at_ns + self.number as f64 * self.distance_ns,
            Law::Poisson => {
                // In (0, 1], so that the logarithm is finite.
                self.at_ns -= (1.0 - self.rng.unit()).ln() * self.distance_ns;
                self.at_ns
            }
        };
        self.number += 1;
        Time::from_nanos(due as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use remora_base::Rate;

    use super::*;

    fn pace(law: Law, rate: Rate, run: u64) -> Pace {
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Pace::new(&Plan::new(to, rate, 1000, law, Duration::from_secs(1), run).unwrap())
    }

    #[test]
    fn even_packets_do_not_drift() {
        // 8224 bits at 3 Mbit/s: 2 741 333 1/3 ns, which no whole number of nanoseconds is.
        let mut pace = pace(Law::Even, Rate::mbit(3), 5);
        let first = pace.next();
        assert!(first.as_nanos() <= 2_741_333, "{first}");
        let after = (0..3_000_000).map(|_| pace.next()).last().unwrap();
        let expected = 8_224_000_000_000u128; // three million distances
        assert!(after.since(first).as_nanos().abs_diff(expected) <= 2, "{after}");
    }

    #[test]
    fn poisson_packets_have_the_mean_and_spread_of_a_poisson_process() {
        let mut pace = pace(Law::Poisson, Rate::mbit(10), 6);
        let dues: Vec<f64> = (0..200_000).map(|_| pace.next().as_secs_f64()).collect();
        let gaps: Vec<f64> = dues.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 822.4e-6 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance / mean.powi(2) - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn a_run_can_be_made_again_and_no_other_is_like_it() {
        let dues = |run| {
            let mut pace = pace(Law::Poisson, Rate::mbit(10), run);
            (0..100).map(|_| pace.next()).collect::<Vec<_>>()
        };
        assert_eq!(dues(1), dues(1));
        assert_ne!(dues(1), dues(2));
    }
}
