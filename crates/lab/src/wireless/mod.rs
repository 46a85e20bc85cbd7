//! The wireless laboratory: the experiments of NFS/W 95 and NFS/W 97, and others beyond them.
//!
//! An [`Experiment`] is a table of cells. A [`Runner`] runs each cell's [`Job`] with the same seeds: the
//! [`Simulator`] in virtual time, or [`real`] programs. Read `job`, `cell`, `cell_load` (several mobiles), `experiments`, `simulated`, `work`
//! (all runs in one pool) and `outcome` (the [`WirelessReport`]), then `tables` and `page`. [`demo`] shows three clients
//! at work.

pub(crate) mod cell;
mod cell_load;
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
pub use outcome::{CellOutcome, Conditions, ExperimentOutcome, Measured, WirelessReport};
pub use simulated::Simulator;
pub use work::{Options, PlanError, Work, run};
