//! The wireless laboratory: the experiments of NFS/W 95 and NFS/W 97 by name, and those beyond
//! them.
//!
//! An [`Experiment`] is a table of cells. A cell is a [`Job`] that is run with the same seeds as
//! every other, by a [`Runner`]: here the [simulator](Simulator), in virtual time. The
//! [`Report`] has every run's figures, and can be shown as text, JSON or a page with figures.

mod cell;
mod chart;
mod experiments;
mod job;
mod outcome;
mod page;
mod plot;
mod pool;
pub mod real;
mod runner;
mod simulated;
mod stats;
mod tables;

use std::num::NonZeroUsize;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub use cell::{Cell, Emulation, Label, Measure, Packet, Paper, Sample};
pub use experiments::{Experiment, Figure, Origin, Vertical, all, named};
pub use job::{Copy, HandOff, Job, Saturation, SmallOperations, System, Tcp, Testbed, Treatment};
pub use outcome::{CellOutcome, ExperimentOutcome, FailedRun, Measured, Report};
pub use page::Page;
pub use runner::{RunError, Runner, Source};
pub use simulated::Simulator;
pub use stats::Summary;

/// The most seeds a cell may be run with.
pub const SEEDS_MAX: u64 = 1000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiments.
    pub experiments: Vec<&'static Experiment>,
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds for each cell (1 to [`SEEDS_MAX`]).
    pub seeds: u64,
    /// On so many threads; the results do not depend on it.
    pub threads: NonZeroUsize,
    /// Whether to show a progress bar (on a terminal only).
    pub bar: bool,
    /// The command that gives this again, for the report.
    pub command: String,
    /// Only cells at these levels: on each axis that has one of them, at one of them.
    pub only: Vec<String>,
    /// Others' systems that were looked for, for the report.
    pub peers: Vec<real::Peer>,
}

/// One run that is to be made.
struct Run<'a> {
    cell: &'a Cell,
    seed: u64,
}

/// Runs the experiments. All runs are independent: one pool takes them all.
pub fn run(options: &Options, runner: &impl Runner) -> Report {
    let tables: Vec<(&'static Experiment, Vec<Cell>)> =
        options.experiments.iter().map(|e| (*e, cells(e, &options.only, runner))).collect();
    let seeds_of = |experiment: &Experiment| {
        let count = if experiment.single { 1 } else { options.seeds.clamp(1, SEEDS_MAX) };
        (0..count).map(|n| options.first_seed.wrapping_add(n))
    };
    let mut runs = Vec::new();
    for (experiment, cells) in &tables {
        runs.extend(cells.iter().flat_map(|cell| seeds_of(experiment).map(move |seed| Run { cell, seed })));
    }
    let bar = bar(runs.len() as u64, options.bar);
    // Seed by seed, so that runs of a kind that have to wait for one another come one by one.
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|index| runs.get(*index).map(|r| r.seed.wrapping_sub(options.first_seed)));
    let work = |n: usize| {
        let index = *order.get(n)?;
        let run = runs.get(index)?;
        let result = runner.run(&run.cell.job.drawn(run.seed), run.seed, run.cell.limit);
        Some((index, run.seed, result))
    };
    let mut made: Vec<_> = pool::map(runs.len(), options.threads, work, || bar.inc(1)).into_iter().flatten().collect();
    made.sort_by_key(|(index, _, _)| *index);
    let mut results = made.into_iter().map(|(_, seed, result)| (seed, result));
    bar.finish_and_clear();

    let mut experiments = Vec::new();
    for (experiment, cells) in &tables {
        let outcome = |cell| {
            let runs = results.by_ref().take(seeds_of(experiment).count()).collect();
            CellOutcome::new(experiment, cell, runner.source(), runs)
        };
        experiments.push(ExperimentOutcome::new(experiment, cells.iter().map(outcome).collect()));
    }
    Report {
        version: env!("CARGO_PKG_VERSION"),
        source: runner.source(),
        peers: options.peers.clone(),
        command: options.command.clone(),
        first_seed: options.first_seed,
        seeds: options.seeds,
        experiments,
    }
}

/// The experiment's cells that are wanted and that the runner can run.
fn cells(experiment: &Experiment, only: &[String], runner: &impl Runner) -> Vec<Cell> {
    let all = (experiment.cells)();
    let at = |label: &Label| only.contains(&label.level);
    let chosen = |axis: &str| all.iter().flat_map(|c| &c.labels).any(|l| l.axis == axis && at(l));
    let wanted = |cell: &Cell| cell.labels.iter().all(|l| at(l) || !chosen(l.axis));
    all.iter().filter(|cell| wanted(cell) && runner.takes(&cell.job)).cloned().collect()
}

fn bar(runs: u64, shown: bool) -> ProgressBar {
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{wide_bar:.green} {pos} of {len} runs, {eta} left");
    ProgressBar::with_draw_target(Some(runs), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
