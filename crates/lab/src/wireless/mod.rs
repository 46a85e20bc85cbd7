//! The wireless laboratory: the experiments of NFS/W 95 and NFS/W 97 by name, and those beyond
//! them.
//!
//! An [`Experiment`] is a table of cells. A cell is a [`Job`] that is run with the same seeds as
//! every other, by a [`Runner`]: here the [simulator](Simulator), in virtual time. The
//! [`Report`] has every run's figures, and can be shown as text, JSON or a page with figures.

pub(crate) mod cell;
pub mod demo;
mod experiments;
pub(crate) mod job;
mod outcome;
mod page;
pub mod real;
mod simulated;
mod tables;
mod work;

pub use crate::report::provenance::{FailedRun, Provenance, Source};
pub use crate::report::statistics::Summary;
pub use cell::{Cell, Emulation, Label, Measure, Packet, Paper, RunError, Runner, Sample};
pub use experiments::{Experiment, ExperimentFigure, Origin, SEEDS, SEEDS_MAX, Vertical, all, named};
pub use job::{Copy, HandOff, Job, Saturation, SmallOperations, System, Tcp, Testbed, Treatment};
pub use outcome::{CellOutcome, Conditions, ExperimentOutcome, Measured, Report};
pub use simulated::Simulator;
pub use work::{Options, PlanError, Work, run};
