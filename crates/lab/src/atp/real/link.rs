//! The links of real cells: one as the simulated one is, and one without its bad times, on which
//! connections are made.

use std::sync::Arc;
use std::time::Duration;

use remora_base::{Rate, Time};
use remora_channel::{Config, Duplex, Opportunities, PerSide};
use remora_sim::atp::Trace;

/// The congestion control of the kernel's TCP.
pub(super) const CONGESTION: &str = "cubic";
/// ATP 02, section 3.1: the device queue's length, in packets.
const QUEUE: usize = 50;
/// Bytes that cross a varying link at once, as recorded links have it.
const OPPORTUNITY: u64 = 1500;
/// Connections are made at no less, in bytes a second.
const FAIR_MIN: f64 = 50e3;

/// What a cell's frames cross.
#[derive(Clone, Debug)]
pub(super) struct Weathers {
    /// While connections are made.
    pub(super) fair: Config,
    /// While objects are sent.
    pub(super) real: Config,
}

/// The same rate for ever, in bytes a second.
pub(super) fn steady(rate: f64, round_trip: Duration) -> Result<Weathers, String> {
    let real = full_duplex(rate, round_trip)?;
    Ok(Weathers { fair: real.clone(), real })
}

/// A trace's: 1500 bytes cross at each moment by which it can have carried as many more.
pub(super) fn varying(trace: &Trace, until: Time, round_trip: Duration) -> Result<Weathers, String> {
    let fair = full_duplex(trace.rate(Time::ZERO).max(FAIR_MIN), round_trip)?;
    let mut moments = String::new();
    for n in 1u64.. {
        let Some(at) = trace.when((n * OPPORTUNITY) as f64).filter(|at| *at < until) else { break };
        moments += &format!("{}\n", at.since(Time::ZERO).as_millis().max(1));
    }
    if !moments.is_empty() {
        // Such a list begins anew after its last moment, and the trace may end with a time in which nothing crosses.
        moments += &format!("{}\n", until.since(Time::ZERO).as_millis() + 1);
    }
    let crossing = Arc::new(Opportunities::parse(&moments).map_err(|e| format!("the trace: {e}"))?);
    let trace = PerSide { base: Some(crossing.clone()), mobile: Some(crossing) };
    Ok(Weathers { real: Config { trace, ..fair.clone() }, fair })
}

fn full_duplex(rate: f64, round_trip: Duration) -> Result<Config, String> {
    // The cast saturates.
    let rate = Rate::from_bits((rate * 8.0) as u64).ok_or("a link without a rate")?;
    Ok(Config { rate, duplex: Duplex::Full, delay: round_trip / 2, queue_frames: QUEUE, ..Config::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varying_link_carries_what_its_trace_does() {
        let trace = Trace::parse("0,15000\n1,15000\n1,0\n2,0\n2,30000\n3,30000\n").unwrap();
        let made = varying(&trace, Time::from_secs(3), Duration::from_millis(10)).unwrap();
        let moments = made.real.trace.base.as_ref().unwrap().times_ms().to_vec();
        // Ten a second, then none, then twenty; the last is past the end, and so is that with which the list ends.
        assert_eq!(moments.iter().filter(|ms| **ms <= 1000).count(), 10);
        assert_eq!(moments.iter().filter(|ms| (1001..=2000).contains(*ms)).count(), 0);
        assert_eq!(moments.iter().filter(|ms| **ms > 2000).count(), 20);
        assert_eq!((made.real.delay, made.fair.rate.bits()), (Duration::from_millis(5), 400_000));
        assert_eq!((made.real.validate(), made.fair.validate()), (Ok(()), Ok(())));
        let silent = Trace::parse("0,15000\n1,15000\n1,0\n3,0\n").unwrap();
        let made = varying(&silent, Time::from_secs(3), Duration::ZERO).unwrap();
        let round = made.real.trace.base.as_ref().unwrap().round_ms();
        assert!(round > 3000, "what it begins with comes again after {round} ms");
        assert!(varying(&Trace::constant(0.0), Time::from_secs(3), Duration::ZERO).is_err(), "nothing ever crosses");
    }
}
