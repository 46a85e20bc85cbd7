//! The policies over a fluid link: the seven workloads of ATP 02 beside what a clairvoyant could
//! have delivered, and small random instances beside the optimum, found by trying all sets.
//!
//! `cargo test -p remora-atp --test scheduler_fluid -- --nocapture` prints both.

mod fluid;

use std::time::Duration;

use fluid::{Job, Link, ROWS, clairvoyant, fits, jobs, run};
use remora_atp::{Config, Policy, Priority};
use remora_base::{Rng, Time};

#[test]
fn the_remora_policy_delivers_what_a_clairvoyant_would() {
    let (link, config) = (Link::paper(), Config::default());
    println!("{:12} {:>24} {:>24} {:>24}", "low/med/high", "paper", "remora", "clairvoyant");
    for (name, rows) in ROWS.iter().copied().chain([("random", &[][..])]) {
        let jobs = jobs(rows, 0);
        let best = clairvoyant(&link, &jobs, &config);
        let tallies = [Policy::Paper, Policy::Remora].map(|policy| run(&link, &jobs, Config { policy, ..config }));
        let [paper, remora] = &tallies;
        let show = |d: &std::collections::BTreeMap<Priority, u64>| {
            [Priority::LOW, Priority::MEDIUM, Priority::HIGH].map(|p| d.get(&p).copied().unwrap_or(0))
        };
        let (p, r, c) = (show(&paper.delivered), show(&remora.delivered), show(&best));
        println!("{name:12} {:>24} {:>24} {:>24}", format!("{p:?}"), format!("{r:?}"), format!("{c:?}"));
        for tally in &tallies {
            assert_eq!(tally.finals, jobs.len() as u64, "{name}: one final upcall each");
            assert_eq!(tally.told, tally.finals - tally.rejected - tally.evicted - tally.expired, "{name}");
        }
        assert!(r[2] >= p[2] && r[2] as f64 >= 0.98 * c[2] as f64, "{name}, high: {r:?} {p:?} {c:?}");
        assert!(r[0] >= p[0] && r[0] as f64 >= 0.97 * c[0] as f64, "{name}, low: {r:?} {p:?} {c:?}");
        let bytes: u64 = jobs.iter().map(|j| j.size).sum();
        assert!(remora.wasted * 50 < bytes, "{name}: {} bytes of objects that were not delivered", remora.wasted);
    }
}

/// Of the small instances, bytes a second.
const RATE: f64 = 50e3;

/// About twice what the link can carry.
fn instance(seed: u64) -> Vec<Job> {
    let mut rng = Rng::stream(seed, "instance");
    let n = 4 + rng.below(5);
    let mut jobs: Vec<Job> = (0..n)
        .map(|_| Job {
            at: Time::from_millis(1000 + rng.below(2500)),
            size: 1000 + rng.below(50_000),
            priority: if rng.chance(0.5) { Priority::HIGH } else { Priority::LOW },
            deadline: Duration::from_millis(500 + rng.below(2500)),
        })
        .collect();
    jobs.sort_by_key(|j| j.at);
    jobs
}

/// The most high objects, and beside so many the most low ones.
fn optimum(link: &Link, jobs: &[Job], config: &Config) -> (u64, u64) {
    let sets = 0..1u32 << jobs.len();
    let best = sets.filter_map(|set| {
        let chosen = || jobs.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, j)| j);
        let high = chosen().filter(|j| j.priority == Priority::HIGH).count() as u64;
        let windows = chosen().map(|j| link.window(j, config)).collect();
        fits(windows).then_some((high, u64::from(set.count_ones()) - high))
    });
    best.max().unwrap_or_default()
}

#[test]
fn close_to_the_optimum_and_above_the_papers() {
    let (link, config) = (Link::steady(RATE), Config::default());
    let (mut best, mut remora, mut paper) = ((0, 0), (0, 0), (0, 0));
    for seed in 0..100 {
        let jobs = instance(seed);
        let add = |sum: &mut (u64, u64), high, low| *sum = (sum.0 + high, sum.1 + low);
        let (high, low) = optimum(&link, &jobs, &config);
        add(&mut best, high, low);
        for (policy, sum) in [(Policy::Remora, &mut remora), (Policy::Paper, &mut paper)] {
            let t = run(&link, &jobs, Config { policy, ..config });
            let count = |p| t.delivered.get(&p).copied().unwrap_or(0);
            assert!(count(Priority::HIGH) <= high, "{seed}: more than the optimum");
            add(sum, count(Priority::HIGH), count(Priority::LOW));
        }
    }
    println!("high, low: optimum {best:?}, remora {remora:?}, paper {paper:?}");
    assert!(remora.0 >= paper.0 && remora.1 >= paper.1, "{remora:?} {paper:?}");
    assert!(remora.0 as f64 >= 0.95 * best.0 as f64, "{remora:?} {best:?}");
}
