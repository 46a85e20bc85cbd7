//! The channel: closed forms first, then what must hold for any traffic and any driver.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::{Rate, Time};
use remora_channel::{
    Channel, Config, DATAGRAM_MAX, Delivery, Distribution, Duplex, ErrorModel, Fate, FrameRecord, Outage, Side,
    SideStats, Weather,
};

const LATE: Time = Time::from_secs(100_000);

fn payload(bytes: usize) -> Bytes {
    Bytes::from(vec![0; bytes])
}

fn channel(config: Config) -> Channel {
    Channel::new(Config { trace_frames: 10_000, ..config }, 1).unwrap()
}

fn deliveries(c: &mut Channel) -> Vec<Delivery> {
    std::iter::from_fn(|| c.poll_delivery(LATE)).collect()
}

fn arrival_ms(c: &mut Channel) -> Vec<f64> {
    deliveries(c).iter().map(|d| d.at.as_nanos() as f64 / 1e6).collect()
}

fn trace(c: &mut Channel) -> Vec<FrameRecord> {
    std::iter::from_fn(|| c.poll_trace()).collect()
}

fn outage(start_ms: u64, length_ms: u64) -> Vec<Outage> {
    vec![Outage { start: Time::from_millis(start_ms), length: Duration::from_millis(length_ms) }]
}

#[test]
fn one_datagram_takes_its_airtime_and_the_delay() {
    // Bytes of payload, bytes on the medium with a header on each fragment.
    for (bytes, on_medium) in [(0, 28), (100, 128), (1472, 1500), (1473, 1521), (8192 + 120, 8320 + 6 * 20)] {
        let mut c = channel(Config::default());
        c.send(Time::from_millis(5), Side::Mobile, payload(bytes));
        let at = Time::from_millis(5 + 2) + Rate::mbit(1).airtime(on_medium);
        assert_eq!(c.poll_delivery(at - Duration::from_nanos(1)), None, "{bytes}");
        let got = c.poll_delivery(at).unwrap();
        assert_eq!((got.to, got.datagram.len(), got.at), (Side::Base, bytes, at));
        assert_eq!(c.poll_timeout(), None);
        assert_eq!(c.stats(Side::Mobile).airtime, Rate::mbit(1).airtime(on_medium));
    }
}

#[test]
fn full_frames_arrive_at_a_constant_spacing() {
    let mut c = channel(Config::default());
    for _ in 0..40 {
        c.send(Time::ZERO, Side::Base, payload(1472));
    }
    let want: Vec<f64> = (1..=40).map(|n| (12 * n + 2) as f64).collect();
    assert_eq!(arrival_ms(&mut c), want);
}

#[test]
fn a_full_queue_drops_the_tail() {
    let mut c = channel(Config { queue_frames: 3, ..Config::default() });
    for size in 1..=6 {
        c.send(Time::ZERO, Side::Base, payload(size));
        assert_eq!(c.queued_frames(Side::Base), 3.min(size - 1));
    }
    // One in the air and three waiting.
    assert_eq!(deliveries(&mut c).iter().map(|d| d.datagram.len()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(c.stats(Side::Base).frames_queue_full, 2);
    assert_eq!(c.stats(Side::Mobile), &SideStats::default());
}

#[test]
fn a_datagram_that_overflows_the_queue_wastes_airtime() {
    let mut c = channel(Config { queue_frames: 3, ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(8192)); // six frames
    c.send(Time::from_millis(36), Side::Base, payload(72)); // the third frame has just left
    assert_eq!(arrival_ms(&mut c), [48.8 + 2.0]);
    let stats = c.stats(Side::Base);
    assert_eq!((stats.frames_sent, stats.frames_queue_full, stats.datagrams_delivered), (5, 2, 1));
}

#[test]
fn one_lost_fragment_loses_the_datagram() {
    // Bad from 13 to 14 ms: the second of three frames.
    let mut c = channel(Config { outages: outage(13, 1), ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(3 * 1480 - 8));
    c.send(Time::ZERO, Side::Base, payload(1472));
    assert_eq!(arrival_ms(&mut c), [50.0]);
    let fates: Vec<_> = trace(&mut c).iter().map(|f| f.fate).collect();
    assert_eq!(fates, [Fate::Delivered, Fate::BadPeriod, Fate::Delivered, Fate::Delivered]);
}

#[test]
fn a_frame_that_only_meets_the_edge_of_a_bad_period_lives() {
    for (start, length, lives) in [(12, 5, true), (11, 1, false), (0, 1, false), (30, 1, true)] {
        let mut c = channel(Config { outages: outage(start, length), ..Config::default() });
        c.send(Time::ZERO, Side::Base, payload(1472));
        assert_eq!(deliveries(&mut c).len(), usize::from(lives), "{start} {length}");
    }
    let mut c = channel(Config { outages: outage(0, 10), ..Config::default() });
    c.send(Time::from_millis(10), Side::Base, payload(1472));
    assert_eq!(deliveries(&mut c).len(), 1);
}

#[test]
fn half_duplex_takes_turns_and_full_duplex_does_not_wait() {
    for (duplex, last_ms) in [(Duplex::Half, 242.0), (Duplex::Full, 122.0)] {
        let mut c = channel(Config { duplex, ..Config::default() });
        for _ in 0..10 {
            c.send(Time::ZERO, Side::Base, payload(1472));
        }
        for _ in 0..10 {
            c.send(Time::from_millis(1), Side::Mobile, payload(1472));
        }
        let all = deliveries(&mut c);
        assert_eq!(all.last().map(|d| d.at.as_nanos() as f64 / 1e6), Some(last_ms + f64::from(duplex == Duplex::Full)));
        assert!(all.windows(2).all(|two| two[0].to != two[1].to), "{duplex:?}");
    }
}

#[test]
fn turns_are_by_frame_not_by_datagram() {
    let mut c = channel(Config::default());
    c.send(Time::ZERO, Side::Base, payload(8192));
    c.send(Time::from_millis(1), Side::Mobile, payload(100));
    let first = deliveries(&mut c).remove(0);
    assert_eq!((first.to, first.at), (Side::Base, Time::from_micros(12_000 + 1024 + 2000)));
}

#[test]
fn held_frames_wait_for_good_weather_in_both_directions() {
    // The first frame ends as the outage begins; the next two wait for its end.
    let mut c = channel(Config { outages: outage(12, 100), hold: true, ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(1472));
    c.send(Time::ZERO, Side::Base, payload(1472));
    c.send(Time::from_millis(50), Side::Mobile, payload(1472));
    assert_eq!(arrival_ms(&mut c), [14.0, 126.0, 138.0]);
    let forever = vec![Outage { start: Time::ZERO, length: Duration::MAX }];
    let mut c = channel(Config { outages: forever, hold: true, ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(1472));
    assert_eq!((deliveries(&mut c).len(), c.stats(Side::Base).frames_bad), (0, 1));
}

#[test]
fn independent_loss_takes_its_share() {
    let mut c = channel(Config { loss: 0.1, rate: Rate::mbit(1000), queue_frames: 20_000, ..Config::default() });
    for _ in 0..20_000 {
        c.send(Time::ZERO, Side::Mobile, payload(100));
    }
    let lost = 20_000 - deliveries(&mut c).len() as u64;
    assert!((1850..2150).contains(&lost), "{lost}");
    assert_eq!(c.stats(Side::Mobile).frames_random_loss, lost);
}

#[test]
fn a_datagram_too_long_for_udp_is_counted_and_dropped() {
    let mut c = channel(Config::default());
    c.send(Time::ZERO, Side::Base, payload(DATAGRAM_MAX + 1));
    c.send(Time::ZERO, Side::Base, payload(DATAGRAM_MAX));
    let stats = c.stats(Side::Base);
    assert_eq!((stats.datagrams_offered, stats.datagrams_too_long, stats.frames_offered), (2, 1, 45));
}

#[test]
fn the_trace_keeps_the_newest_frames() {
    let mut c = Channel::new(Config { trace_frames: 2, ..Config::default() }, 1).unwrap();
    for size in [10, 20, 30] {
        c.send(Time::ZERO, Side::Base, payload(size));
    }
    c.handle_timeout(LATE);
    assert_eq!(trace(&mut c).iter().map(|f| f.bytes).collect::<Vec<_>>(), [48, 58]);
    assert_eq!(c.trace_overwritten(), 1);
}

#[test]
fn time_that_goes_backwards_or_ends_is_harmless() {
    let mut c = channel(Config::default());
    c.send(Time::from_secs(1), Side::Base, payload(1472));
    c.send(Time::ZERO, Side::Base, payload(1472));
    assert_eq!(arrival_ms(&mut c), [1014.0, 1026.0]);
    c.send(Time::MAX, Side::Base, payload(60_000));
    assert_eq!(c.poll_delivery(Time::MAX).map(|d| d.at), Some(Time::MAX));
}

/// A datagram: milliseconds/10 since the one before, who sends it, and its length.
type Offer = (u64, bool, usize);

fn any_traffic() -> impl Strategy<Value = Vec<Offer>> {
    let gap = prop_oneof![Just(0u64), 0u64..50, 0u64..2000];
    let size = prop_oneof![0usize..200, 1400usize..1500, 4000usize..9000];
    prop::collection::vec((gap, any::<bool>(), size), 1..60)
}

fn any_config() -> impl Strategy<Value = Config> {
    let law =
        prop_oneof![Just(Distribution::Uniform), Just(Distribution::Deterministic), Just(Distribution::Exponential)];
    let errors = (law, 100u64..1000, 0u64..200).prop_map(|(distribution, good, bad)| ErrorModel::TwoState {
        distribution,
        good_mean: Duration::from_millis(good),
        bad_mean: Duration::from_millis(bad),
    });
    let duplex = prop_oneof![Just(Duplex::Half), Just(Duplex::Full)];
    let loss = prop_oneof![Just(0.0), 0.0..0.3f64];
    (errors, duplex, loss, 1usize..60, 576usize..2000, 0u64..50, any::<bool>(), 0u64..3000).prop_map(
        |(errors, duplex, loss, queue_frames, mtu, delay, hold, bad_at)| Config {
            errors,
            duplex,
            loss,
            queue_frames,
            mtu,
            delay: Duration::from_millis(delay),
            hold,
            outages: outage(bad_at, 300),
            trace_frames: 100_000,
            ..Config::default()
        },
    )
}

#[derive(PartialEq, Debug)]
struct Outcome {
    deliveries: Vec<Delivery>,
    trace: Vec<FrameRecord>,
    stats: [SideStats; 2],
}

/// Runs the traffic; with `exact`, every timeout is met to the nanosecond, otherwise the channel
/// is asked only when there is something to send, and once at the end.
fn run(config: &Config, seed: u64, traffic: &[Offer], exact: bool) -> Outcome {
    let mut c = Channel::new(config.clone(), seed).unwrap();
    let mut deliveries = Vec::new();
    let mut now = Time::ZERO;
    for (n, (gap, mobile, size)) in traffic.iter().enumerate() {
        now += Duration::from_micros(gap * 100);
        if exact {
            drain_exactly(&mut c, now, &mut deliveries);
        }
        let from = if *mobile { Side::Mobile } else { Side::Base };
        let tag = (n as u64).to_be_bytes();
        c.send(now, from, Bytes::from([&tag[..], &vec![0; *size]].concat()));
    }
    if exact {
        drain_exactly(&mut c, LATE, &mut deliveries);
    }
    deliveries.extend(std::iter::from_fn(|| c.poll_delivery(LATE)));
    assert_eq!(c.poll_timeout(), None);
    Outcome { deliveries, trace: trace(&mut c), stats: Side::ALL.map(|s| *c.stats(s)) }
}

fn drain_exactly(c: &mut Channel, until: Time, deliveries: &mut Vec<Delivery>) {
    while let Some(due) = c.poll_timeout().filter(|t| *t <= until) {
        c.handle_timeout(due);
        while let Some(d) = c.poll_delivery(due) {
            assert_eq!(d.at, due, "a delivery is due when the timeout says so");
            deliveries.push(d);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn polling_late_changes_nothing(config in any_config(), seed: u64, traffic in any_traffic()) {
        prop_assert_eq!(run(&config, seed, &traffic, true), run(&config, seed, &traffic, false));
    }

    #[test]
    fn every_frame_has_one_fate_and_the_medium_one_frame(
        config in any_config(), seed: u64, traffic in any_traffic(),
    ) {
        let Outcome { deliveries, trace, stats } = run(&config, seed, &traffic, false);
        let mut weather = Weather::new(&config, seed).unwrap();
        for side in Side::ALL {
            let s = stats[side as usize];
            let fate = |fate| trace.iter().filter(|f| f.from == side && f.fate == fate).count() as u64;
            prop_assert_eq!(s.frames_offered, s.frames_sent + s.frames_queue_full);
            prop_assert_eq!(s.frames_sent, fate(Fate::Delivered) + s.frames_bad + s.frames_random_loss);
            prop_assert_eq!(s.frames_queue_full, fate(Fate::QueueFull));
            prop_assert_eq!(s.frames_bad, fate(Fate::BadPeriod));
            prop_assert_eq!(s.frames_random_loss, fate(Fate::RandomLoss));
            prop_assert_eq!(s.bytes_offered, trace.iter().filter(|f| f.from == side).map(|f| f.bytes as u64).sum::<u64>());
            prop_assert_eq!(s.datagrams_delivered, deliveries.iter().filter(|d| d.to != side).count() as u64);
        }
        for f in trace.iter().filter(|f| f.fate != Fate::QueueFull) {
            prop_assert_eq!(f.end, f.start + config.rate.airtime(f.bytes as u64));
            prop_assert_eq!(weather.bad_overlaps(f.start, f.end), f.fate == Fate::BadPeriod);
            prop_assert!(!(config.hold && f.fate == Fate::BadPeriod));
        }
        for side in Side::ALL {
            let shares = |f: &&FrameRecord| config.duplex == Duplex::Half || f.from == side;
            let sent: Vec<_> = trace.iter().filter(|f| f.fate != Fate::QueueFull).filter(shares).collect();
            prop_assert!(sent.windows(2).all(|two| two[0].end <= two[1].start));
        }
        prop_assert!(deliveries.windows(2).all(|two| two[0].at <= two[1].at));
    }

    /// A datagram comes through if and only if all its frames do, in the order it was sent.
    #[test]
    fn each_direction_keeps_its_order(config in any_config(), seed: u64, traffic in any_traffic()) {
        let outcome = run(&config, seed, &traffic, true);
        for side in Side::ALL {
            let tags: Vec<_> = outcome.deliveries.iter().filter(|d| d.to == side).map(|d| d.datagram[..8].to_vec()).collect();
            prop_assert!(tags.windows(2).all(|two| two[0] < two[1]));
        }
        let clean = Config { errors: ErrorModel::None, outages: vec![], loss: 0.0, queue_frames: 1000, ..config };
        prop_assert_eq!(run(&clean, seed, &traffic, false).deliveries.len(), traffic.len());
    }
}
