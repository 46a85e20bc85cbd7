//! The wireless laboratory: the experiments of NFS/W 95 and NFS/W 97 by name, and those beyond
//! them.
//!
//! An [`Experiment`] is a table of cells. A cell is a [`Job`] that is run with the same seeds as
//! every other, by a [`Runner`]: here the [simulator](Simulator), in virtual time. The
//! [`Report`] has every run's figures, and can be shown as text, JSON or a page with figures.

mod cell;
mod experiments;
mod job;
mod outcome;
mod page;
mod plot;
pub mod real;
mod runner;
mod simulated;
mod tables;
mod work;

use std::num::NonZeroUsize;

use serde::Serialize;

pub use crate::report::provenance::{FailedRun, Provenance, Source};
pub use crate::report::statistics::Summary;
pub use cell::{Cell, Emulation, Label, Measure, Packet, Paper, Sample};
pub use experiments::{Experiment, ExperimentFigure, Origin, SEEDS, Vertical, all, named};
pub use job::{Copy, HandOff, Job, Saturation, SmallOperations, System, Tcp, Testbed, Treatment};
pub use outcome::{CellOutcome, ExperimentOutcome, Measured, Report};
pub use runner::{RunError, Runner};
pub use simulated::Simulator;
pub use work::{PlanError, Work};

/// The most seeds a cell may be run with.
pub const SEEDS_MAX: u64 = 1000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiments.
    pub experiments: Vec<&'static Experiment>,
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds for each cell (1 to [`SEEDS_MAX`]); `None`: as many as the experiment usually has.
    pub seeds: Option<u64>,
    /// On so many threads; the results do not depend on it.
    pub threads: NonZeroUsize,
    /// Whether to show a progress bar (on a terminal only).
    pub bar: bool,
    /// The command that gives this again, for the report.
    pub command: String,
    /// Only cells at these levels: on each axis of the experiments that has one of them, at one of
    /// them.
    pub only: Vec<String>,
    /// Others' systems that were looked for, for the report.
    pub peers: Vec<real::Peer>,
    /// What real runs depend on, for the report.
    pub conditions: Option<Conditions>,
}

/// What real runs depend on beside the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Conditions {
    /// So many runs were made at a time.
    pub jobs: usize,
    /// How late the emulator could hand over a frame in a valid run.
    pub lateness_ms_bound: f64,
}

/// Runs the experiments.
pub fn run(options: Options, runner: impl Runner) -> Result<Report, PlanError> {
    let work = Work::plan(options, runner)?;
    work.run(|_| ());
    Ok(work.report())
}
