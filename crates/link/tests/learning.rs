//! Links without a configured rate, over asymmetric and changing hops.

mod common;

use std::time::Duration;

use common::{Medium, World, label, packet};
use remora_base::{Rate, Time};
use remora_link::{Class, LinkConfig};

const MS: fn(u64) -> Duration = Duration::from_millis;
const KBIT: fn(u64) -> Rate = |kbit| Rate::from_bits(kbit * 1000).unwrap();

const SEEDS: std::ops::Range<u64> = 3..7;

/// A full-duplex hop with 25 ms one-way delay and a queue of 40 frames in each direction.
fn hop(kbit: u64, mobiles: usize) -> Medium {
    let mut medium = Medium::new(mobiles);
    (medium.rate, medium.half_duplex, medium.delay) = (KBIT(kbit), false, MS(25));
    medium.device_frames_max = 40;
    medium
}

fn learning(medium: Medium, seed: u64) -> World {
    World::new(&LinkConfig { rate: None, ..LinkConfig::default() }, medium, seed)
}

/// The throughput at station `at` of packets from `of` since `from`, in kbit/s.
fn carried(world: &World, at: usize, of: usize, from: Time) -> u64 {
    let since = world.delivered[at].iter().filter(|(t, who, _)| *t >= from && *who == of);
    since.map(|(_, _, p)| p.len() as u64 * 8).sum::<u64>() / world.now.since(from).as_millis() as u64
}

/// The acknowledgements wait behind the peer's full frames for much longer than the shortest RTT. A window of one RTT
/// would make the hop look slow.
#[test]
fn busy_reverse_direction_does_not_lower_rate() {
    for (back, there_least, back_least) in [(200, 1200, 120), (500, 1300, 300), (2000, 1500, 1500)] {
        let mut medium = hop(2000, 1);
        medium.rate_from = Some((1, KBIT(back)));
        let mut world = learning(medium, 3);
        let (mut down, mut up) = (0, 0);
        world.run(Time::from_secs(40), |w| {
            w.saturate(0, 1, 1, &mut down, 1400, 30);
            if w.now >= Time::from_secs(5) {
                w.saturate(1, 0, 2, &mut up, 1400, 30);
            }
        });
        let [there, back_got] = [(1, 0), (0, 1)].map(|(at, of)| carried(&world, at, of, Time::from_secs(15)));
        assert!(there >= there_least && back_got >= back_least, "{back} kbit/s back: {there} there, {back_got} back");
    }
}

/// Only acknowledgements are lost.
#[test]
fn lost_acks_do_not_lower_rate() {
    let of_seed = |seed| {
        let mut medium = hop(2000, 1);
        medium.loss_from = Some((0, 0.2));
        let (mut world, mut next) = (learning(medium, seed), 0);
        world.run(Time::from_secs(40), |w| w.saturate(1, 0, 1, &mut next, 1400, 30));
        carried(&world, 0, 1, Time::from_secs(10))
    };
    let runs: Vec<_> = SEEDS.map(of_seed).collect();
    let used = runs.iter().sum::<u64>() / runs.len() as u64;
    assert!(used >= 1400, "{used} kbit/s");
}

/// Delays of occasional packets next to a bulk flow, in order; `world` runs for `time`.
fn waits(world: &mut World, next: &mut u32, time: Duration) -> Vec<Duration> {
    let (from, until, mut calls) = (world.now, world.now + time, Vec::new());
    let first = *next;
    world.run(until, |w| {
        w.saturate(1, 0, 1, next, 1400, 30);
        if w.now >= from + MS(200) * calls.len() as u32 {
            w.send(1, 0, packet(2, first + calls.len() as u32, 84, Class::Default));
            calls.push(w.now);
        }
    });
    let answered = world.delivered[0].iter().map(|(at, _, p)| (*at, label(p)));
    let ours = answered.filter(|(_, (flow, n))| *flow == 2 && *n >= first);
    let mut waits: Vec<_> = ours.filter_map(|(at, (_, n))| Some(at.since(*calls.get((n - first) as usize)?))).collect();
    waits.sort();
    waits
}

/// The slow hop has a queue of five seconds.
#[test]
fn falling_and_rising_rate_is_learned() {
    for slow in [200, 1000] {
        let mut medium = hop(10_000, 1);
        medium.device_frames_max = 84;
        let (mut world, mut next) = (learning(medium, 3), 0);
        waits(&mut world, &mut next, Duration::from_secs(15));
        world.medium.rate = KBIT(slow);
        waits(&mut world, &mut next, Duration::from_secs(14));
        let late = waits(&mut world, &mut next, Duration::from_secs(25));
        let p50 = late[late.len() / 2];
        assert!(late.len() >= 110, "{} of 125 at {slow} kbit/s", late.len());
        let used = carried(&world, 0, 1, Time::from_secs(29));
        assert!(p50 <= MS(500), "{p50:?} at {slow} kbit/s");
        assert!(used >= slow * 8 / 10, "{used} of {slow} kbit/s");
        world.medium.rate = KBIT(10_000);
        let from = world.now + Duration::from_secs(10);
        let fast = waits(&mut world, &mut next, Duration::from_secs(20));
        let used = carried(&world, 0, 1, from);
        assert!(used >= 8500, "{used} of 10000 kbit/s after {slow}");
        assert!(fast[fast.len() / 2] <= MS(80), "{:?} after {slow}", fast[fast.len() / 2]);
    }
}

/// Acknowledgements delayed together arrive at once and show no rate.
#[test]
fn outage_of_one_mobile_does_not_raise_rate() {
    for seed in 0..4 {
        let mut medium = hop(2000, 4);
        (medium.one_device, medium.delay) = (true, MS(5));
        let (begins, ends) = (Time::from_secs(10), Time::from_secs(20));
        medium.bad[0] = vec![(begins, ends)];
        let mut world = learning(medium, seed);
        let (mut next, mut most) = (0, 0);
        world.run(Time::from_secs(60), |w| {
            (1..=4).for_each(|m| w.saturate(0, m, m as u32, &mut next, 1400, 30));
            most = most.max(w.links[0].snapshot().rate.map_or(0, |rate| rate.bits()));
        });
        let now = world.links[0].snapshot().rate.map_or(0, |rate| rate.bits());
        assert!(most <= 3_000_000, "seed {seed}: {most} bit/s");
        assert!((1_500_000..2_500_000).contains(&now), "seed {seed}: {now} bit/s");
    }
}

/// During the search the window is one frame, and no acknowledgement of the latest frames was requested.
#[test]
fn min_rtt_search_stops_no_flow() {
    for (kbit, mobiles) in [(4000, 1), (2000, 2)] {
        let (mut world, mut next) = (learning(hop(kbit, mobiles), 3), 0);
        world.run(Time::from_secs(70), |w| {
            (1..=mobiles).for_each(|m| w.saturate(0, m, m as u32, &mut next, 1400, 30));
        });
        let mut times: Vec<Time> = world.delivered[1..].iter().flatten().map(|(at, ..)| *at).collect();
        times.retain(|at| *at >= Time::from_secs(15));
        times.sort();
        let longest = times.windows(2).map(|pair| pair[1].since(pair[0])).max();
        assert!(
            longest.is_some_and(|gap| gap <= MS(150)),
            "{kbit} kbit/s, {mobiles} mobiles: nothing came for {longest:?}"
        );
    }
}
