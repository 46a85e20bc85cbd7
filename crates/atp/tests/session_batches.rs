//! Packets that leave in one call and arrive in one: on fast links only, never more than the link
//! carries in a millisecond, and as good to the estimator as single ones.

mod session_world;

use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Event, PeerId};
use remora_atp::{Options, Outcome, Priority};
use session_world::{Link, World, object, options};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A pair on a link of `rate` bytes a second, with an object of `size` bytes under way for a while.
fn busy(seed: u64, rate: u64, coalesced: Duration, size: usize) -> (World, PeerId) {
    let mut world = World::pair(seed, Link::new(rate, 5 * MS));
    world.coalesced = coalesced;
    let peer = world.meet();
    world.send(1, peer, object(1, size), options(Priority::LOW));
    world.run_for(SECOND / 2);
    world.nodes[1].batches.clear();
    world.nodes[1].wire = (0, 0);
    world.run_for(SECOND / 10);
    (world, peer)
}

#[test]
fn fast_link_gets_batches_and_its_rate_is_measured() {
    // The rate, whether they arrive together, and the datagrams that leave together, at least and at most.
    let cases = [
        (250_000, Duration::ZERO, 1, 1),
        (1_000_000, Duration::ZERO, 1, 1),
        (8_000_000, Duration::ZERO, 5, 8),
        (8_000_000, MS / 2, 5, 8),
        (30_000_000, Duration::ZERO, 18, 26),
        (30_000_000, MS / 4, 18, 26),
    ];
    for (rate, coalesced, least, most) in cases {
        let (mut world, peer) = busy(1, rate, coalesced, rate as usize);
        let largest = world.nodes[1].batches.iter().max().copied().unwrap_or(0);
        assert!((least..=most).contains(&largest), "{rate} B/s, {coalesced:?}: {largest} at a time");
        let status = world.with(1, |e, _| e.status(peer)).unwrap();
        let estimate = status.forecast.rate.unwrap().bits() as f64 / 8.0 / rate as f64;
        assert!((0.9..1.1).contains(&estimate), "{rate} B/s, {coalesced:?}: {estimate} times as much is estimated");
        let sent = world.nodes[1].wire.0 as f64;
        assert!(sent > 0.08 * rate as f64, "{rate} B/s, {coalesced:?}: {sent} bytes in 0.1 s");
    }
}

#[test]
fn what_is_urgent_waits_for_no_more_than_a_batch() {
    let (mut world, peer) = busy(2, 10_000_000, Duration::ZERO, 10_000_000);
    let asked = world.now;
    world.send(1, peer, object(2, 400), options(Priority::HIGH));
    world.run_for(SECOND / 10);
    let came = world.nodes[0].events.iter().find_map(|(at, e)| match e {
        Event::Received { priority: Priority::HIGH, .. } => Some(*at),
        _ => None,
    });
    let took = came.unwrap().since(asked);
    // The way, what is on the wire, the quantum that is on its way there, and a batch.
    assert!(took < 5 * MS + 10 * MS, "{took:?}");
}

#[test]
fn objects_of_all_sizes_arrive_over_a_fast_lossy_link() {
    let link = Link { loss: 0.01, reorder: 0.02, jitter: MS, ..Link::new(20_000_000, MS) };
    let mut world = World::pair(3, link);
    world.coalesced = MS / 2;
    let peer = world.meet();
    world.send(1, peer, object(0, 2_000_000), Options::default());
    world.run_for(SECOND);
    // At and around whole numbers of packets.
    let sizes: Vec<usize> = (1..=12).flat_map(|n| [-40, -9, -1, 0, 1, 9].map(|d| (n * 1_150 + d) as usize)).collect();
    for (i, size) in sizes.iter().enumerate() {
        world.send(1, peer, object(i as u8 + 1, *size), Options::default());
    }
    let all = sizes.len() + 1;
    assert!(world.run_until(world.now + 20 * SECOND, |w| w.finals(1).len() == all), "{}", world.finals(1).len());
    assert!(world.finals(1).iter().all(|f| f.outcome == Outcome::Delivered));
    assert!(world.nodes[1].batches.iter().any(|n| *n > 1));
    let got: Vec<Bytes> = world.received(0).into_iter().map(|(_, o)| o).collect();
    for (i, size) in sizes.iter().enumerate() {
        assert!(got.contains(&object(i as u8 + 1, *size)), "the one of {size} bytes");
    }
}
