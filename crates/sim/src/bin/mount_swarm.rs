//! `mount_swarm`: runs many random worlds of mounts, and prints the seeds that failed.

mod seeds;

use std::process::ExitCode;

use clap::Parser;
use remora_sim::mount::scenario::{self, Outcome, Scenario};

/// Runs mounts before one server in worlds drawn from seeds, checked against models of the files. For each failing
/// seed it prints the command that reproduces it.
#[derive(Parser)]
#[command(name = "mount_swarm")]
struct Args {
    #[command(flatten)]
    seeds: seeds::Flags,
}

fn main() -> ExitCode {
    let Args { seeds } = Args::parse();
    match seeds.repro {
        Some(seed) => repro(seed),
        None => seeds::run(seeds, Mounts),
    }
}

fn repro(seed: u64) -> ExitCode {
    seeds::say(format_args!("{:#?}", Scenario::draw(seed)));
    let outcome = scenario::run(seed);
    seeds::say(format_args!("{outcome:#?}"));
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Worlds of mounts.
struct Mounts;

#[derive(Default)]
struct Totals {
    operations: u64,
    killed: u64,
    repeated: u64,
}

impl seeds::Worlds for Mounts {
    type Outcome = Outcome;
    type Totals = Totals;

    fn run(&self, seed: u64) -> Outcome {
        scenario::run(seed)
    }

    fn violations(outcome: &Outcome) -> &[String] {
        &outcome.violations
    }

    fn add(totals: &mut Totals, outcome: &Outcome) {
        totals.operations += outcome.operations;
        totals.killed += outcome.killed;
        totals.repeated += outcome.repeated;
    }

    fn describe(t: &Totals) -> String {
        let Totals { operations, killed, repeated } = t;
        format!("{operations} operations ({killed} killed), {repeated} changes of names repeated after a crash")
    }

    fn repeat(&self, seed: u64) -> String {
        format!("cargo xtask repro --world mount {seed}")
    }
}
