//! Random worlds whose machines work without the server, with and without crashes of the mounts. `mount_swarm` runs
//! thousands.

use remora_sim::mount::offline;
use remora_sim::mount::offline::scenario::{Crashes, Outcome};

/// Worlds beyond those that are run in a row, in which faults were found and mended: without crashes, and with them.
const MENDED: [&[u64]; 2] = [
    &[494, 607, 838, 849, 1016, 1110, 1182, 1188, 1215, 1339, 1574, 2557, 3717, 4062, 4283, 4486, 5965, 7423, 8659],
    &[
        90, 203, 247, 275, 277, 352, 505, 547, 633, 646, 652, 725, 784, 824, 829, 888, 943, 948, 954, 970, 972, 1165,
        1310, 1397, 2199, 2953, 3013, 4511, 4622, 4643, 4820, 5023, 6672, 8570,
    ],
];

/// Runs the worlds of `seeds`, which must keep all promises.
fn run(seeds: impl IntoIterator<Item = u64>, crashes: Crashes) -> Vec<Outcome> {
    let outcome = |seed| {
        let outcome = offline::run(seed, crashes);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        outcome
    };
    seeds.into_iter().map(outcome).collect()
}

#[test]
fn offline_changes_reach_the_server_in_random_worlds() {
    let outcomes = run(0..300, Crashes::None);
    let steps: u64 = outcomes.iter().map(|outcome| outcome.offline).sum();
    let conflicts: u64 = outcomes.iter().map(|outcome| outcome.conflicts).sum();
    assert!(steps > 5000 && conflicts > 0, "{steps} steps without the server, {conflicts} conflicts");
}

#[test]
fn offline_changes_survive_crashes_of_mounts_in_random_worlds() {
    let outcomes = run(0..80, Crashes::Some);
    let [kills, power_losses] =
        [|o: &Outcome| o.kills, |o: &Outcome| o.power_losses].map(|count| outcomes.iter().map(count).sum::<u64>());
    assert!(kills > 100 && power_losses > 50, "{kills} kills, {power_losses} losses of power");
    let halves: u64 = outcomes.iter().map(|outcome| outcome.halves).sum();
    assert!(halves <= 1, "{halves} files are in conflict with their own half");
}

#[test]
fn mended_faults_do_not_come_back() {
    for (seeds, crashes) in MENDED.into_iter().zip([Crashes::None, Crashes::Some]) {
        run(seeds.iter().copied(), crashes);
    }
}
