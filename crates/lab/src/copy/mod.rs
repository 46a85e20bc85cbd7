//! The copy study of Copy 89, repeated: files copied by today's programs beside a background load.
//!
//! Real programs run in network namespaces on an emulated [medium](remora_channel), with turns or with collisions
//! as on an Ethernet; it needs root. All cells have the same seeds in random order. Files are fresh and not
//! cached, and the clock stops when the copy is on disk. The load counts as carried. Figures are medians with
//! intervals; copies stopped at the time limit rank above all others. Beside each median stand predictions by the
//! [model](remora_model) and the [simulator](remora_sim::network), fitted to copies of one size without load.
//!
//! [`run_simulated`] has experiments in virtual time, without root.
//!
//! Read `options`, `plan` (cells), `bench` and `run` (one copy), `study` (all of them), `outcome`, `predict` and
//! `judge`, then `tables` and `page`; `simulated` is apart.

mod bench;
mod judge;
mod options;
mod outcome;
mod page;
mod plan;
mod predict;
mod run;
mod simulated;
mod study;
mod tables;

pub use judge::Accuracy;
pub use options::{BYTES_MAX, JOBS_MAX, Options, PAPER_LOADS, PAPER_SIZES_MB, SEEDS_MAX};
pub use outcome::{CellOutcome, CopyPeer, CopyStudyReport, Parts, Predicted};
pub use plan::{Cell, CopySystem};
pub use predict::Fitted;
pub use run::{Run, Wire};
pub use simulated::{
    Ablation, CopyExperiment, ExperimentOutcome, LoadLevel, SharedMedium, SimulatedCell, SimulatedCopyReport,
    SimulatedOptions, SimulatedRow, SimulatedSystem, run_simulated,
};
pub use study::run;
