//! The floor against closed forms, a frame-by-frame search, and a channel that holds frames.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::{Rate, Time};
use remora_channel::{
    Channel, Config, Distribution, Duplex, ErrorModel, ErrorProcess, Opportunities, Outage, PerSide, Period, Side,
    floor,
};

const MIB: u64 = 1 << 20;

fn floor_at(config: &Config, bytes: u64, start: Time) -> Option<Time> {
    floor(config, 1, Side::Base, bytes, start).unwrap()
}

#[test]
fn floor_equals_closed_forms() {
    let clean = Config::default();
    // 712 full frames of 12 ms, a last one of 512 + 28 bytes, 2 ms of propagation.
    let want = Duration::from_micros(712 * 12_000 + 4320 + 2000);
    assert_eq!(floor_at(&clean, MIB, Time::from_secs(5)), Some(Time::from_secs(5) + want));
    assert_eq!(floor_at(&clean, 0, Time::from_secs(5)), Some(Time::from_secs(5)));
    assert_eq!(floor_at(&clean, 1472, Time::ZERO), Some(Time::from_millis(14)));
    // An outage stops it, and wastes the part of a frame before it.
    let outages = vec![Outage { start: Time::from_millis(30), length: Duration::from_millis(100) }];
    let config = Config { outages, ..Config::default() };
    assert_eq!(floor_at(&config, 3 * 1472, Time::ZERO), Some(Time::from_millis(130 + 12 + 2)));
    // A tenth lost: 10 frames for 9.
    let config = Config { loss: 0.1, ..Config::default() };
    assert_eq!(floor_at(&config, 9 * 1472, Time::ZERO), Some(Time::from_millis(10 * 12 + 2)));
}

#[test]
fn trace_sets_the_rate_of_its_side_only() {
    // 1000 ms a round, 100 opportunities.
    let times: Vec<u64> = (1..=100).map(|n| n * 10).collect();
    let config = Config { trace: recorded(&times), ..Config::default() };
    let at = |from, bytes| floor(&config, 1, from, bytes, Time::ZERO).unwrap();
    assert_eq!(at(Side::Mobile, 1472), Some(Time::from_millis(14)));
    assert_eq!(at(Side::Base, 250 * 1472), Some(Time::from_millis(2502)));
    assert_eq!(at(Side::Base, 1 << 40), Some(Time::from_millis(10 * (1u64 << 40).div_ceil(1472) + 2)));
    assert_eq!(at(Side::Base, u64::MAX), None);
}

#[test]
fn floor_of_impossible_transfer_is_none() {
    let frame_too_long = ErrorModel::TwoState {
        distribution: Distribution::Deterministic,
        good_mean: Duration::from_millis(11),
        bad_mean: Duration::from_millis(1),
    };
    let forever = Outage { start: Time::ZERO, length: Duration::MAX };
    for config in [
        Config { loss: 1.0, ..Config::default() },
        Config { errors: frame_too_long, ..Config::default() },
        Config { outages: vec![forever], ..Config::default() },
    ] {
        assert_eq!(floor_at(&config, MIB, Time::ZERO), None, "{config:?}");
    }
    assert_eq!(floor_at(&Config::default(), u64::MAX, Time::ZERO), None);
    assert!(floor(&Config { mtu: 28, ..Config::default() }, 1, Side::Base, MIB, Time::ZERO).is_err());
}

fn meets(bad: &[Period], start: Time, end: Time) -> Option<Period> {
    bad.iter().find(|p| p.start < end && start < p.end).copied()
}

/// Frame by frame, against the list of bad periods.
fn brute_force(config: &Config, seed: u64, bytes: u64, start: Time) -> Time {
    let bad: Vec<_> = ErrorProcess::new(config, seed).unwrap().bad_periods(Time::ZERO, Time::from_secs(1000)).collect();
    let mut at = start;
    for frame in frames(config, bytes) {
        let airtime = config.rate.airtime(frame);
        while let Some(hit) = meets(&bad, at, at + airtime) {
            at = hit.end;
        }
        at += airtime;
    }
    at + config.delay
}

/// The search at a trace's opportunities, listed one by one.
fn brute_force_trace(config: &Config, times_ms: &[u64], seed: u64, bytes: u64, start: Time) -> Time {
    let bad: Vec<_> = ErrorProcess::new(config, seed).unwrap().bad_periods(Time::ZERO, Time::from_secs(1000)).collect();
    let round = *times_ms.last().unwrap();
    let all = (0..).flat_map(|n| times_ms.iter().map(move |ms| Time::from_millis(n * round + ms)));
    let mut room: Vec<(Time, u64)> = all.take_while(|t| *t < Time::from_secs(1000)).map(|t| (t, 1500)).collect();
    room.reverse();
    let mut at = start;
    for frame in frames(config, bytes) {
        at = loop {
            room.truncate(room.partition_point(|(t, _)| *t >= at));
            let began = room.clone();
            let (mut first, mut last, mut left) = (None, at, frame);
            while left > 0 {
                let (t, bytes) = room.last_mut().unwrap();
                let used = left.min(*bytes);
                (first, last) = (first.or(Some(*t)), *t);
                left -= used;
                *bytes -= used;
                if *bytes == 0 {
                    room.pop();
                }
            }
            match meets(&bad, first.unwrap(), last + Duration::from_nanos(1)) {
                None => break last,
                Some(hit) => (at, room) = (hit.end, began),
            }
        };
    }
    at + config.delay
}

/// The lengths of the frames that carry a file.
fn frames(config: &Config, mut bytes: u64) -> Vec<u64> {
    let mut frames = Vec::new();
    while bytes > 0 {
        let data = bytes.min(config.mtu as u64 - 28);
        frames.push(data + 28);
        bytes -= data;
    }
    frames
}

fn any_times() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0u64..30, 1..20).prop_map(|gaps| {
        let times = gaps.iter().scan(1, |at, gap| {
            *at += gap;
            Some(*at)
        });
        times.collect()
    })
}

fn recorded(times_ms: &[u64]) -> PerSide<Option<Arc<Opportunities>>> {
    let text: String = times_ms.iter().map(|t| format!("{t}\n")).collect();
    PerSide { base: Some(Arc::new(Opportunities::parse(&text).unwrap())), mobile: None }
}

fn any_config() -> impl Strategy<Value = Config> {
    let law =
        prop_oneof![Just(Distribution::Uniform), Just(Distribution::Deterministic), Just(Distribution::Exponential)];
    let outage = (0u64..5000, 1u64..2000)
        .prop_map(|(start, length)| Outage { start: Time::from_millis(start), length: Duration::from_millis(length) });
    (law, 50u64..2000, 0u64..200, 500u64..10_000, 576usize..1600, prop::collection::vec(outage, 0..3)).prop_map(
        |(distribution, good, bad, kbit, mtu, outages)| Config {
            rate: Rate::from_bits(kbit * 1000).unwrap(),
            errors: ErrorModel::TwoState {
                distribution,
                good_mean: Duration::from_millis(good),
                bad_mean: Duration::from_millis(bad),
            },
            mtu,
            outages,
            ..Config::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn floor_equals_that_of_a_search_by_frame(
        config in any_config(), seed: u64, bytes in 0u64..300_000, start in 0u64..10_000,
    ) {
        let start = Time::from_millis(start);
        prop_assert_eq!(floor(&config, seed, Side::Base, bytes, start).unwrap(), match bytes {
            0 => Some(start),
            _ => Some(brute_force(&config, seed, bytes, start)),
        });
    }

    #[test]
    fn floor_equals_that_of_a_search_by_opportunity(
        config in any_config(), times in any_times(), seed: u64, bytes in 1u64..40_000, start in 0u64..10_000,
    ) {
        let start = Time::from_millis(start);
        let config = Config { trace: recorded(&times), ..config };
        let got = floor(&config, seed, Side::Base, bytes, start).unwrap();
        prop_assert_eq!(got, Some(brute_force_trace(&config, &times, seed, bytes, start)));
    }

    /// Holding every frame until it fits is the perfect sender.
    #[test]
    fn channel_that_holds_frames_reaches_the_floor(
        config in any_config(), times in prop::option::of(any_times()), seed: u64, bytes in 1usize..100_000,
    ) {
        let trace = times.map(|times| recorded(&times)).unwrap_or_default();
        let config = Config { hold: true, duplex: Duplex::Full, queue_frames: 1000, trace, ..config };
        let floor = floor(&config, seed, Side::Base, bytes as u64, Time::ZERO).unwrap();
        let mut channel = Channel::new(config.clone(), seed).unwrap();
        let mut file = Bytes::from(vec![0; bytes]);
        while !file.is_empty() {
            channel.send(Time::ZERO, Side::Base, file.split_to(file.len().min(config.mtu - 28)));
        }
        let arrivals = std::iter::from_fn(|| channel.poll_delivery(Time::from_secs(10_000)));
        prop_assert_eq!(arrivals.last().map(|d| d.at), floor);
        prop_assert_eq!(channel.stats(Side::Base).frames_bad, 0);
    }
}
