//! Properties of any channel under any traffic and any driver.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::Time;
use remora_channel::{
    Channel, Config, Delivery, Distribution, Duplex, ErrorModel, ErrorProcess, Fate, FrameRecord, Lane, Opportunities,
    Outage, PerSide, Receiver, Side, SideStats,
};

const LATE: Time = Time::from_secs(100_000);
/// Frames with this fate never occupied the medium.
const NEVER_SENT: Fate = Fate::QueueFull;

/// A datagram to send.
#[derive(Clone, Debug)]
struct Offer {
    /// 100 us since the one before.
    gap: u64,
    from: Side,
    /// Counted round the channel's mobiles.
    mobile: usize,
    bytes: usize,
    packet: bool,
}

fn any_traffic() -> impl Strategy<Value = Vec<Offer>> {
    let gap = prop_oneof![Just(0u64), 0u64..50, 0u64..2000];
    let bytes = prop_oneof![0usize..200, 500usize..1500, 4000usize..9000];
    let from = prop_oneof![Just(Side::Base), Just(Side::Mobile)];
    let offer = (gap, from, 0usize..5, bytes, any::<bool>()).prop_map(|(gap, from, mobile, bytes, packet)| Offer {
        gap,
        from,
        mobile,
        bytes,
        packet,
    });
    prop::collection::vec(offer, 1..60)
}

fn any_errors() -> impl Strategy<Value = ErrorModel> {
    let law =
        prop_oneof![Just(Distribution::Uniform), Just(Distribution::Deterministic), Just(Distribution::Exponential)];
    (law, 100u64..1000, 0u64..200).prop_map(|(distribution, good, bad)| ErrorModel::TwoState {
        distribution,
        good_mean: Duration::from_millis(good),
        bad_mean: Duration::from_millis(bad),
    })
}

fn any_trace() -> impl Strategy<Value = Option<Arc<Opportunities>>> {
    let gaps = prop::collection::vec(0u64..40, 1..30).prop_map(|gaps| {
        let times = gaps.iter().scan(1, |at, gap| {
            *at += gap;
            Some(format!("{at}\n"))
        });
        Some(Arc::new(Opportunities::parse(&times.collect::<String>()).unwrap()))
    });
    prop_oneof![2 => Just(None), 1 => gaps]
}

fn any_config() -> impl Strategy<Value = Config> {
    let duplex = prop_oneof![2 => Just(Duplex::Half), 1 => Just(Duplex::Full)];
    let loss = prop_oneof![Just(0.0), 0.0..0.3f64];
    let receiver = prop::option::of((1usize..20, 0u64..40))
        .prop_map(|r| r.map(|(frames, ms)| Receiver { frames, service: Duration::from_millis(ms) }));
    let link = (any_errors(), duplex, loss, any::<bool>(), (any_trace(), any_trace()));
    let sizes = (1usize..60, 576usize..2000, 0u64..50, 0u64..3000);
    (link, sizes, receiver).prop_map(|((errors, duplex, loss, hold, traces), sizes, receiver)| {
        let (queue_frames, mtu, delay, bad_at) = sizes;
        Config {
            errors,
            duplex,
            loss,
            hold,
            trace: PerSide { base: traces.0, mobile: traces.1 },
            receiver,
            queue_frames,
            mtu,
            delay: Duration::from_millis(delay),
            outages: vec![Outage { start: Time::from_millis(bad_at), length: Duration::from_millis(300) }],
            trace_frames: 100_000,
            ..Config::default()
        }
    })
}

#[derive(PartialEq, Debug)]
struct Outcome {
    deliveries: Vec<Delivery>,
    frames: Vec<FrameRecord>,
    stats: Vec<(Lane, SideStats)>,
}

impl Outcome {
    fn lane(&self, lane: Lane) -> impl Iterator<Item = &FrameRecord> {
        self.frames.iter().filter(move |f| f.from == lane.from && f.mobile == lane.mobile)
    }

    fn arrived(&self, lane: Lane) -> impl Iterator<Item = &Delivery> {
        self.deliveries.iter().filter(move |d| d.to != lane.from && d.mobile == lane.mobile)
    }
}

/// Runs the traffic. With `exact` every timeout is met to the nanosecond; otherwise the channel is
/// polled only when there is traffic, and once at the end.
fn run(config: &Config, seed: u64, mobiles: usize, traffic: &[Offer], exact: bool) -> Outcome {
    let mut c = Channel::with_mobiles(config.clone(), seed, mobiles).unwrap();
    let mut deliveries = Vec::new();
    let mut now = Time::ZERO;
    for (n, offer) in traffic.iter().enumerate() {
        now += Duration::from_micros(offer.gap * 100);
        if exact {
            drain_exactly(&mut c, now, &mut deliveries);
        }
        let lane = Lane { mobile: offer.mobile % mobiles, from: offer.from };
        let tag = (n as u64).to_be_bytes();
        let bytes = Bytes::from([&tag[..], &vec![0; offer.bytes]].concat());
        if offer.packet { c.send_packet(now, lane, bytes) } else { c.send(now, lane, bytes) }
    }
    if exact {
        drain_exactly(&mut c, LATE, &mut deliveries);
    }
    deliveries.extend(std::iter::from_fn(|| c.poll_delivery(LATE)));
    assert_eq!(c.poll_timeout(), None);
    let lanes = Side::ALL.into_iter().flat_map(|from| (0..mobiles).map(move |mobile| Lane { mobile, from }));
    let stats = lanes.map(|lane| (lane, *c.stats(lane))).collect();
    assert!((0..mobiles).all(|mobile| c.queued_frames(Lane { mobile, from: Side::Mobile }) == 0));
    assert_eq!(c.queued_frames(Side::Base), 0);
    Outcome { deliveries, frames: std::iter::from_fn(|| c.poll_trace()).collect(), stats }
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

/// Whether a frame of this lane takes its airtime at the configured rate.
fn at_rate(config: &Config, from: Side) -> bool {
    config.trace.of(from).is_none()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn late_polls_change_nothing(
        config in any_config(), seed: u64, mobiles in 1usize..6, traffic in any_traffic(),
    ) {
        prop_assert_eq!(
            run(&config, seed, mobiles, &traffic, true),
            run(&config, seed, mobiles, &traffic, false)
        );
    }

    #[test]
    fn frame_offered_has_one_fate(
        config in any_config(), seed: u64, mobiles in 1usize..6, traffic in any_traffic(),
    ) {
        let outcome = run(&config, seed, mobiles, &traffic, false);
        for (lane, s) in &outcome.stats {
            let fate = |fate| outcome.lane(*lane).filter(|f| f.fate == fate).count() as u64;
            prop_assert_eq!(s.frames_offered, s.frames_sent + s.frames_queue_full);
            let lost = s.frames_bad + s.frames_random_loss + s.frames_receiver_full;
            prop_assert_eq!(s.frames_sent, fate(Fate::Delivered) + lost);
            prop_assert_eq!(s.frames_queue_full, fate(Fate::QueueFull));
            prop_assert_eq!(s.frames_bad, fate(Fate::BadPeriod));
            prop_assert_eq!(s.frames_random_loss, fate(Fate::RandomLoss));
            prop_assert_eq!(s.frames_receiver_full, fate(Fate::ReceiverFull));
            prop_assert_eq!(s.bytes_offered, outcome.lane(*lane).map(|f| f.bytes as u64).sum::<u64>());
            prop_assert_eq!(s.datagrams_delivered, outcome.arrived(*lane).count() as u64);
            let packets = outcome.lane(*lane).filter(|f| f.fate == Fate::Delivered && !f.packet.is_empty());
            let whole: Vec<_> = packets.map(|f| &f.packet).collect();
            prop_assert!(whole.iter().all(|p| outcome.arrived(*lane).any(|d| d.datagram == **p)));
            let slow = lane.from == Side::Base && config.receiver.is_some();
            prop_assert!(slow || s.frames_receiver_full == 0);
        }
        prop_assert!(outcome.deliveries.windows(2).all(|two| two[0].at <= two[1].at));
    }

    #[test]
    fn medium_carries_one_frame_at_a_time(
        config in any_config(), seed: u64, mobiles in 1usize..6, traffic in any_traffic(),
    ) {
        let outcome = run(&config, seed, mobiles, &traffic, false);
        let shared = config.duplex == Duplex::Half && Side::ALL.iter().all(|s| at_rate(&config, *s));
        for side in Side::ALL {
            let on_medium = |f: &&FrameRecord| f.fate != NEVER_SENT && (shared || f.from == side);
            let sent: Vec<_> = outcome.frames.iter().filter(on_medium).collect();
            prop_assert!(sent.windows(2).all(|two| two[0].end <= two[1].start));
        }
    }

    #[test]
    fn bad_period_of_its_mobile_decides_frame_loss(
        config in any_config(), seed: u64, mobiles in 1usize..6, traffic in any_traffic(),
    ) {
        let outcome = run(&config, seed, mobiles, &traffic, false);
        let errors = |mobile| ErrorProcess::new(&config, Channel::seed_of(seed, mobile)).unwrap();
        let mut errors: Vec<ErrorProcess> = (0..mobiles).map(errors).collect();
        for f in outcome.frames.iter().filter(|f| f.fate != NEVER_SENT) {
            // An opportunity has no length, but the bad period of its moment applies.
            let moment = if at_rate(&config, f.from) {
                prop_assert_eq!(f.end, f.start + config.rate.airtime(f.bytes as u64));
                Duration::ZERO
            } else {
                Duration::from_nanos(1)
            };
            let bad = errors[f.mobile].bad_overlaps(f.start, f.end + moment);
            prop_assert_eq!(bad, f.fate == Fate::BadPeriod);
            prop_assert!(!(config.hold && bad));
        }
    }

    /// A datagram arrives if and only if all its frames do, in the order sent.
    #[test]
    fn lane_delivers_in_order(
        config in any_config(), seed: u64, mobiles in 1usize..6, traffic in any_traffic(),
    ) {
        let outcome = run(&config, seed, mobiles, &traffic, true);
        for (lane, _) in &outcome.stats {
            let tags: Vec<_> = outcome.arrived(*lane).map(|d| d.datagram[..8].to_vec()).collect();
            prop_assert!(tags.windows(2).all(|two| two[0] < two[1]));
        }
        let clean = Config {
            errors: ErrorModel::None, outages: vec![], loss: 0.0, queue_frames: 10_000, receiver: None, ..config
        };
        let outcome = run(&clean, seed, mobiles, &traffic, false);
        let refused = outcome.stats.iter().map(|(_, s)| s.datagrams_refused).sum::<u64>() as usize;
        prop_assert_eq!(outcome.deliveries.len() + refused, traffic.len());
    }

    /// At any time, stations with waiting frames differ by at most one frame.
    #[test]
    fn stations_get_turns_within_one_frame(
        seed: u64, mobiles in 1usize..6, full in any::<bool>(), sizes in prop::collection::vec(1usize..1500, 30..200),
    ) {
        let duplex = if full { Duplex::Full } else { Duplex::Half };
        let config = Config { duplex, queue_frames: 1000, trace_frames: 10_000, ..Config::default() };
        let mut c = Channel::with_mobiles(config, seed, mobiles).unwrap();
        // The base station's frames are for any mobile; the others' are their own.
        let stations = mobiles + 1;
        for (n, bytes) in sizes.iter().enumerate() {
            let lane = match n % stations {
                0 => Lane { mobile: bytes % mobiles, from: Side::Base },
                station => Lane { mobile: station - 1, from: Side::Mobile },
            };
            c.send_packet(Time::ZERO, lane, Bytes::from(vec![0; *bytes]));
        }
        c.handle_timeout(LATE);
        let mut sent = vec![0usize; stations];
        while let Some(f) = c.poll_trace() {
            let station = if f.from == Side::Base { 0 } else { f.mobile + 1 };
            sent[station] += 1;
            let rivals = if full { &sent[1..] } else { &sent[..] };
            if full && station == 0 || rivals.iter().any(|n| *n >= sizes.len() / stations) {
                continue; // someone may have nothing left
            }
            let (most, least) = (rivals.iter().max(), rivals.iter().min());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", sent);
        }
        prop_assert_eq!(sent.iter().sum::<usize>(), sizes.len());
    }

    /// In half duplex and a good period, a held mobile costs the others no airtime.
    #[test]
    fn held_mobile_does_not_slow_the_others(errors in any_errors(), seed: u64, frames in 1usize..60) {
        let config = Config { hold: true, queue_frames: 1000, ..Config::default() };
        let mut c = Channel::with_errors(config, seed, &[errors, ErrorModel::None]).unwrap();
        for mobile in 0..2 {
            for _ in 0..frames {
                c.send_packet(Time::ZERO, Lane { mobile, from: Side::Base }, Bytes::from(vec![0; 1500]));
            }
        }
        // At worst each of its frames lets one of the other mobile's go first.
        let last = std::iter::from_fn(|| c.poll_delivery(LATE)).filter(|d| d.mobile == 1).last().map(|d| d.at);
        prop_assert!(last.is_some_and(|at| at <= Time::from_millis(24 * frames as u64 + 2)), "{:?}", last);
    }
}
