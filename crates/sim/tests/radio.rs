//! The radio with several mobiles, the link protocol, hand-offs and outages: exact copies,
//! reproducible runs, and the benefits of each mechanism.

use std::time::Duration;

use remora_base::{Rate, Time};
use remora_channel::{Duplex, ErrorModel, Outage};
use remora_client::{ClientConfig, Transport};
use remora_sim::PacketKind;
use remora_sim::copy::small::{self, SmallConfig};
use remora_sim::copy::{self, CopyConfig, CopyResult, Direction, HandOff, SWITCH_NOTICE};
use remora_sim::saturation::{self, SaturationConfig};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn bursts(direction: Direction, bad_mean: Duration) -> CopyConfig {
    let channel = remora_channel::Config { errors: ErrorModel::bursts(bad_mean), ..Default::default() };
    CopyConfig { channel, bytes: 256 << 10, ..CopyConfig::new(ClientConfig::new(Transport::Udp), direction) }
}

fn run(config: &CopyConfig, seed: u64) -> CopyResult {
    // `copy::run` compares the bytes.
    copy::run(config, seed).unwrap_or_else(|e| panic!("{:?}, seed {seed}: {e}", config.direction))
}

fn with_and_without_link(config: CopyConfig) -> [CopyConfig; 2] {
    [config.clone(), config.with_link()]
}

#[test]
fn same_seed_gives_the_same_run_with_and_without_link() {
    for direction in [Direction::Read, Direction::Write] {
        let mobiles = CopyConfig { mobiles: 3, progress: true, ..bursts(direction, ms(80)) };
        for config in with_and_without_link(mobiles) {
            let first = run(&config, 5);
            assert_eq!(first, run(&config, 5));
            assert_ne!(first.trace, run(&config, 6).trace);
        }
    }
}

#[test]
fn every_client_copies_byte_for_byte_over_the_link() {
    for (client, ratio_max) in
        [(ClientConfig::stock(), 1.40), (ClientConfig::paper(), 1.43), (ClientConfig::new(Transport::Udp), 1.56)]
    {
        for direction in [Direction::Read, Direction::Write] {
            for (bad_mean, loss) in [(0, 0.0), (160, 0.0), (0, 0.1), (80, 0.05)] {
                let mut config = CopyConfig { client: client.clone(), ..bursts(direction, ms(bad_mean)) };
                config.channel.loss = loss;
                let copy = &run(&config.with_link(), 1).copies[0];
                assert!(copy.ratio().is_some_and(|r| r < ratio_max), "{direction:?}, {bad_mean} ms, {loss}: {copy:?}");
            }
        }
    }
}

#[test]
fn client_over_the_link_is_near_the_floor() {
    for (bad_mean, ratio_max) in [(0, 1.13), (80, 1.16), (160, 1.18), (500, 1.20)] {
        for direction in [Direction::Read, Direction::Write] {
            let config = CopyConfig { bytes: 1 << 20, ..bursts(direction, ms(bad_mean)) }.with_link();
            let ratio = |seed| run(&config, seed).copies[0].ratio().expect("done");
            let mut ratios: Vec<f64> = (0..5).map(ratio).collect();
            ratios.sort_by(f64::total_cmp);
            assert!(ratios[2] < ratio_max, "{direction:?}, bad mean {bad_mean} ms: {ratios:?}");
        }
    }
}

#[test]
fn mobiles_share_the_medium() {
    for config in with_and_without_link(bursts(Direction::Write, ms(40))) {
        let alone = run(&config, 2).copies[0].seconds.expect("done");
        let both = run(&CopyConfig { mobiles: 2, ..config }, 2);
        for copy in &both.copies {
            let seconds = copy.seconds.expect("done");
            assert!((1.6 * alone..2.6 * alone).contains(&seconds), "{seconds} s, {alone} s alone");
        }
    }
}

#[test]
fn copy_beyond_the_limit_is_censored() {
    let config = CopyConfig { limit: ms(500), ..bursts(Direction::Read, ms(0)) };
    let copy = &run(&config, 0).copies[0];
    assert_eq!((copy.seconds, copy.ratio()), (None, None));
    let moved = copy.progress.last().expect("half a second's worth").1;
    assert!((20_000..70_000).contains(&moved), "{moved} bytes");
}

/// The link keeps the packets in flight (20 s) or not; kept probes must not go first.
#[test]
fn bytes_flow_soon_after_an_outage() {
    for (direction, length) in
        [Direction::Read, Direction::Write].into_iter().flat_map(|d| [2, 10, 20, 30].map(|s| (d, s)))
    {
        let mut config = bursts(direction, ms(0));
        let outage = Outage { start: Time::from_secs(1), length: Duration::from_secs(length) };
        config.channel.outages.push(outage);
        for config in with_and_without_link(config) {
            let has_link = config.link.is_some();
            let copy = &run(&config, 3).copies[0];
            let end = outage.start + outage.length;
            let after = copy.first_bytes_after(end).expect("it goes on");
            let block = copy.first_confirmed_after(end).expect("it goes on");
            assert!(after < ms(200), "{direction:?}, {length} s, link: {has_link}: {after:?}");
            assert!(block < ms(400), "{direction:?}, {length} s, link: {has_link}: a whole block {block:?}");
            assert_eq!(copy.first_bytes_after(Time::from_secs(1000)), None);
        }
    }
}

/// An outage before the link knows its rate must not enter its estimate (copies took 1.3 times the
/// floor).
#[test]
fn outage_at_start_does_not_count_as_slow_link() {
    for (direction, start_ms) in
        [Direction::Read, Direction::Write].into_iter().flat_map(|d| [200, 300, 400].map(|ms| (d, ms)))
    {
        let mut config = bursts(direction, ms(0));
        config.channel.outages.push(Outage { start: Time::from_millis(start_ms), length: Duration::from_secs(9) });
        for config in with_and_without_link(config) {
            let has_link = config.link.is_some();
            let ratio = run(&config, 3).copies[0].ratio().expect("done");
            assert!(ratio < 1.06, "{direction:?}, from {start_ms} ms, link: {has_link}: {ratio}");
        }
    }
}

/// A block of 16 KiB never fits a queue of ten frames, and independent losses of a window's share
/// resemble an overflow. Maximum times, in floors.
#[test]
fn copy_completes_with_short_queues_and_many_losses() {
    for (queue, loss, ratio_max) in [(10, 0.0, 2.6), (200, 0.2, 2.7)] {
        for direction in [Direction::Read, Direction::Write] {
            let channel = remora_channel::Config {
                duplex: Duplex::Full,
                rate: Rate::mbit(20),
                delay: ms(20),
                queue_frames: queue,
                loss,
                ..Default::default()
            };
            let config = CopyConfig {
                channel,
                bytes: 4_000_000,
                ..CopyConfig::new(ClientConfig::new(Transport::Udp), direction)
            };
            let ratio = run(&config, 1).copies[0].ratio();
            assert!(ratio.is_some_and(|r| r < ratio_max), "{direction:?}, {queue}, {loss}: {ratio:?}");
        }
    }
}

#[test]
fn announced_hand_off_costs_less() {
    for direction in [Direction::Read, Direction::Write] {
        for plain in with_and_without_link(bursts(direction, ms(0))) {
            let has_link = plain.link.is_some();
            let switched = |signalled: bool, seed: u64| {
                let at = Time::from_millis(900 + 37 * seed);
                let handoff = HandOff { at, length: Duration::from_secs(1), signalled };
                let copy = run(&CopyConfig { handoffs: vec![handoff], ..plain.clone() }, seed).copies.remove(0);
                // Packets kept by the link are not retransmitted.
                assert!(!has_link || copy.client.retransmissions == 0, "{direction:?}, seed {seed}: {:?}", copy.client);
                copy.seconds.expect("done")
            };
            let seeds = 0..8;
            let [told, untold] =
                [true, false].map(|signalled| seeds.clone().map(|s| switched(signalled, s)).sum::<f64>());
            // A link detects the end of a hand-off within 20 ms by itself, and loses nothing: the
            // announcement costs it the time between notice and start.
            let notice = if has_link { SWITCH_NOTICE.as_secs_f64() * 8.0 } else { 0.0 };
            assert!(told < untold + notice, "{direction:?}, link: {has_link}: {told} s told, {untold} s untold");
        }
    }
}

#[test]
fn packet_log_has_calls_by_number() {
    let config = CopyConfig { progress: true, ..bursts(Direction::Read, ms(160)) };
    let copy = &run(&config, 4).copies[0];
    let count = |kind| copy.packets.iter().filter(|p| p.kind == kind).count() as u64;
    assert_eq!(count(PacketKind::Retransmission), copy.client.retransmissions);
    assert_eq!(count(PacketKind::Probe), copy.client.probes);
    assert_eq!(count(PacketKind::Call), copy.client.requests);
    assert!(copy.packets.is_sorted_by_key(|p| p.at));
}

#[test]
fn small_files_are_saved_during_bulk_copy() {
    for own_client in [false, true] {
        for commit in [false, true] {
            let bulk = bursts(Direction::Write, ms(40));
            let config = SmallConfig { own_client, commit, ..SmallConfig::under(bulk) };
            // `small::run` compares their bytes.
            let result = small::run(&config, 7).expect("everything is answered");
            assert!(result.latencies.len() > 4, "a file each 300 ms for some seconds");
            assert!(result.latencies.iter().all(|l| l.is_some_and(|l| l > ms(8) && l < ms(4000))), "{result:?}");
            assert_eq!(result, small::run(&config, 7).expect("the same again"));
        }
    }
}

/// The 95th percentile of the small files' latencies in a run, in seconds.
fn late(config: &SmallConfig, seed: u64) -> f64 {
    let result = small::run(config, seed).expect("everything is answered");
    let mut latencies: Vec<Duration> = result.latencies.iter().map(|l| l.expect("done by the limit")).collect();
    latencies.sort();
    latencies[(latencies.len() * 95).div_ceil(100) - 1].as_secs_f64()
}

/// A small file saved during a 1 MiB write takes at most 0.4 s: the median over ten seeds of a
/// run's 95th percentile. docs/results/wireless.md has the exceptions.
#[test]
fn small_files_during_bulk_copy_take_at_most_400_ms() {
    // A second client on the same mobile or the same one, with the link or without, and the bad
    // mean.
    for (own_client, has_link, bad_mean_ms) in [
        (false, false, 0),
        (false, true, 0),
        (false, false, 80),
        (false, false, 160),
        (true, false, 0),
        (true, true, 0),
        (true, true, 80),
        (true, true, 160),
    ] {
        let bulk = CopyConfig { bytes: 1 << 20, ..bursts(Direction::Write, ms(bad_mean_ms)) };
        let bulk = if has_link { bulk.with_link() } else { bulk };
        let config = SmallConfig { own_client, ..SmallConfig::under(bulk) };
        let mut late: Vec<f64> = (1..=10).map(|seed| late(&config, seed)).collect();
        late.sort_by(f64::total_cmp);
        let median = (late[4] + late[5]) / 2.0;
        assert!(median <= 0.4, "second: {own_client}, link: {has_link}, {bad_mean_ms} ms: {median}, of {late:?}");
    }
}

#[test]
fn saturated_link_is_used_and_shared() {
    let channel = remora_channel::Config { errors: ErrorModel::bursts(ms(160)), ..Default::default() };
    let link = copy::link_on(&channel);
    let config = SaturationConfig { channel, link, destinations: 4, good: 1, length: Duration::from_secs(10) };
    let result = saturation::run(&config, 1).expect("a valid channel");
    assert!((0.7..0.96).contains(&result.utilisation), "{result:?}");
    assert!((0..4).all(|mobile| (0.15..0.4).contains(&result.share(mobile))), "{result:?}");
    assert_eq!(result, saturation::run(&config, 1).expect("the same again"));
}

/// Eight saturated mobiles for `length`.
fn eight(bad_mean: Duration, length: Duration, seed: u64) -> f64 {
    let channel = remora_channel::Config { errors: ErrorModel::bursts(bad_mean), ..Default::default() };
    let link = copy::link_on(&channel);
    let config = SaturationConfig { channel, link, destinations: 8, good: 0, length };
    saturation::run(&config, seed).expect("a valid channel").utilisation
}

/// The targets for eight destinations.
#[test]
fn eight_destinations_use_the_channel() {
    for (bad, least) in [(40, 0.86), (160, 0.83), (500, 0.82)] {
        for seed in [1, 101] {
            let used = eight(ms(bad), Duration::from_secs(30), seed);
            assert!(used >= least, "bad mean {bad} ms, seed {seed}: {used:.3}");
        }
    }
}

/// Frames that the base does not hear take the medium, too; their remains must not accumulate in
/// the base's device queue.
#[test]
fn eight_destinations_use_the_channel_after_minutes() {
    let used = eight(ms(500), Duration::from_secs(300), 2);
    assert!(used >= 0.82, "{used:.3}");
}

/// More files become due in an outage than may be in progress: all count, from their due times.
#[test]
fn small_files_beyond_limit_wait_and_count() {
    let mut bulk = bursts(Direction::Write, ms(0));
    bulk.channel.outages = vec![Outage { start: Time::ZERO + ms(1000), length: ms(4000) }];
    let config = SmallConfig { every: ms(20), own_client: true, ..SmallConfig::under(bulk) };
    let result = small::run(&config, 1).unwrap();
    let held = result.latencies.iter().flatten().filter(|latency| **latency > ms(1500)).count();
    assert!(held > 100, "{held} of {}", result.latencies.len());
}
