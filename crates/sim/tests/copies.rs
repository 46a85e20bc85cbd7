//! Copies of a megabyte over the papers' channel by each kind of client: exact, and in a bounded
//! time relative to the floor.

use std::sync::Arc;
use std::time::Duration;

use remora_channel::{Duplex, ErrorModel, Opportunities, PerSide};
use remora_client::{ClientConfig, Transport};
use remora_sim::copy::{self, CopyConfig, CopyError, CopyResult, Direction, Manner};
use remora_sim::programs::median;

fn copy(client: ClientConfig, direction: Direction, bad_mean_ms: u64, seed: u64) -> CopyResult {
    let errors = ErrorModel::bursts(Duration::from_millis(bad_mean_ms));
    let channel = remora_channel::Config { errors, ..Default::default() };
    let config = CopyConfig { channel, ..CopyConfig::new(client, direction) };
    // `copy::run` compares the bytes.
    copy::run(&config, seed).unwrap_or_else(|e| panic!("{direction:?}, seed {seed}: {e}"))
}

/// The median of the ratios to the floor, and all of them. A censored copy counts as infinite;
/// there may be none here.
fn median_ratio(results: impl Iterator<Item = CopyResult>) -> (f64, Vec<f64>) {
    let ratios: Vec<f64> = results.map(|r| r.first().ratio().unwrap_or(f64::INFINITY)).collect();
    assert_eq!(ratios.iter().filter(|r| r.is_infinite()).count(), 0, "cut off, of {ratios:?}");
    (median(ratios.clone()), ratios)
}

#[test]
fn every_client_copies_byte_for_byte() {
    for direction in [Direction::Read, Direction::Write] {
        // A retransmission lost in a burst costs clients with fixed timeouts seconds; the adaptive
        // one does not wait for a timeout.
        let clients =
            [(ClientConfig::stock(), 20.0), (ClientConfig::paper(), 5.0), (ClientConfig::new(Transport::Udp), 1.3)];
        for (client, ratio_max) in clients {
            for seed in 0..2 {
                let result = copy(client.clone(), direction, 80, seed);
                let ratio = result.first().ratio().expect("the weather is not always bad");
                // Long datagrams beat the floor's headers by a few parts in a thousand.
                assert!((0.99..ratio_max).contains(&ratio), "{direction:?}, {:?}: {ratio}", client.retry);
                assert!(result.first().client.retransmissions > 0, "bursts lose something");
            }
        }
    }
}

#[test]
fn default_client_is_near_the_floor() {
    for direction in [Direction::Read, Direction::Write] {
        for bad_mean_ms in [40, 80, 160] {
            let run = |seed| copy(ClientConfig::new(Transport::Udp), direction, bad_mean_ms, seed);
            let (median, ratios) = median_ratio((0..11).map(run));
            assert!(median < 1.13, "{direction:?}, {bad_mean_ms} ms: {median} of {ratios:?}");
        }
    }
}

#[test]
fn default_client_is_near_the_floor_on_other_links() {
    let channel = remora_channel::Config::default;
    let bursts = |ms| ErrorModel::bursts(Duration::from_millis(ms));
    let long = remora_channel::Config { delay: Duration::from_millis(300), duplex: Duplex::Full, ..channel() };
    let slow = remora_channel::Config { rate: "64kbit".parse().expect("a rate"), errors: bursts(80), ..channel() };
    for (name, channel, bytes, seeds, median_max) in [
        ("no errors", channel(), 1 << 20, 1, 1.04),
        ("bursts of 500 ms", remora_channel::Config { errors: bursts(500), ..channel() }, 1 << 20, 5, 1.2),
        ("a round trip of 600 ms", long, 1 << 20, 1, 1.2),
        ("64 kbit/s with bursts", slow, 128 << 10, 5, 1.9),
        ("a tenth lost one by one", remora_channel::Config { loss: 0.1, ..channel() }, 1 << 20, 3, 1.45),
    ] {
        for direction in [Direction::Read, Direction::Write] {
            let client = ClientConfig::new(Transport::Udp);
            let config = CopyConfig { channel: channel.clone(), bytes, ..CopyConfig::new(client, direction) };
            let (median, ratios) = median_ratio((0..seeds).map(|seed| copy::run(&config, seed).expect("a copy")));
            assert!(median < median_max, "{name}, {direction:?}: {median} of {ratios:?}");
        }
    }
}

/// The BDP is large and the queue small: a burst of the whole window is lost.
#[test]
fn default_client_does_not_overflow_queues() {
    let fast = |delay_ms, rate: &str| remora_channel::Config {
        delay: Duration::from_millis(delay_ms),
        rate: rate.parse().expect("a rate"),
        duplex: Duplex::Full,
        queue_frames: 50,
        ..Default::default()
    };
    let bursts =
        remora_channel::Config { errors: ErrorModel::bursts(Duration::from_millis(80)), ..fast(100, "20Mbit") };
    // A radio whose stations take turns: 33 frames each 20 ms.
    let turns: String = (1..3000).map(|turn| format!("{}\n", turn * 20).repeat(33)).collect();
    let turns = Arc::new(Opportunities::parse(&turns).expect("a trace"));
    let turns = remora_channel::Config {
        trace: PerSide { base: Some(turns.clone()), mobile: Some(turns) },
        ..fast(25, "1Mbit")
    };
    // With a few seconds and a burst each, no two copies are alike.
    for (name, channel, seeds, ratio_max) in
        [("a satellite", fast(300, "10Mbit"), 3, 1.45), ("and its bursts", bursts, 11, 2.3), ("turns", turns, 3, 1.5)]
    {
        for direction in [Direction::Read, Direction::Write] {
            let client = ClientConfig::new(Transport::Udp);
            let config =
                CopyConfig { channel: channel.clone(), bytes: 8_000_000, ..CopyConfig::new(client, direction) };
            let (median, ratios) = median_ratio((0..seeds).map(|seed| copy::run(&config, seed).expect("a copy")));
            assert!(median < ratio_max, "{name}, {direction:?}: {median} of {ratios:?}");
        }
    }
}

#[test]
fn channel_without_errors_sees_no_retransmissions() {
    for direction in [Direction::Read, Direction::Write] {
        let result = copy(ClientConfig::new(Transport::Udp), direction, 0, 1);
        let ratio = result.first().ratio().expect("a floor");
        assert_eq!((result.first().client.retransmissions, result.net.lost), (0, 0));
        assert!(ratio < 1.1, "{direction:?}: {ratio} times the floor");
    }
}

/// The minimum RTT is kept for a minute. The client's own queue must not count as the path's RTT
/// after that.
#[test]
fn long_copy_without_errors_sees_no_retransmissions() {
    let fair = |delay_ms, duplex| remora_channel::Config {
        delay: Duration::from_millis(delay_ms),
        duplex,
        errors: ErrorModel::None,
        ..Default::default()
    };
    for channel in [fair(2, Duplex::Half), fair(300, Duplex::Full)] {
        for direction in [Direction::Read, Direction::Write] {
            let client = ClientConfig::new(Transport::Udp);
            let limit = Duration::from_secs(1000);
            let config =
                CopyConfig { channel: channel.clone(), bytes: 32 << 20, limit, ..CopyConfig::new(client, direction) };
            let result = copy::run(&config, 0).expect("a copy");
            let (first, name) = (result.first(), format!("{:?}, {direction:?}", channel.delay));
            assert_eq!(first.client.retransmissions, 0, "{name}");
            let ratio = first.ratio().expect("an end");
            assert!(ratio < 1.04, "{name}: {ratio}");
        }
    }
}

#[test]
fn channel_that_holds_frames_sees_few_probes() {
    for direction in [Direction::Read, Direction::Write] {
        for (bad_mean_ms, ratio_max, probes_max) in [(80, 1.07, 30), (500, 1.12, 90)] {
            let errors = ErrorModel::bursts(Duration::from_millis(bad_mean_ms));
            let channel = remora_channel::Config { errors, hold: true, ..Default::default() };
            let config = CopyConfig { channel, ..CopyConfig::new(ClientConfig::new(Transport::Udp), direction) };
            for seed in 0..4 {
                let result = copy::run(&config, seed).expect("a copy");
                let (ratio, counts) = (result.first().ratio().expect("a floor"), result.first().client);
                assert!(ratio < ratio_max, "{direction:?}, {bad_mean_ms} ms, seed {seed}: {ratio}");
                assert!(counts.probes < probes_max && counts.retransmissions <= 1, "{direction:?}: {counts:?}");
            }
        }
    }
}

/// A command's first calls go out with those that every copy makes; an upload's RENAME and SETATTR take a round trip.
#[test]
fn command_costs_one_round_trip_after_an_upload() {
    let far = |loss| {
        let (delay, duplex) = (Duration::from_millis(300), Duplex::Full);
        remora_channel::Config { delay, duplex, loss, ..Default::default() }
    };
    for (direction, more) in [(Direction::Read, 0.0), (Direction::Write, 0.6)] {
        let seconds = |manner, loss| {
            let run = |seed| {
                let config = CopyConfig {
                    channel: far(loss),
                    manner,
                    ..CopyConfig::new(ClientConfig::new(Transport::Udp), direction)
                };
                copy::run(&config, seed).expect("a copy").first().seconds.expect("an end")
            };
            if loss > 0.0 { median((0..30).map(run).collect()) } else { run(0) }
        };
        let [mounting, mounted, command] =
            [Manner::Mounting, Manner::Mounted, Manner::Command].map(|manner| seconds(manner, 0.0));
        assert!(mounting > mounted + 0.5, "{direction:?}: {mounting} s, {mounted} s");
        assert!((command - mounted - more).abs() < 0.05, "{direction:?}: {command} s, {mounted} s");
        let [mounted, command] = [Manner::Mounted, Manner::Command].map(|manner| seconds(manner, 0.02));
        assert!(command > mounted + more && command < mounted + more + 0.6, "{direction:?}: {command} s, {mounted} s");
    }
}

/// It has its name then, and is what it is to be ([`copy::run`] looks).
#[test]
fn command_completes_under_any_loss() {
    for direction in [Direction::Read, Direction::Write] {
        for (delay_ms, loss) in [(1, 0.2), (30, 0.2), (300, 0.2)] {
            let channel = remora_channel::Config { delay: Duration::from_millis(delay_ms), loss, ..Default::default() };
            let client = ClientConfig::new(Transport::Udp);
            let config =
                CopyConfig { channel, bytes: 20_000, manner: Manner::Command, ..CopyConfig::new(client, direction) };
            for seed in 0..50 {
                let result = copy::run(&config, seed).unwrap_or_else(|e| panic!("{direction:?}, seed {seed}: {e}"));
                assert!(result.first().seconds.is_some(), "{direction:?}, {delay_ms} ms, seed {seed}");
            }
        }
    }
}

#[test]
fn same_seed_gives_the_same_copy() {
    let again = |seed| copy(ClientConfig::new(Transport::Udp), Direction::Read, 80, seed);
    assert_eq!(again(3), again(3));
    assert_ne!(again(3).trace, again(4).trace);
}

#[test]
fn channel_with_total_loss_censors_the_copy() {
    let channel = remora_channel::Config { loss: 1.0, ..Default::default() };
    let client = ClientConfig { give_up: Some(Duration::from_secs(30)), ..ClientConfig::new(Transport::Udp) };
    let config = CopyConfig { channel, bytes: 1000, ..CopyConfig::new(client, Direction::Read) };
    assert!(matches!(copy::run(&config, 0), Err(CopyError::Failed(_))));
}

/// Where frames are lost one by one blocks are short, and each takes a time of its own that is many times what the
/// slowest hop needs for it: neither the pace nor a queue shows in any one round trip.
#[test]
fn jitter_does_not_slow_a_copy() {
    let ms = Duration::from_millis;
    for (delay, jitter, median_max) in [(ms(10), ms(3), 1.45), (ms(10), ms(10), 1.7), (ms(40), ms(20), 2.5)] {
        for direction in [Direction::Read, Direction::Write] {
            let channel = remora_channel::Config {
                rate: "20Mbit".parse().expect("a rate"),
                duplex: Duplex::Full,
                delay,
                jitter,
                loss: 0.05,
                ..Default::default()
            };
            let client = ClientConfig::new(Transport::Udp);
            let config = CopyConfig { channel, bytes: 8_000_000, ..CopyConfig::new(client, direction) };
            let (median, ratios) = median_ratio((0..5).map(|seed| copy::run(&config, seed).expect("a copy")));
            assert!(median < median_max, "{delay:?}, {jitter:?}, {direction:?}: {median} of {ratios:?}");
        }
    }
}
