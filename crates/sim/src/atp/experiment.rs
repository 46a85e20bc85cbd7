//! A cell of the laboratory: a workload, a protocol, a trace and a seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use remora_atp::Policy;
use remora_base::Time;
use thiserror::Error;

use super::baseline::{SetUpError, Streams, Tcp, TcpConfig};
use super::endpoints::{Endpoints, EndpointsError};
use super::ledger::Fate;
use super::pipe::{Link, WhenDown};
use super::trace::Trace;
use super::workload::{Class, Object, Workload};
use super::world::{self, Pace, Run, Scheme, WorldError};

/// Time to connect before the first object.
pub const LEAD: Duration = Duration::from_secs(1);
/// Time of a run after the last deadline.
const TAIL: Duration = Duration::from_secs(1);
/// One-way delay; the hosts of ATP 02 were one hop apart.
const DELAY: Duration = Duration::from_millis(5);
/// Round-trip propagation time.
pub const ROUND_TRIP: Duration = DELAY.saturating_mul(2);
/// ATP 02, section 3.1: capacity of the device queue in packets.
pub(super) const QUEUE: usize = 50;

/// The protocol under test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protocol {
    /// The paper's "TCP", on a stand-in.
    Tcp,
    /// The paper's "M-TCP" with 1 to 4 connections for high objects, on a stand-in.
    Mtcp(u8),
    /// A QUIC stream for each object.
    Quic,
    /// ATP as in ATP 02: its policy and its estimator.
    AtpPaper,
    Atp,
}

impl Protocol {
    /// All, in the order of the tables.
    pub const ALL: [Protocol; 8] = [
        Protocol::Tcp,
        Protocol::Mtcp(1),
        Protocol::Mtcp(2),
        Protocol::Mtcp(3),
        Protocol::Mtcp(4),
        Protocol::Quic,
        Protocol::AtpPaper,
        Protocol::Atp,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Mtcp(1) => "mtcp-1",
            Protocol::Mtcp(2) => "mtcp-2",
            Protocol::Mtcp(3) => "mtcp-3",
            Protocol::Mtcp(_) => "mtcp-4",
            Protocol::Quic => "quic",
            Protocol::AtpPaper => "atp-paper",
            Protocol::Atp => "atp",
        }
    }

    /// Whether it estimates the bandwidth.
    pub const fn estimates(self) -> bool {
        matches!(self, Protocol::AtpPaper | Protocol::Atp)
    }

    fn start(self, epoch: Instant, seed: u64) -> Result<Box<dyn Scheme>, ExperimentError> {
        Ok(match self {
            Protocol::Tcp => Box::new(Tcp::new(&TcpConfig::single(), epoch, seed)?),
            Protocol::Mtcp(high) => Box::new(Tcp::new(&TcpConfig::multiple(high.into()), epoch, seed)?),
            Protocol::Quic => Box::new(Streams::new(epoch, seed)?),
            Protocol::AtpPaper => Box::new(Endpoints::new(Policy::Paper, epoch, seed)?),
            Protocol::Atp => Box::new(Endpoints::new(Policy::Remora, epoch, seed)?),
        })
    }
}

/// A failed run.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ExperimentError {
    /// The baseline could not start.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// The endpoints could not start.
    #[error(transparent)]
    Endpoints(#[from] EndpointsError),
    /// The clock made no progress, or the protocol failed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The medium's configuration is invalid.
    #[error(transparent)]
    Medium(#[from] remora_channel::ConfigError),
    /// A bulk transfer with undelivered objects.
    #[error("{delivered} of {objects} objects were delivered")]
    Unfinished {
        /// Objects reported as delivered.
        delivered: usize,
        objects: usize,
    },
}

/// Sends a workload over a trace. Times in the result, and the arrivals of `objects`, count from
/// [`LEAD`] before the trace begins. The epoch is any instant, to which virtual time is added where
/// a library needs instants.
pub fn run(
    protocol: Protocol,
    trace: &Trace,
    objects: &[Object],
    epoch: Instant,
    seed: u64,
) -> Result<Run, ExperimentError> {
    let end = objects.iter().map(Object::due).max().unwrap_or_default() + TAIL;
    let link =
        Link { trace: Arc::new(trace.delayed(LEAD)), delay: DELAY, queue_max: QUEUE, when_down: WhenDown::Holds };
    let mut scheme = protocol.start(epoch, seed)?;
    Ok(world::run(scheme.as_mut(), &link, objects, Pace::Open, end)?)
}

/// The load of ATP 02, Figure 4(a): 64 KB every quarter of a second, due within a second.
pub fn saturating() -> Vec<Object> {
    let at = |n: u64| Time::ZERO + LEAD + Duration::from_millis(250 * n);
    let object = |n| Object { arrival: at(n), size: 64 << 10, class: Class::High, deadline: Duration::from_secs(1) };
    (0..1200).map(object).collect()
}

/// Bytes of a bulk transfer; ATP 02 has 64 MB, of which only the steady part counts, too.
const BULK_BYTES: u32 = 8 << 20;
/// Bandwidth of a bulk transfer, in bytes a second.
pub const BULK_RATE: f64 = 512.0 * 1024.0;
/// Bytes in progress of a program with asynchronous sends.
const BULK_AHEAD: u32 = 2 << 20;

/// The sends of a bulk program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sends {
    /// One object at a time.
    Synchronous,
    /// Many at a time.
    Asynchronous,
}

/// The steady throughput of a bulk transfer in objects of `size` bytes (ATP 02, section 4.3), in
/// bytes a second, over its second half.
pub fn bulk(protocol: Protocol, size: u32, sends: Sends, epoch: Instant, seed: u64) -> Result<f64, ExperimentError> {
    let size = size.clamp(1024, BULK_BYTES / 4);
    let object =
        Object { arrival: Time::ZERO + LEAD, size, class: Class::High, deadline: Duration::from_secs(24 * 3600) };
    let objects = vec![object; (BULK_BYTES / size) as usize];
    let link = Link {
        trace: Arc::new(Trace::constant(BULK_RATE)),
        delay: DELAY,
        queue_max: QUEUE,
        when_down: WhenDown::Holds,
    };
    let at_once = match sends {
        Sends::Synchronous => 1,
        Sends::Asynchronous => (BULK_AHEAD / size).max(2) as usize,
    };
    let mut scheme: Box<dyn Scheme> = match protocol {
        // A plain stream without answers to each object.
        Protocol::Tcp => Box::new(Tcp::new(&TcpConfig::bulk(), epoch, seed)?),
        other => other.start(epoch, seed)?,
    };
    let run = world::run(scheme.as_mut(), &link, &objects, Pace::Closed { at_once }, Time::from_secs(3600))?;
    steady_rate(&run.fates, size).ok_or_else(|| {
        let delivered = run.fates.iter().filter_map(Fate::delivered).count();
        ExperimentError::Unfinished { delivered, objects: objects.len() }
    })
}

/// Bytes a second over the second half of objects of `size` bytes; `None` unless all were
/// delivered.
pub fn steady_rate(fates: &[Fate], size: u32) -> Option<f64> {
    let mut told: Vec<Time> = fates.iter().map(Fate::delivered).collect::<Option<_>>()?;
    told.sort_unstable();
    let half = told.len() / 2;
    let (from, to) = (told.get(half.checked_sub(1)?)?, told.last()?);
    let seconds = to.since(*from).as_secs_f64();
    (seconds > 0.0).then(|| f64::from(size) * (told.len() - half) as f64 / seconds)
}

/// A workload's objects for [`run`].
pub fn objects(workload: Workload, seed: u64) -> Vec<Object> {
    workload.objects(seed, Time::ZERO + LEAD)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an epoch for libraries that want instants; nothing depends on it")]
mod tests {
    use super::super::ledger::FinalStatus;
    use super::*;

    #[test]
    fn every_protocol_delivers_on_a_good_link() {
        let trace = Trace::constant(200e3);
        for protocol in Protocol::ALL {
            let objects: Vec<Object> = objects(Workload::Equal, 1).into_iter().take(20).collect();
            let run = run(protocol, &trace, &objects, Instant::now(), 1).unwrap();
            for (object, fate) in objects.iter().zip(&run.fates) {
                assert!(fate.in_time(object) && fate.told_in_time(object), "{protocol:?}: {object:?} {fate:?}");
            }
            let sent: u64 = objects.iter().map(|o| u64::from(o.size)).sum();
            assert!(run.forth > sent && run.forth < sent * 23 / 20 + 5000, "{protocol:?}: {} for {sent}", run.forth);
        }
    }

    #[test]
    fn atp_resumes_at_once_after_gap_with_queued_probes() {
        let trace = Trace::parse("0,20000\n10,5000\n10,0\n40,0\n40,50000\n60,50000\n").unwrap();
        let back = Time::from_secs(40) + LEAD;
        for (size, within_ms) in [(64, 160), (4096, 350)] {
            let at = |n: u64| Time::ZERO + LEAD + Duration::from_millis(250 * n);
            let deadline = Duration::from_secs(1);
            let objects: Vec<Object> =
                (0..220).map(|n| Object { arrival: at(n), size, class: Class::High, deadline }).collect();
            let run = run(Protocol::Atp, &trace, &objects, Instant::now(), 1).unwrap();
            let first = run.fates.iter().filter_map(|f| f.arrived).filter(|t| *t > back).min().unwrap();
            assert!(first.since(back) <= Duration::from_millis(within_ms), "{size} bytes: {:?}", first.since(back));
            let missed = |(o, f): &(&Object, &Fate)| o.arrival >= back && !f.in_time(o);
            let missed: Vec<_> = objects.iter().zip(&run.fates).filter(missed).collect();
            assert!(missed.is_empty(), "{missed:?}");
        }
    }

    #[test]
    fn bandwidth_rise_is_found_while_all_objects_are_refused() {
        // The load of Figure 4(a): at 50 KB/s each object is refused.
        for second in 20..30 {
            let trace = format!("0,50000\n{second}.5,50000\n{second}.5,140000\n60,140000\n");
            let objects: Vec<Object> = saturating().into_iter().take(130).collect();
            let run = run(Protocol::Atp, &Trace::parse(&trace).unwrap(), &objects, Instant::now(), 1).unwrap();
            let half_a_second_after = Time::from_secs(second + 1) + LEAD;
            let estimate = run.seconds.iter().find(|s| s.at == half_a_second_after).and_then(|s| s.estimate).unwrap();
            assert!((estimate / 140e3 - 1.0).abs() <= 0.1, "at {second}.5 s: {estimate:.0} half a second later");
        }
    }

    #[test]
    fn steady_rate_is_that_of_the_second_half() {
        let told = |ms: u64, told| Fate { told: Some((Time::from_millis(ms), told)), ..Fate::default() };
        let delivered = |ms| told(ms, FinalStatus::Delivered);
        // Slow at first, then 1000 bytes in 10 ms; in any order.
        let fates = [delivered(910), delivered(500), delivered(900), delivered(920)];
        assert_eq!(steady_rate(&fates, 1000), Some(100_000.0));
        let refused = [delivered(500), delivered(900), told(901, FinalStatus::Late), told(902, FinalStatus::Rejected)];
        assert_eq!(steady_rate(&refused, 1000), None, "what is late or given up is not delivered");
        assert_eq!(steady_rate(&[delivered(1), Fate::default()], 1000), None, "one object has no final status");
        assert_eq!(steady_rate(&[delivered(1), delivered(1)], 1000), None, "no time passed");
        assert_eq!(steady_rate(&[], 1000), None);
    }

    #[test]
    fn bulk_tcp_fills_the_link() {
        let rate = bulk(Protocol::Tcp, 64 << 10, Sends::Asynchronous, Instant::now(), 1).unwrap();
        assert!((0.9..1.0).contains(&(rate / BULK_RATE)), "{rate}");
    }

    #[test]
    fn synchronous_send_takes_a_round_trip() {
        for (size, packets) in [(1u32 << 10, 1), (4 << 10, 3), (16 << 10, 12)] {
            let rate = bulk(Protocol::Atp, size, Sends::Synchronous, Instant::now(), 1).unwrap();
            // One round trip, and the transmission times of the object and of the answer.
            let took = ROUND_TRIP.as_secs_f64() + f64::from(size + 72 * packets + 80) / BULK_RATE;
            assert!(rate >= 0.9 * f64::from(size) / took, "{size} bytes: {rate:.0} of {:.0}", f64::from(size) / took);
        }
    }

    #[test]
    fn run_depends_on_its_seed_alone() {
        let trace = Trace::paper();
        let objects: Vec<Object> = objects(Workload::Random, 3).into_iter().skip(280).take(60).collect();
        for protocol in [Protocol::Mtcp(2), Protocol::Quic] {
            let once = |_| run(protocol, &trace, &objects, Instant::now(), 5).unwrap();
            assert_eq!(once(1), once(2), "{protocol:?}");
        }
    }

    #[test]
    fn tcp_discards_object_after_half_its_deadline() {
        // 10 KB/s: a high object of 4 KB takes 0.4 s, a low one 3.3 s.
        let trace = Trace::constant(10e3);
        let objects: Vec<Object> = objects(Workload::Equal, 1).into_iter().take(12).collect();
        let run = run(Protocol::Tcp, &trace, &objects, Instant::now(), 1).unwrap();
        let rejected = objects.iter().zip(&run.fates).filter(|(o, f)| f.rejected(o)).count();
        assert!((5..12).contains(&rejected), "{rejected}");
        let high = objects.iter().zip(&run.fates).filter(|(o, f)| o.class == Class::High && f.in_time(o)).count();
        assert!(high >= 1);
    }
}
