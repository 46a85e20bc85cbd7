//! Paths whose RTT, rate or loss changes, and extreme paths.

mod common;

use std::time::Duration;

use common::{Medium, World, label, packet};
use remora_base::{Rate, Time};
use remora_link::{ArqMode, Class, Duplex, LinkConfig};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn bytes(world: &World) -> usize {
    world.delivered[1].iter().map(|(_, _, packet)| packet.len()).sum()
}

/// The utilisation of the hop in the next `seconds` seconds.
fn used(world: &mut World, next: &mut u32, seconds: u64) -> f64 {
    let before = bytes(world);
    let until = world.now + Duration::from_secs(seconds);
    world.run(until, |w| w.saturate(0, 1, 1, next, 1400, 4));
    (bytes(world) - before) as f64 * 8.0 / 1e6 / seconds as f64
}

#[test]
fn rtt_change_keeps_hop_utilised() {
    for (duplex, loss, least) in [(Duplex::Full, 0.0, 0.85), (Duplex::Half, 0.0, 0.85), (Duplex::Full, 0.02, 0.75)] {
        let rate = Some(Rate::mbit(1));
        let mut medium = Medium::new(1);
        (medium.half_duplex, medium.loss) = (duplex == Duplex::Half, loss);
        let mut world = World::new(&LinkConfig { rate, duplex, ..LinkConfig::default() }, medium, 7);
        let mut next = 0;
        for delay in [2, 300, 2, 100, 300] {
            world.medium.delay = MS(delay);
            used(&mut world, &mut next, 3);
            let used = used(&mut world, &mut next, 12);
            assert!(used >= least, "{duplex:?}, loss {loss}: {used:.2} used at {delay} ms one way");
        }
        assert!(world.device_max <= 45, "{} frames in the device", world.device_max);
    }
}

/// While the other direction works, each frame from it makes the destination good for a moment, and the probes that
/// follow fill the log of transmissions. DATA must not be dropped with it.
#[test]
fn one_way_outage_loses_no_data() {
    let rate = Some(Rate::mbit(10));
    let mut medium = Medium::new(1);
    (medium.half_duplex, medium.rate) = (false, Rate::mbit(10));
    let end = Time::from_secs(22);
    medium.mute = Some((0, Time::from_secs(3), end));
    let mut world = World::new(&LinkConfig { rate, duplex: Duplex::Full, ..LinkConfig::default() }, medium, 7);
    let (mut down, mut up) = (0, 0);
    let both = |w: &mut World| {
        w.saturate(0, 1, 1, &mut down, 1400, 30);
        w.saturate(1, 0, 1, &mut up, 1400, 30);
    };
    world.run(end + Duration::from_secs(5), both);
    let after = world.delivered[1].iter().filter(|(t, _, _)| *t >= end).count();
    // 10 Mbit/s carry 4300 of these packets in 5 s.
    assert!(after > 3000, "{after} packets in 5 s");
}

/// The sender keeps probing until half of the stamps on the wire are used. Later losses are still found at once.
#[test]
fn long_one_way_outage_keeps_loss_detection() {
    let rate = Some(Rate::mbit(10));
    let mut medium = Medium::new(1);
    (medium.half_duplex, medium.rate) = (false, Rate::mbit(10));
    let end = Time::from_secs(283);
    medium.mute = Some((0, Time::from_secs(3), end));
    let mut world = World::new(&LinkConfig { rate, duplex: Duplex::Full, ..LinkConfig::default() }, medium, 7);
    let (mut n, mut up) = (0, 0);
    let mut go = |w: &mut World, until: Time| {
        while w.now < until {
            w.send(0, 1, packet(1, n, 200, Class::Default));
            w.run(w.now + MS(100), |w| w.saturate(1, 0, 1, &mut up, 1400, 30));
            n += 1;
        }
    };
    go(&mut world, end);
    let stats = world.view(0, 1).stats;
    assert!((33_000..65_000).contains(&(stats.data_frames + stats.rts)), "{stats:?}");
    world.medium.loss_from = Some((0, 0.02));
    go(&mut world, end + Duration::from_secs(30));
    let sent_at = |packet: &[u8]| Time::ZERO + MS(100) * label(packet).1;
    let waits = world.delivered[1].iter().map(|(at, _, p)| (sent_at(p), *at)).filter(|(sent, _)| *sent >= end);
    let waits: Vec<Duration> = waits.map(|(sent, at)| at.since(sent)).collect();
    let longest = waits.iter().max();
    assert!(
        waits.len() >= 295 && longest.is_some_and(|wait| *wait <= MS(600)),
        "{} of 300 in {longest:?}",
        waits.len()
    );
}

/// Throughput in Mbit/s over a hop of `mbit` Mbit/s with an RTT of `trip`.
fn carried(mode: ArqMode, mbit: u64, trip: Duration, loss: f64) -> f64 {
    let mut medium = Medium::new(1);
    (medium.rate, medium.half_duplex, medium.delay, medium.loss) = (Rate::mbit(mbit), false, trip / 2, loss);
    let config = LinkConfig { rate: Some(medium.rate), duplex: Duplex::Full, mode, ..LinkConfig::default() };
    let (len, mut next, mut world) = (config.packet_max(), 0, World::new(&config, medium, 7));
    let mut used = |time: Duration| {
        let (before, until) = (bytes(&world), world.now + time);
        world.run(until, |w| w.saturate(0, 1, 1, &mut next, len, 12));
        (bytes(&world) - before) as f64 * 8.0 / 1e6 / time.as_secs_f64()
    };
    used(trip * 10);
    used(trip * 20)
}

/// A lost frame holds the window for two RTTs, a lost retransmission for three.
#[test]
fn long_or_fast_path_is_utilised() {
    for (mbit, trip, loss) in [(10, 600, 0.0), (10, 600, 0.02), (20, 80, 0.02), (100, 20, 0.0), (100, 20, 0.01)] {
        let [with, without] = [ArqMode::Arq, ArqMode::None].map(|mode| carried(mode, mbit, MS(trip), loss));
        let least = if loss > 0.0 { without } else { mbit as f64 } * 0.9;
        assert!(with >= least, "{mbit} Mbit/s, {trip} ms, {loss} lost: {with:.1}, {without:.1} without retransmission");
    }
}

/// [`LinkConfig::window_rate`] bounds the throughput over longer paths.
#[test]
fn window_rate_bounds_throughput() {
    let config = LinkConfig::default();
    let carries = |config: &LinkConfig, trip| config.window_rate(MS(trip)).map(|rate| rate.bits() / 1_000_000);
    assert_eq!(carries(&config, 600), Some(40));
    assert_eq!(carries(&config, 20), Some(1214));
    assert_eq!(carries(&LinkConfig { window_frames: 1, ..config.clone() }, 12), Some(1));
    // An acknowledgement fits in a frame.
    assert_eq!(carries(&LinkConfig { mtu: 128, ..config.clone() }, 100), Some(13));
    assert_eq!(carries(&LinkConfig { mode: ArqMode::None, ..config.clone() }, 600), None);
    assert_eq!(carries(&config, 0), None);
}

/// Such a hop acknowledges like a good one. A bad hop loses long frames too, but not all of them.
#[test]
fn hop_without_long_frames_is_detected() {
    for (longest, loss, bad, noticed) in
        [(1230, 0.0, 0, true), (1230, 0.1, 0, true), (usize::MAX, 0.4, 0, false), (usize::MAX, 0.05, 500, false)]
    {
        let until = Time::from_secs(30);
        let mut medium = Medium::new(1).with_weather(MS(bad), 3, until);
        (medium.longest, medium.loss) = (longest, loss);
        let mut world = World::new(&LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() }, medium, 3);
        let (mut long, mut short, mut most) = (0, 0, 0);
        world.run(until, |w| {
            w.saturate(0, 1, 1, &mut long, 1400, 2);
            w.saturate(0, 1, 2, &mut short, 100, 2);
            most = most.max(w.view(0, 1).stats.long_lost);
        });
        assert_eq!(most >= 24, noticed, "{longest}, loss {loss}, bad mean {bad} ms: {most} answers in a row");
    }
}

/// A half-duplex hop of `bits` bits a second with 50 ms one-way delay.
fn slow(bits: u64, is_told: bool) -> World {
    let mut medium = Medium::new(1);
    (medium.rate, medium.delay) = (Rate::from_bits(bits).unwrap(), MS(50));
    World::new(&LinkConfig { rate: is_told.then_some(medium.rate), ..LinkConfig::default() }, medium, 7)
}

/// Sends a packet of 84 bytes each second and an echo of each; returns the echoes received within their second.
fn echoes(world: &mut World, seconds: u32) -> u32 {
    let mut echoes = 0;
    for n in 0..seconds {
        world.send(0, 1, packet(1, n, 84, Class::Default));
        let is_there = |w: &World, at: usize| w.delivered[at].iter().rev().any(|(_, _, p)| label(p) == (1, n));
        let mut is_sent_back = false;
        world.run(world.now + MS(1000), |w| {
            if !is_sent_back && is_there(w, 1) {
                is_sent_back = true;
                w.send(1, 0, packet(1, n, 84, Class::Default));
            }
        });
        echoes += u32::from(is_there(world, 0));
    }
    echoes
}

/// A probe takes far more airtime there than elsewhere. While the rate is unknown, frequent probes would fill the hop
/// before the first reply.
#[test]
fn probes_do_not_fill_slow_hop_of_unknown_rate() {
    for bits in [9600, 19_200] {
        let mut world = slow(bits, false);
        let echoes = echoes(&mut world, 30);
        assert!(echoes >= 29, "{echoes} of 30 at {bits} bit/s");
        let probes = world.view(0, 1).stats.rts + world.view(1, 0).stats.rts;
        assert!(probes <= 30, "{probes} probes at {bits} bit/s");
        for len in [1400, 4000] {
            let (mut world, mut next) = (slow(bits, false), 0);
            world.run(Time::from_secs(40), |w| w.saturate(0, 1, 1, &mut next, len, 4));
            let used = bytes(&world) as f64 * 8.0 / bits as f64 / 40.0;
            assert!(used >= 0.75, "{used:.2} of {bits} bit/s used with packets of {len} bytes");
        }
    }
}

/// The airtime of a full frame exceeds the lifetime of an interactive packet.
#[test]
fn interactive_packets_cross_busy_slow_hop() {
    for bits in [9600, 19_200] {
        let (mut world, mut next) = (slow(bits, true), 0);
        for n in 0..60 {
            world.send(0, 1, packet(2, n, 84, Class::Interactive));
            world.send(1, 0, packet(2, n, 84, Class::Interactive));
            world.run(world.now + MS(1000), |w| w.saturate(0, 1, 1, &mut next, 1400, 4));
        }
        let [there, back] = [1, 0].map(|at| world.labels(at).iter().filter(|(flow, _)| *flow == 2).count());
        assert!(there >= 50 && back >= 50, "{there} there, {back} back of 60, at {bits} bit/s");
    }
}
