//! Paths that carry far larger datagrams than the Internet does: loopback, and Ethernet with frames of 9000 bytes.

mod session_world;

use std::time::Duration;

use remora_atp::session::{Config, Guests};
use remora_atp::{Options, Outcome};
use session_world::{Link, World, config, object};

/// Probes of the link were as large as the packets were, and the receiver ends a connection for DATAGRAM frames of more
/// than it has room for.
#[test]
fn the_link_is_probed_without_ending_the_connection() {
    for datagram in [1452, 4000, 8150, 8200, 8250, 8960, 16_000, 65_000] {
        let mut world = World::new(1);
        for guests in [Guests::Anyone, Guests::Nobody] {
            let config = Config { guests, datagram, datagram_max: datagram, ..config() };
            world.add(config, Link::new(1_000_000, Duration::from_millis(5)));
        }
        let peer = world.meet();
        // Requests that wait for the link to be faster than it seems are why pairs of packets ask.
        let wish = Options { deadline: Some(Duration::from_millis(1500)), ..Options::default() };
        let requests: Vec<_> = (0..4).map(|tag| world.send(1, peer, object(tag, 1_000_000), wish)).collect();
        let last = world.send(1, peer, object(9, 20_000), Options::default());
        world.run_for(Duration::from_secs(20));
        assert_eq!(world.outcome(1, last), Some(Outcome::Delivered), "{datagram}");
        assert!(requests.iter().all(|request| world.outcome(1, *request).is_some()), "{datagram}");
        assert!(world.is_up(1), "{datagram}");
    }
}
