//! A megabyte through the papers' channel, by each kind of client: it arrives byte by byte, and
//! in a time that has a right relation to the floor.

use std::time::Duration;

use remora_channel::ErrorModel;
use remora_client::{Config, Transport};
use remora_sim::ServerConfig;
use remora_sim::copy::{self, CopyConfig, CopyError, CopyResult, Direction};

fn copy(client: Config, direction: Direction, bad_mean_ms: u64, seed: u64) -> CopyResult {
    let errors = ErrorModel::bursts(Duration::from_millis(bad_mean_ms));
    let channel = remora_channel::Config { errors, ..Default::default() };
    let config = CopyConfig { client, channel, server: ServerConfig::default(), direction, bytes: 1 << 20 };
    // The bytes are compared in there.
    copy::run(&config, seed).unwrap_or_else(|e| panic!("{direction:?}, seed {seed}: {e}"))
}

#[test]
fn every_client_copies_byte_for_byte() {
    for direction in [Direction::Read, Direction::Write] {
        // One retransmission lost in a burst costs a client with timeouts seconds; the adaptive
        // one waits for no timeout.
        let clients = [(Config::stock(), 20.0), (Config::paper(), 5.0), (Config::new(Transport::Udp), 1.3)];
        for (client, ratio_max) in clients {
            for seed in 0..2 {
                let result = copy(client.clone(), direction, 80, seed);
                let ratio = result.ratio().expect("the weather is not always bad");
                // Long datagrams beat the floor's headers by a few parts in a thousand.
                assert!((0.99..ratio_max).contains(&ratio), "{direction:?}, {:?}: {ratio}", client.retry);
                assert!(result.client.retransmissions > 0, "bursts lose something");
            }
        }
    }
}

#[test]
fn the_default_client_stays_close_to_the_floor() {
    for direction in [Direction::Read, Direction::Write] {
        for bad_mean_ms in [40, 80, 160] {
            let ratio = |seed| copy(Config::new(Transport::Udp), direction, bad_mean_ms, seed).ratio();
            let mut ratios: Vec<f64> = (0..11).filter_map(ratio).collect();
            ratios.sort_by(f64::total_cmp);
            let median = ratios[ratios.len() / 2];
            assert!(median < 1.13, "{direction:?}, {bad_mean_ms} ms: {median} of {ratios:?}");
        }
    }
}

#[test]
fn in_fair_weather_nothing_is_sent_twice() {
    for direction in [Direction::Read, Direction::Write] {
        let result = copy(Config::new(Transport::Udp), direction, 0, 1);
        let ratio = result.ratio().expect("a floor");
        assert_eq!((result.client.retransmissions, result.net.lost), (0, 0));
        assert!(ratio < 1.1, "{direction:?}: {ratio} times the floor");
    }
}

#[test]
fn a_copy_is_reproducible() {
    let again = |seed| copy(Config::new(Transport::Udp), Direction::Read, 80, seed);
    assert_eq!(again(3), again(3));
    assert_ne!(again(3).trace, again(4).trace);
}

#[test]
fn a_channel_that_loses_everything_is_an_error_and_no_hang() {
    let channel = remora_channel::Config { loss: 1.0, ..Default::default() };
    let client = Config { give_up: Some(Duration::from_secs(30)), ..Config::new(Transport::Udp) };
    let server = ServerConfig::default();
    let config = CopyConfig { client, channel, server, direction: Direction::Read, bytes: 1000 };
    assert!(matches!(copy::run(&config, 0), Err(CopyError::Failed(_))));
}
