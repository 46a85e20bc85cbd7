//! Random worlds whose machines work without the server: few here. `mount_swarm --world offline` runs thousands, and
//! finds a fault that is still open (seed 271).

use remora_sim::mount::offline;
use remora_sim::mount::offline::scenario::Crashes;

#[test]
fn offline_changes_reach_the_server_in_random_worlds() {
    let (mut steps, mut conflicts) = (0, 0);
    for seed in 0..60 {
        let outcome = offline::run(seed, Crashes::None);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        steps += outcome.offline;
        conflicts += outcome.conflicts;
    }
    assert!(steps > 1000 && conflicts > 0, "{steps} steps without the server, {conflicts} conflicts");
}
