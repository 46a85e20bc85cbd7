//! What an object costs on a slow link beside its own bytes: full packets, one more for the rest,
//! and acknowledgements of what the receiver said about them.

mod session_world;

use std::time::Duration;

use remora_atp::Priority;
use remora_atp::session::{Config, Guests};
use remora_base::Time;
use session_world::{Link, World, config, object, options};

const SECOND: Duration = Duration::from_secs(1);
/// What QUIC and ATP put into a packet of objects, and what they leave free for an acknowledgement.
const HEADS: usize = 85;
/// A packet with nothing but an acknowledgement, or an end of an object that found no room.
const SMALL: usize = 36;
const SIZES: [usize; 9] = [1, 64, 1000, 1100, 1200, 4096, 5000, 16_384, 30_000];

/// The sizes of the datagrams that an object of `size` bytes takes on a link that is known and
/// carries datagrams of `largest` bytes, after so many others: the numbers of streams get longer.
fn datagrams(largest: u16, earlier: usize, size: usize) -> Vec<usize> {
    let mut world = World::new(1);
    for guests in [Guests::Anyone, Guests::Nobody] {
        let config = Config { guests, datagram: largest, datagram_max: 1452, ..config() };
        world.add(config, Link::new(100_000, Duration::from_millis(5)));
    }
    let peer = world.meet();
    for _ in 0..earlier {
        world.send(1, peer, object(0, 1), options(Priority::HIGH));
    }
    world.run_for(4 * SECOND);
    world.send(1, peer, object(0, 30_000), options(Priority::HIGH));
    world.run_for(2 * SECOND);
    // Beside some of them the link is probed.
    let taken = (0..4).map(|n| {
        world.nodes[1].capture = Some(Vec::new());
        world.send(1, peer, object(n, size), options(Priority::HIGH));
        world.run_for(SECOND / 2);
        assert_eq!(world.finals(1).len(), earlier + usize::from(n) + 2, "{size} bytes");
        let sent = world.nodes[1].capture.take().unwrap();
        sent.iter().map(|t| t.payload.len()).collect::<Vec<_>>()
    });
    taken.min_by_key(Vec::len).unwrap()
}

#[test]
fn object_takes_full_packets_only() {
    for (largest, earlier) in [(1200, 0), (1200, 70), (1452, 0), (1452, 70)] {
        for size in SIZES {
            let sent = datagrams(largest, earlier, size);
            let (small, full): (Vec<usize>, Vec<usize>) = sent.iter().partition(|len| **len <= SMALL);
            let most = (size + 5).div_ceil(usize::from(largest) - HEADS);
            // One for every second packet of the receiver's, which sends one for every second of ours at most.
            let few = full.len() <= most && small.len() <= most.div_ceil(2);
            assert!(few, "{size} bytes by {largest} after {earlier}, {most} packets: {sent:?}");
        }
    }
}

/// Packets come the later the longer it goes on: that is no reason to ask whether they do, and each
/// answer would be one more in front of them.
#[test]
fn slowing_link_gets_no_probes_and_few_reports() {
    let mut world = World::new(1);
    let fades = (0..20u32).map(|n| (Time::from_millis(500 * u64::from(n)), 14_000 - 500 * u64::from(n)));
    for (guests, rate) in [(Guests::Anyone, vec![(Time::ZERO, 14_000)]), (Guests::Nobody, fades.collect())] {
        let config = Config { guests, datagram: 1452, datagram_max: 1452, ..config() };
        world.add(config, Link { rate, ..Link::new(1, Duration::from_millis(5)) });
    }
    let peer = world.meet();
    world.send(1, peer, object(0, 4096), options(Priority::HIGH));
    world.run_for(SECOND);
    world.nodes[1].capture = Some(Vec::new());
    let objects = 6;
    for n in 0..objects {
        world.send(1, peer, object(n, 4096), options(Priority::HIGH));
        world.run_for(SECOND);
    }
    assert_eq!(world.finals(1).len(), usize::from(objects) + 1);
    let sent = world.nodes[1].capture.take().unwrap();
    let sent: Vec<usize> = sent.iter().map(|t| t.payload.len()).collect();
    let (small, full): (Vec<usize>, Vec<usize>) = sent.iter().partition(|len| **len <= SMALL);
    let objects = usize::from(objects);
    assert!(full.len() == 3 * objects && small.len() <= 2 * objects, "{objects} objects: {sent:?}");
}
