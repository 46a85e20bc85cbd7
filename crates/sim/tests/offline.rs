//! Random worlds whose machines work without the server, with and without crashes of the mounts. `mount_swarm` runs
//! thousands, and finds faults that are still open (seeds 90, 203 and 247 of `--world offline-crash`).

use remora_sim::mount::offline;
use remora_sim::mount::offline::scenario::{Crashes, Outcome};

/// Runs the worlds of `seeds`, which must keep all promises.
fn run(seeds: u64, crashes: Crashes) -> Vec<Outcome> {
    let outcome = |seed| {
        let outcome = offline::run(seed, crashes);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        outcome
    };
    (0..seeds).map(outcome).collect()
}

#[test]
fn offline_changes_reach_the_server_in_random_worlds() {
    let outcomes = run(300, Crashes::None);
    let steps: u64 = outcomes.iter().map(|outcome| outcome.offline).sum();
    let conflicts: u64 = outcomes.iter().map(|outcome| outcome.conflicts).sum();
    assert!(steps > 5000 && conflicts > 0, "{steps} steps without the server, {conflicts} conflicts");
}

#[test]
fn offline_changes_survive_crashes_of_mounts_in_random_worlds() {
    let outcomes = run(80, Crashes::Some);
    let [kills, power_losses] =
        [|o: &Outcome| o.kills, |o: &Outcome| o.power_losses].map(|count| outcomes.iter().map(count).sum::<u64>());
    assert!(kills > 100 && power_losses > 50, "{kills} kills, {power_losses} losses of power");
}
