//! Ways that become long and short again while packets are on them.

mod common;

use std::time::Duration;

use common::{Medium, World};
use remora_base::{Rate, Time};
use remora_link::{Config, Duplex};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// What part of the hop is put to use in the next `seconds` seconds.
fn used(world: &mut World, next: &mut u32, seconds: u64) -> f64 {
    let bytes = |w: &World| w.delivered[1].iter().map(|(_, _, p)| p.len()).sum::<usize>();
    let before = bytes(world);
    let until = world.now + Duration::from_secs(seconds);
    world.run(until, |w| w.saturate(0, 1, 1, next, 1400, 4));
    (bytes(world) - before) as f64 * 8.0 / 1e6 / seconds as f64
}

#[test]
fn a_way_may_become_long_and_short_again() {
    for (duplex, loss, least) in [(Duplex::Full, 0.0, 0.85), (Duplex::Half, 0.0, 0.85), (Duplex::Full, 0.02, 0.75)] {
        let rate = Some(Rate::mbit(1));
        let mut medium = Medium::new(1);
        (medium.half_duplex, medium.loss) = (duplex == Duplex::Half, loss);
        let mut world = World::new(&Config { rate, duplex, ..Config::default() }, medium, 7);
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

/// While the other direction is heard each frame of it makes the destination good for a moment, and
/// the probes that follow fill the log of transmissions: data must not be forgotten with it.
#[test]
fn a_direction_comes_back_after_an_outage_of_its_own() {
    let rate = Some(Rate::mbit(10));
    let mut medium = Medium::new(1);
    (medium.half_duplex, medium.rate) = (false, Rate::mbit(10));
    let end = Time::from_secs(22);
    medium.mute = Some((0, Time::from_secs(3), end));
    let mut world = World::new(&Config { rate, duplex: Duplex::Full, ..Config::default() }, medium, 7);
    let (mut down, mut up) = (0, 0);
    let both = |w: &mut World| {
        w.saturate(0, 1, 1, &mut down, 1400, 30);
        w.saturate(1, 0, 1, &mut up, 1400, 30);
    };
    world.run(end + Duration::from_secs(5), both);
    let after = world.delivered[1].iter().filter(|(t, _, _)| *t >= end).count();
    // 10 Mbit/s carry 4300 of these in 5 s.
    assert!(after > 3000, "{after} packets in 5 s");
}
