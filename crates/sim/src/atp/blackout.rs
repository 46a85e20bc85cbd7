//! The latency of an urgent object after a blackout of half a minute: 150 ms and a round trip, plus
//! its own transmission.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::Policy;
use remora_base::Time;

use super::endpoints::Endpoints;
use super::experiment::QUEUE;
use super::ledger::Ledger;
use super::pipe::{Link, WhenDown};
use super::trace::Trace;
use super::workload::{Class, Object};
use super::world::{self, End, Pace, Scheme};

const OUT: Time = Time::from_secs(10);
const BACK: Time = Time::from_secs(40);
const SIZE: u32 = 4096;
/// Length of datagrams with objects' data, including IPv4 and UDP headers.
const LARGE: usize = 200;
const HEADERS: usize = 28;

/// A scheme that records the time and size of its sender's large datagrams.
struct RecordingScheme<S> {
    scheme: S,
    large: Vec<(Time, usize)>,
}

impl<S: Scheme> Scheme for RecordingScheme<S> {
    fn submit(&mut self, now: Time, number: usize, object: &Object, ledger: &mut Ledger) {
        self.scheme.submit(now, number, object, ledger);
    }

    fn handle_datagram(&mut self, now: Time, end: End, payload: Bytes, ledger: &mut Ledger) {
        self.scheme.handle_datagram(now, end, payload, ledger);
    }

    fn handle_timeout(&mut self, now: Time, ledger: &mut Ledger) {
        self.scheme.handle_timeout(now, ledger);
    }

    fn poll_transmit(&mut self, now: Time, ledger: &mut Ledger) -> Option<(End, Bytes)> {
        let (end, payload) = self.scheme.poll_transmit(now, ledger)?;
        if end == End::Sender && payload.len() > LARGE {
            self.large.push((now, payload.len() + HEADERS));
        }
        Some((end, payload))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.scheme.poll_timeout()
    }

    fn trouble(&self) -> Option<String> {
        self.scheme.trouble()
    }
}

/// The traffic before a blackout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TrafficBefore {
    /// None for some time.
    Idle,
    /// An object each half second, until into it.
    Busy,
}

/// The objects before the measured one: of 4 KB, due in a second.
fn before(what: TrafficBefore) -> impl Iterator<Item = Object> {
    let count = if what == TrafficBefore::Idle { 1 } else { 20 };
    (0..count).map(|n| object(Time::from_millis(2000 + 500 * n), Duration::from_secs(1)))
}

fn object(arrival: Time, deadline: Duration) -> Object {
    Object { arrival, size: SIZE, class: Class::High, deadline }
}

/// Time from the end of the blackout until an object submitted during it arrives, and transmission
/// time of the packets sent into the blackout before its detection.
fn wait(rate: f64, round_trip: Duration, when_down: WhenDown, what: TrafficBefore) -> (Duration, Duration) {
    let trace = Trace::parse(&format!("0,{rate}\n10,{rate}\n10,0\n40,0\n40,{rate}\n60,{rate}\n")).unwrap();
    let link = Link { trace: Arc::new(trace), delay: round_trip / 2, queue_max: QUEUE, when_down };
    let wanted = object(Time::from_secs(25), Duration::from_secs(60));
    let objects: Vec<Object> = before(what).chain([wanted]).collect();
    #[expect(clippy::disallowed_methods, reason = "an epoch for libraries that want instants; nothing depends on it")]
    let scheme = Endpoints::new(Policy::Remora, Instant::now(), 1).unwrap();
    let mut scheme = RecordingScheme { scheme, large: Vec::new() };
    let run = world::run(&mut scheme, &link, &objects, Pace::Open, BACK + Duration::from_secs(2)).unwrap();
    let stuck: usize = scheme.large.iter().filter(|(at, _)| (OUT..BACK).contains(at)).map(|(_, bytes)| bytes).sum();
    let arrived = run.fates.last().and_then(|fate| fate.arrived).map_or(Duration::MAX, |at| at.since(BACK));
    (arrived, Duration::from_secs_f64(stuck as f64 / rate))
}

#[test]
fn object_submitted_in_blackout_arrives_soon_after_it() {
    for when_down in [WhenDown::Holds, WhenDown::Drops] {
        for what in [TrafficBefore::Idle, TrafficBefore::Busy] {
            for rate in [50e3, 140e3, 200e3] {
                for round_trip in [5, 50, 100, 200].map(Duration::from_millis) {
                    let (took, stuck) = wait(rate, round_trip, when_down, what);
                    // Packets queued in the device before the detection must cross first.
                    let first = if when_down == WhenDown::Holds { stuck } else { Duration::ZERO };
                    let name = format!("{when_down:?}, {what:?}, {rate} B/s, {round_trip:?}");
                    println!("{name}: {took:?}, after {first:?} of old packets");
                    assert!(took <= Duration::from_millis(150) + round_trip + first, "{name}: {took:?}, {first:?}");
                    // An object of three packets, and one packet that QUIC retransmits.
                    assert!(stuck.as_secs_f64() * rate <= 4.0 * 1500.0, "{name}: {stuck:?}");
                    assert!(what == TrafficBefore::Busy || stuck.is_zero(), "{name}: {stuck:?}");
                }
            }
        }
    }
}
