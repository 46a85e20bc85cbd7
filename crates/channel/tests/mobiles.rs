//! Several mobiles on one channel: turns, the shared queue, separate error processes, held frames.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{
    Channel, Config, ConfigError, Delivery, Distribution, Duplex, ErrorModel, Fate, Lane, MOBILES_MAX, Side,
};

const LATE: Time = Time::from_secs(100_000);

fn base(mobile: usize) -> Lane {
    Lane { mobile, from: Side::Base }
}

fn mobile(mobile: usize) -> Lane {
    Lane { mobile, from: Side::Mobile }
}

/// A frame of 12 ms.
fn send(c: &mut Channel, at_ms: u64, lane: Lane) {
    c.send_packet(Time::from_millis(at_ms), lane, Bytes::from(vec![0; 1500]));
}

fn arrivals(c: &mut Channel) -> Vec<(u64, Lane)> {
    let lane = |d: &Delivery| Lane { mobile: d.mobile, from: d.to.other() };
    std::iter::from_fn(|| c.poll_delivery(LATE)).map(|d| (d.at.as_nanos() / 1_000_000, lane(&d))).collect()
}

fn of(config: Config, mobiles: usize) -> Channel {
    Channel::with_mobiles(Config { trace_frames: 100_000, ..config }, 1, mobiles).unwrap()
}

#[test]
fn mobiles_outside_1_to_64_are_refused() {
    for (mobiles, valid) in [(0, false), (1, true), (64, true), (65, false), (usize::MAX, false)] {
        match Channel::with_mobiles(Config::default(), 1, mobiles) {
            Ok(c) => assert!(valid && c.mobiles() == mobiles),
            Err(e) => assert!(!valid && e == ConfigError::Mobiles(mobiles)),
        }
    }
    assert_eq!(MOBILES_MAX, 64);
}

#[test]
fn all_stations_take_turns_on_one_medium() {
    let mut c = of(Config::default(), 3);
    for lane in [base(0), base(0), base(2), base(1), mobile(0), mobile(0), mobile(2), mobile(2)] {
        send(&mut c, 0, lane);
    }
    // The base station's frames keep their order across mobiles.
    let order = [base(0), mobile(0), mobile(2), base(0), mobile(0), mobile(2), base(2), base(1)];
    let want: Vec<_> = (1..).zip(order).map(|(n, lane)| (12 * n + 2, lane)).collect();
    assert_eq!(arrivals(&mut c), want);
}

#[test]
fn late_station_goes_first_after_the_last_one() {
    let mut c = of(Config::default(), 3);
    for lane in [mobile(1), mobile(1), mobile(1), mobile(0)] {
        send(&mut c, 0, lane);
    }
    send(&mut c, 1, mobile(2));
    let order = [mobile(1), mobile(2), mobile(0), mobile(1), mobile(1)];
    assert_eq!(arrivals(&mut c).into_iter().map(|(_, lane)| lane).collect::<Vec<_>>(), order);
}

#[test]
fn mobiles_share_their_medium_in_full_duplex() {
    let mut c = of(Config { duplex: Duplex::Full, ..Config::default() }, 2);
    for lane in [base(0), base(1), mobile(0), mobile(0), mobile(1)] {
        send(&mut c, 0, lane);
    }
    let want = [(14, base(0)), (14, mobile(0)), (26, base(1)), (26, mobile(1)), (38, mobile(0))];
    assert_eq!(arrivals(&mut c), want);
}

#[test]
fn base_station_has_one_queue_each_mobile_its_own() {
    let mut c = of(Config { queue_frames: 2, ..Config::default() }, 2);
    for lane in [base(0), base(0), base(1), base(1), mobile(0), mobile(1), mobile(1)] {
        send(&mut c, 0, lane);
    }
    assert_eq!([base(0), base(1), mobile(0), mobile(1)].map(|lane| c.queued_frames(lane)), [2, 2, 1, 2]);
    let full = [base(0), base(1), mobile(0), mobile(1)].map(|lane| c.stats(lane).frames_queue_full);
    assert_eq!(full, [0, 1, 0, 0]);
    assert_eq!(arrivals(&mut c).len(), 6);
}

/// Mobile 0: good for 20 ms, bad for 500, and so on. Mobile 1: always good.
fn one_of_two_bad(hold: bool) -> Channel {
    let errors = ErrorModel::TwoState {
        distribution: Distribution::Deterministic,
        good_mean: Duration::from_millis(20),
        bad_mean: Duration::from_millis(500),
    };
    let config = Config { hold, trace_frames: 100, ..Config::default() };
    Channel::with_errors(config, 1, &[errors, ErrorModel::None]).unwrap()
}

#[test]
fn bad_periods_affect_their_mobile_alone() {
    let mut c = one_of_two_bad(false);
    for lane in [base(0), base(0), base(1), mobile(0), mobile(1)] {
        send(&mut c, 0, lane);
    }
    let got = [(14, base(0)), (38, mobile(1)), (62, base(1))];
    assert_eq!(arrivals(&mut c), got);
    assert_eq!((c.stats(base(0)).frames_bad, c.stats(mobile(0)).frames_bad), (1, 1));
}

#[test]
fn held_frames_keep_order_and_others_overtake() {
    let mut c = one_of_two_bad(true);
    for lane in [base(0), base(0), base(0), base(1), base(1)] {
        send(&mut c, 0, lane);
    }
    c.handle_timeout(Time::from_millis(100));
    assert_eq!(c.queued_frames(base(1)), 1, "one is held, one waits behind it");
    send(&mut c, 100, mobile(0)); // waits for the frame held on the same medium
    send(&mut c, 519, mobile(1)); // on the air when the good period begins; the rest of it is too short
    // The good periods begin at 520, 1040 and 1560 ms; each has room for one frame.
    let want = [
        (14, base(0)),
        (26, base(1)),
        (38, base(1)),
        (533, mobile(1)),
        (1054, base(0)),
        (1574, mobile(0)),
        (2094, base(0)),
    ];
    assert_eq!(arrivals(&mut c), want);
    let fates: Vec<_> = std::iter::from_fn(|| c.poll_trace()).map(|f| f.fate).collect();
    assert_eq!(fates, [Fate::Delivered; 7]);
}

#[test]
fn held_mobile_leaves_the_medium_to_the_others() {
    let mut c = one_of_two_bad(true);
    for _ in 0..10 {
        send(&mut c, 0, base(0));
    }
    for n in 0..30 {
        send(&mut c, 50 + 12 * n, base(1)); // finds the medium idle each time
    }
    let on_time = arrivals(&mut c).into_iter().filter(|(_, lane)| *lane == base(1)).map(|(at, _)| at);
    assert!(on_time.eq((0..30).map(|n| 50 + 12 * n + 14)));
}

#[test]
fn seeds_of_mobiles_differ_and_first_is_the_channels() {
    let seeds: Vec<u64> = (0..MOBILES_MAX).map(|m| Channel::seed_of(7, m)).collect();
    assert_eq!(seeds[0], 7);
    assert!(seeds.iter().enumerate().all(|(n, seed)| !seeds[..n].contains(seed)));
    assert_ne!(Channel::seed_of(8, 1), seeds[1]);
}
