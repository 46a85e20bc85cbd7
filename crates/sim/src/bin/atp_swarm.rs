//! `atp_swarm`: runs many random worlds of ATP endpoints, and prints the seeds that failed.

mod seeds;

use std::process::ExitCode;

use clap::Parser;
use remora_sim::atp_swarm::{self, Outcome, Scenario};

/// Runs ATP endpoints in worlds drawn from seeds, checked against their invariants. For each
/// failing seed it prints the command that reproduces it.
#[derive(Parser)]
#[command(name = "atp_swarm")]
struct Args {
    #[command(flatten)]
    seeds: seeds::Flags,
}

fn main() -> ExitCode {
    let Args { seeds } = Args::parse();
    match seeds.repro {
        Some(seed) => repro(seed),
        None => seeds::run(seeds, Atp),
    }
}

fn repro(seed: u64) -> ExitCode {
    seeds::say(format_args!("{:#?}", Scenario::draw(seed)));
    let outcome = atp_swarm::run(seed, &mut |line| seeds::say(line));
    seeds::say(format_args!("{outcome:#?}"));
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Worlds of ATP endpoints.
struct Atp;

#[derive(Default)]
struct Totals {
    requests: u64,
    delivered: u64,
    lost: u64,
    packets: u64,
    virtual_seconds: f64,
}

impl seeds::Worlds for Atp {
    type Outcome = Outcome;
    type Totals = Totals;

    fn run(&self, seed: u64) -> Outcome {
        atp_swarm::run(seed, &mut |_| {})
    }

    fn violations(outcome: &Outcome) -> &[String] {
        &outcome.violations
    }

    fn add(totals: &mut Totals, outcome: &Outcome) {
        totals.requests += outcome.requests;
        totals.delivered += outcome.delivered;
        totals.lost += outcome.lost;
        totals.packets += outcome.packets;
        totals.virtual_seconds += outcome.ended.as_secs_f64();
    }

    fn describe(t: &Totals) -> String {
        format!(
            "{} requests ({} delivered, {} lost with their connection), {} packets; {:.0} virtual seconds",
            t.requests, t.delivered, t.lost, t.packets, t.virtual_seconds
        )
    }

    fn repeat(&self, seed: u64) -> String {
        format!("cargo xtask repro --world atp {seed}")
    }
}
