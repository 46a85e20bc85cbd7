//! `swarm`: runs many random worlds of NFS clients and a server, and prints the seeds that failed.

mod seeds;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use remora_server::cache;
use remora_sim::Trace;
use remora_sim::swarm::scenario::{CacheChoice, Scenario};
use remora_sim::swarm::{self, Outcome};

/// Runs clients and a server in worlds drawn from seeds, checked by an oracle. For each failing
/// seed it prints the command that reproduces it.
#[derive(Parser)]
#[command(name = "swarm")]
struct Args {
    #[command(flatten)]
    seeds: seeds::Flags,
    /// The server's duplicate request cache, instead of a random one.
    #[arg(long, value_enum)]
    cache: Option<CacheForm>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CacheForm {
    Off,
    Reference,
    Juszczak,
    Full,
}

impl CacheForm {
    fn choice(form: Option<CacheForm>) -> CacheChoice {
        match form {
            None => CacheChoice::Drawn,
            Some(CacheForm::Off) => CacheChoice::Always(cache::Config::Off),
            Some(CacheForm::Reference) => CacheChoice::Always(cache::Config::reference()),
            Some(CacheForm::Juszczak) => CacheChoice::Always(cache::Config::juszczak()),
            Some(CacheForm::Full) => CacheChoice::Always(cache::Config::full()),
        }
    }
}

fn main() -> ExitCode {
    let Args { seeds, cache } = Args::parse();
    match seeds.repro {
        Some(seed) => repro(seed, CacheForm::choice(cache)),
        None => seeds::run(seeds, Nfs { cache }),
    }
}

fn repro(seed: u64, choice: CacheChoice) -> ExitCode {
    let scenario = Scenario::draw(seed, choice);
    seeds::say(format_args!("{scenario:#?}"));
    let outcome = swarm::run(&scenario, seed, Trace::to(Box::new(std::io::stdout())));
    seeds::say(format_args!("{outcome:#?}"));
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Worlds of NFS clients and their server.
struct Nfs {
    cache: Option<CacheForm>,
}

#[derive(Default)]
struct Totals {
    operations: u64,
    excused: u64,
    messages: u64,
    retransmissions: u64,
    crashes: u64,
    virtual_seconds: f64,
}

impl seeds::Worlds for Nfs {
    type Outcome = Outcome;
    type Totals = Totals;

    fn run(&self, seed: u64) -> Outcome {
        swarm::run(&Scenario::draw(seed, CacheForm::choice(self.cache)), seed, Trace::quiet())
    }

    fn violations(outcome: &Outcome) -> &[String] {
        &outcome.violations
    }

    fn add(totals: &mut Totals, outcome: &Outcome) {
        totals.operations += outcome.operations.0;
        totals.excused += outcome.operations.1;
        totals.messages += outcome.messages;
        totals.retransmissions += outcome.retransmissions;
        totals.crashes += outcome.server.crashes;
        totals.virtual_seconds += outcome.ended.as_secs_f64();
    }

    fn describe(t: &Totals) -> String {
        format!(
            "{} operations ({} excused), {} messages ({} retransmissions), {} crashes; {:.0} virtual seconds",
            t.operations, t.excused, t.messages, t.retransmissions, t.crashes, t.virtual_seconds
        )
    }

    fn repeat(&self, seed: u64) -> String {
        match self.cache.and_then(|c| c.to_possible_value()) {
            None => format!("cargo xtask repro {seed}"),
            Some(cache) => {
                let program = "cargo run --release -p remora-sim --bin swarm --";
                format!("{program} --cache {} --repro {seed}", cache.get_name())
            }
        }
    }
}
