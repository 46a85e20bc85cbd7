//! Random worlds of mounts: few here; the program `mount_swarm` runs thousands.

use remora_sim::mount::scenario;

#[test]
fn mounts_keep_their_promises_in_random_worlds() {
    for seed in 0..100 {
        let outcome = scenario::run(seed);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
    }
}
