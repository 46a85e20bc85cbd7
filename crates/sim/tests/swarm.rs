//! Random worlds: few here, so that every build runs them; the `swarm` program runs thousands.

use remora_server::cache;
use remora_sim::Trace;
use remora_sim::swarm::scenario::{CacheChoice, Scenario};
use remora_sim::swarm::{self, Outcome};

fn run(seed: u64, choice: CacheChoice) -> Outcome {
    swarm::run(&Scenario::draw(seed, choice), seed, Trace::quiet())
}

/// Worlds with violations among the first `seeds`.
fn failures(seeds: u64, cache: cache::Config) -> usize {
    (0..seeds).filter(|seed| !run(*seed, CacheChoice::Always(cache)).violations.is_empty()).count()
}

#[test]
fn random_worlds_have_no_violations() {
    for seed in 0..12 {
        assert_eq!(run(seed, CacheChoice::Drawn).violations, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in 20..24 {
        let first = run(seed, CacheChoice::Drawn);
        assert_eq!(first, run(seed, CacheChoice::Drawn), "seed {seed}");
        assert_ne!(first.trace, run(seed + 1000, CacheChoice::Drawn).trace);
    }
}

/// The oracle must fail where no cache prevents repeated execution.
#[test]
fn oracle_finds_repeated_executions_of_old_caches() {
    let seeds = 6;
    assert!(failures(seeds, cache::Config::Off) >= 3);
    assert!(failures(seeds, cache::Config::reference()) >= 3);
    assert_eq!(failures(seeds, cache::Config::full()), 0);
}
