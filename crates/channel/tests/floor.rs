//! The floor against closed forms, a frame-by-frame search, and a channel that holds frames.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::{Rate, Time};
use remora_channel::{Channel, Config, Distribution, Duplex, ErrorModel, Outage, Side, Weather, floor};

const MIB: u64 = 1 << 20;

fn floor_at(config: &Config, bytes: u64, start: Time) -> Option<Time> {
    floor(config, 1, bytes, start).unwrap()
}

#[test]
fn closed_forms() {
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
fn the_impossible_is_none() {
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
    assert!(floor(&Config { mtu: 28, ..Config::default() }, 1, MIB, Time::ZERO).is_err());
}

/// Frame by frame, against the list of bad periods.
fn brute_force(config: &Config, seed: u64, mut bytes: u64, start: Time) -> Time {
    let bad: Vec<_> = Weather::new(config, seed).unwrap().bad_periods(Time::ZERO, Time::from_secs(1000)).collect();
    let mut at = start;
    while bytes > 0 {
        let data = bytes.min(config.mtu as u64 - 28);
        let airtime = config.rate.airtime(data + 28);
        while let Some(hit) = bad.iter().find(|p| p.start < at + airtime && at < p.end) {
            at = hit.end;
        }
        at += airtime;
        bytes -= data;
    }
    at + config.delay
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
    fn agrees_with_a_search_frame_by_frame(
        config in any_config(), seed: u64, bytes in 0u64..300_000, start in 0u64..10_000,
    ) {
        let start = Time::from_millis(start);
        prop_assert_eq!(floor(&config, seed, bytes, start).unwrap(), match bytes {
            0 => Some(start),
            _ => Some(brute_force(&config, seed, bytes, start)),
        });
    }

    /// Holding every frame until it fits is the perfect sender.
    #[test]
    fn a_channel_that_holds_frames_reaches_it(config in any_config(), seed: u64, bytes in 1usize..100_000) {
        let config = Config { hold: true, duplex: Duplex::Full, queue_frames: 1000, ..config };
        let floor = floor(&config, seed, bytes as u64, Time::ZERO).unwrap();
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
