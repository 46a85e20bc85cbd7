//! Many bad networks, each from its seed; see `session_world/swarm.rs`. More of them, in release:
//! `cargo run --release -p remora-atp --example session_swarm -- 2000`.

mod session_world;

use proptest::prelude::*;
use session_world::swarm;

#[test]
fn objects_come_once_and_whole_whatever_the_network_does() {
    let tallies: Vec<_> = (0..40).map(swarm::run).collect();
    let delivered: usize = tallies.iter().map(|t| t.delivered).sum();
    assert!(delivered > 100, "a swarm that does nothing proves nothing: {delivered}");
}

/// Here the answer to a question was itself sent round, and then every packet, for they came seldom.
#[test]
fn moved_client_with_rare_packets_is_found_again() {
    swarm::run(7_023_279_166_865_090_377);
}

/// Here a probe waited for retransmissions that the gate held back for seconds, so that the peer seemed not to
/// answer, and what left when the gate opened was taken to be in vain: again and again.
#[test]
fn a_probe_does_not_wait_for_retransmissions() {
    swarm::run(500_000_392_547);
}

#[test]
fn a_seed_replays_to_the_packet() {
    assert_eq!(swarm::run(3), swarm::run(3));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn any_seed_will_do(seed: u64) {
        swarm::run(seed);
    }
}
