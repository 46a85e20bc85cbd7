//! Random worlds of mounts: few here; the program `mount_swarm` runs thousands.

use remora_sim::mount::{crash_scenario, scenario};

#[test]
fn mounts_keep_their_promises_in_random_worlds() {
    let mut disk_bytes = 0;
    for seed in 0..100 {
        let outcome = scenario::run(seed);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        disk_bytes += outcome.disk_bytes;
    }
    assert!(disk_bytes > 100_000, "{disk_bytes} bytes come from disk caches");
}

#[test]
fn acknowledged_bytes_survive_crashes_of_the_mount() {
    let (mut crashes, mut kept) = (0, 0);
    for seed in 0..100 {
        let outcome = crash_scenario::run(seed);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        crashes += outcome.crashes;
        kept += outcome.kept;
    }
    // A file that was half rewritten in place is kept: nothing tells old bytes from those of somebody else.
    assert!(crashes > 100 && kept < crashes / 2, "{crashes} crashes, {kept} files kept");
}
