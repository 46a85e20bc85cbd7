//! The plan of a load: its limits, and the due times of its packets, each computed from the start of the run so
//! that errors do not accumulate.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use remora_base::{Rate, Rng, Time};

use super::datagram;

/// Time since `began`, including suspensions of this process: a load runs in real time.
pub(super) fn elapsed(began: Instant) -> Time {
    Time::ZERO + began.elapsed()
}

/// Smallest payload in bytes: run id, number and time.
pub const PAYLOAD_MIN: usize = datagram::DATA_MIN;
/// Largest payload of a UDP datagram over IPv4, in bytes.
pub const PAYLOAD_MAX: usize = 65_507;
/// Maximum packet rate.
pub const PACKETS_PER_S_MAX: u64 = 1_000_000;
/// Maximum duration of a run.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// Time after its end during which a run asks the receiver for its counters, and the receiver counts late packets
/// for it.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What to send. [`Plan::new`] checks the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    pub(super) rate: Rate,
    pub(super) payload: usize,
    pub(super) headers: usize,
    pub(super) law: Law,
    pub(super) duration: Duration,
    pub(super) run: u64,
}

/// Why a plan is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The payload is out of range.
    #[error("packets of {0} bytes: from {PAYLOAD_MIN} to {PAYLOAD_MAX} are possible")]
    Payload(usize),
    /// The packet rate is too high.
    #[error("{0} packets a second: {PACKETS_PER_S_MAX} are the most")]
    Packets(u64),
    /// The duration is zero or too long.
    #[error("a load for {0:?}: it must be longer than nothing and no longer than {DURATION_MAX:?}")]
    Duration(Duration),
}

impl Plan {
    /// Plans packets of `payload` bytes ([`PAYLOAD_MIN`] to [`PAYLOAD_MAX`]) to an address like `to`. `rate`
    /// includes IP and UDP headers; at most [`PACKETS_PER_S_MAX`]. `run` is the run's id, and its seed.
    pub fn new(
        to: IpAddr,
        rate: Rate,
        payload: usize,
        law: Law,
        duration: Duration,
        run: u64,
    ) -> Result<Plan, PlanError> {
        if !(PAYLOAD_MIN..=PAYLOAD_MAX).contains(&payload) {
            return Err(PlanError::Payload(payload));
        }
        if duration.is_zero() || duration > DURATION_MAX {
            return Err(PlanError::Duration(duration));
        }
        let plan = Plan { rate, payload, headers: headers(to), law, duration, run };
        let packets_per_s = rate.bits() / (8 * plan.packet_bytes());
        if packets_per_s > PACKETS_PER_S_MAX {
            return Err(PlanError::Packets(packets_per_s));
        }
        Ok(plan)
    }

    /// Bytes of a packet, including IP and UDP headers.
    pub fn packet_bytes(&self) -> u64 {
        (self.payload + self.headers) as u64
    }

    pub fn run(&self) -> u64 {
        self.run
    }
}

/// Bytes of the IP and UDP headers (RFC 791, RFC 8200, RFC 768).
pub fn headers(addr: IpAddr) -> usize {
    8 + if addr.is_ipv4() { 20 } else { 40 }
}

/// Distribution of the packets in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// Constant intervals, like `udpsend`. The first offset is random, so that several senders are not
    /// synchronized.
    Even,
    /// Exponential intervals: a Poisson process.
    Poisson,
}

/// Due times of a plan's packets, in order, without end.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    law: Law,
    rng: Rng,
    /// Mean interval in nanoseconds.
    distance_ns: f64,
    /// Number of the next packet.
    number: u64,
    /// Last due time in nanoseconds (constant: the first offset). A 53-bit mantissa counts nanoseconds for 100
    /// days.
    at_ns: f64,
}

impl Schedule {
    pub(super) fn new(plan: &Plan) -> Schedule {
        let distance_ns = (plan.packet_bytes() * 8) as f64 * 1e9 / plan.rate.bits() as f64;
        let mut rng = Rng::stream(plan.run, "load");
        let at_ns = if plan.law == Law::Even { rng.unit() * distance_ns } else { 0.0 };
        Schedule { law: plan.law, rng, distance_ns, number: 0, at_ns }
    }

    /// The due time of the next packet.
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
    use super::*;
    use remora_base::Rate;
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    #[test]
    fn limits_are_checked() {
        let plan = |rate: Rate, payload, secs| {
            let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Plan::new(to, rate, payload, Law::Even, Duration::from_secs(secs), 1).map(|p| p.packet_bytes())
        };
        assert_eq!(plan(Rate::mbit(6), 1000, 10), Ok(1028));
        assert_eq!(plan(Rate::mbit(6), PAYLOAD_MIN - 1, 10), Err(PlanError::Payload(PAYLOAD_MIN - 1)));
        assert_eq!(plan(Rate::mbit(6), PAYLOAD_MAX + 1, 10), Err(PlanError::Payload(PAYLOAD_MAX + 1)));
        assert_eq!(plan(Rate::mbit(6), 1000, 0), Err(PlanError::Duration(Duration::ZERO)));
        assert!(matches!(plan(Rate::mbit(6), 1000, 100_000), Err(PlanError::Duration(_))));
        assert!(matches!(plan(Rate::mbit(1_000_000), 100, 10), Err(PlanError::Packets(_))));
    }

    fn pace(law: Law, rate: Rate, run: u64) -> Schedule {
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Schedule::new(&Plan::new(to, rate, 1000, law, Duration::from_secs(1), run).unwrap())
    }

    #[test]
    fn even_packets_do_not_drift() {
        // 8224 bits at 3 Mbit/s take 2 741 333 1/3 ns, not a whole number.
        let mut pace = pace(Law::Even, Rate::mbit(3), 5);
        let first = pace.next();
        assert!(first.as_nanos() <= 2_741_333, "{first}");
        let after = (0..3_000_000).map(|_| pace.next()).last().unwrap();
        let expected = 8_224_000_000_000u128; // three million distances
        assert!(after.since(first).as_nanos().abs_diff(expected) <= 2, "{after}");
    }

    #[test]
    fn poisson_packets_have_mean_and_spread_of_a_poisson_process() {
        let mut pace = pace(Law::Poisson, Rate::mbit(10), 6);
        let dues: Vec<f64> = (0..200_000).map(|_| pace.next().as_secs_f64()).collect();
        let gaps: Vec<f64> = dues.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 822.4e-6 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance / mean.powi(2) - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn plan_is_reproducible_by_seed() {
        let dues = |run| {
            let mut pace = pace(Law::Poisson, Rate::mbit(10), run);
            (0..100).map(|_| pace.next()).collect::<Vec<_>>()
        };
        assert_eq!(dues(1), dues(1));
        assert_ne!(dues(1), dues(2));
    }
}
