//! `mount_swarm`: runs many random worlds of mounts, and prints the seeds that failed.

mod seeds;

use std::process::ExitCode;

use clap::Parser;
use remora_sim::mount::offline::scenario::Crashes;
use remora_sim::mount::{offline, scenario};

/// Runs mounts before one server in worlds drawn from seeds, checked against models of the files. For each failing
/// seed it prints the command that reproduces it.
#[derive(Parser)]
#[command(name = "mount_swarm")]
struct Args {
    /// Kind of the worlds.
    #[arg(long, value_enum, default_value_t = World::Mount)]
    world: World,
    #[command(flatten)]
    seeds: seeds::Flags,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum World {
    /// The server is there
    Mount,
    /// The machines work without the server for a time
    Offline,
    /// The same, and mounts are killed and machines lose power
    OfflineCrash,
}

fn main() -> ExitCode {
    let Args { world, seeds } = Args::parse();
    match (world, seeds.repro) {
        (World::Mount, Some(seed)) => repro(seed),
        (World::Offline, Some(seed)) => repro_offline(seed, Crashes::None),
        (World::OfflineCrash, Some(seed)) => repro_offline(seed, Crashes::Some),
        (World::Mount, None) => seeds::run(seeds, Mounts),
        (World::Offline, None) => seeds::run(seeds, Offline(Crashes::None)),
        (World::OfflineCrash, None) => seeds::run(seeds, Offline(Crashes::Some)),
    }
}

fn repro(seed: u64) -> ExitCode {
    seeds::say(format_args!("{:#?}", scenario::Scenario::draw(seed)));
    let outcome = scenario::run(seed);
    seeds::say(format_args!("{outcome:#?}"));
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what each machine did, with the time since the start of the world.
fn repro_offline(seed: u64, crashes: Crashes) -> ExitCode {
    seeds::say(format_args!("{:#?}", offline::scenario::Scenario::draw(seed, crashes)));
    let mut outcome = offline::run(seed, crashes);
    std::mem::take(&mut outcome.log).iter().for_each(seeds::say);
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
    type Outcome = scenario::Outcome;
    type Totals = Totals;

    fn run(&self, seed: u64) -> scenario::Outcome {
        scenario::run(seed)
    }

    fn violations(outcome: &scenario::Outcome) -> &[String] {
        &outcome.violations
    }

    fn add(totals: &mut Totals, outcome: &scenario::Outcome) {
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

/// Worlds of mounts that are disconnected for a time.
struct Offline(Crashes);

#[derive(Default)]
struct OfflineTotals {
    operations: u64,
    offline: u64,
    missed: u64,
    kills: u64,
    power_losses: u64,
    conflicts: u64,
    kept: u64,
    halves: u64,
    repeated: u64,
}

impl seeds::Worlds for Offline {
    type Outcome = offline::scenario::Outcome;
    type Totals = OfflineTotals;

    fn run(&self, seed: u64) -> offline::scenario::Outcome {
        offline::run(seed, self.0)
    }

    fn violations(outcome: &offline::scenario::Outcome) -> &[String] {
        &outcome.violations
    }

    fn add(totals: &mut OfflineTotals, outcome: &offline::scenario::Outcome) {
        totals.operations += outcome.operations;
        totals.offline += outcome.offline;
        totals.missed += outcome.missed;
        totals.kills += outcome.kills;
        totals.power_losses += outcome.power_losses;
        totals.conflicts += outcome.conflicts;
        totals.kept += outcome.kept;
        totals.halves += outcome.halves;
        totals.repeated += outcome.repeated;
    }

    fn describe(t: &OfflineTotals) -> String {
        let OfflineTotals { operations, offline, missed, kills, power_losses, conflicts, kept, halves, repeated } = t;
        format!(
            "{operations} operations ({offline} without the server, {missed} not cached), {kills} kills, {power_losses} \
             losses of power, {conflicts} conflicts, {kept} programs ended by a kept file and {halves} by a conflict with \
             their own half, {repeated} changes of names repeated after a crash"
        )
    }

    fn repeat(&self, seed: u64) -> String {
        let world = if self.0 == Crashes::None { "offline" } else { "offline-crash" };
        format!("cargo xtask repro --world {world} {seed}")
    }
}
