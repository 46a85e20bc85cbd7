//! Background load: paced UDP packets from one station to another, as `udpsend` and `udprecv` make
//! it in Copy 89, section 3.2, with figures that can be trusted.
//!
//! * Packets are due at moments reckoned from the start (`pace`), so a late wake-up delays some
//!   packets and never the rest: there is no drift. What could not be sent is counted, not made up.
//! * Every packet has a number and its run's name, so the receiver knows what was lost, came twice
//!   or out of order (`tally`), and takes several runs at a time.
//! * At its end a run asks the receiver what came ([`Carried`]): a load is what was carried, not
//!   what was asked for.
//!
//! Everything is bounded: [`Plan::new`] has the limits, a receiver remembers [`RUNS_MAX`] runs. A
//! receiver answers a question with no more bytes than it was asked with, so that nobody can make
//! it send more than they do.

mod datagram;
mod pace;
mod receive;
mod send;
mod tally;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use remora_base::{Rate, Time};

pub use pace::Law;
pub use receive::{RUNS_MAX, Run, Runs, listen, receive};
pub use send::{Sent, connect, send};
pub use tally::Carried;

/// The time since `began`, standstills of this process included: a load is offered in real time.
fn elapsed(began: Instant) -> Time {
    Time::ZERO + began.elapsed()
}

/// The smallest payload: a run's name, a number and a time, in bytes.
pub const PAYLOAD_MIN: usize = datagram::DATA_MIN;
/// The largest payload of a UDP datagram over IPv4, in bytes.
pub const PAYLOAD_MAX: usize = 65_507;
/// Packets a second at most.
pub const PACKETS_PER_S_MAX: u64 = 1_000_000;
/// The longest run.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// How long after its end the receiver of a run is asked what came, and takes what comes for that run's.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What to send. Made by [`Plan::new`], so that it is within the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    rate: Rate,
    payload: usize,
    headers: usize,
    law: Law,
    duration: Duration,
    run: u64,
}

/// Why there is no such load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The payload is out of range.
    #[error("packets of {0} bytes: from {PAYLOAD_MIN} to {PAYLOAD_MAX} are possible")]
    Payload(usize),
    /// Too many packets.
    #[error("{0} packets a second: {PACKETS_PER_S_MAX} are the most")]
    Packets(u64),
    /// No time, or too long a time.
    #[error("a load for {0:?}: it must be longer than nothing and no longer than {DURATION_MAX:?}")]
    Duration(Duration),
}

impl Plan {
    /// Packets of `payload` bytes (from [`PAYLOAD_MIN`] to [`PAYLOAD_MAX`]) to an address of `to`'s
    /// kind. `rate` counts their IP and UDP headers, too, and makes at most [`PACKETS_PER_S_MAX`] of
    /// them. `run` is the run's name, and draws what is random in it.
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

    /// A packet's length in bytes, headers of IP and UDP included.
    pub fn packet_bytes(&self) -> u64 {
        (self.payload + self.headers) as u64
    }

    /// The run's name.
    pub fn run(&self) -> u64 {
        self.run
    }
}

/// Bytes of the headers of IP and UDP (RFC 791, RFC 8200, RFC 768).
pub fn headers(addr: IpAddr) -> usize {
    8 + if addr.is_ipv4() { 20 } else { 40 }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

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
}
