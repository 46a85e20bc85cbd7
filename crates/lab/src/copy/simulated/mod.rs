//! The copy study in virtual time: the cores of client and server on a simulated medium, beside stations that
//! load it. What Copy 89 could not measure: media that take turns, one to eight stations with the same load, and
//! the parts of a copy's time.
//!
//! Read `medium` (media and their loads), `system` (programs and hosts), `experiment` (cells), `study` (runs), then
//! `report`.

mod experiment;
mod medium;
mod report;
mod study;
mod system;

pub use experiment::{CopyExperiment, SimulatedCell};
pub use medium::{LoadLevel, SharedMedium};
pub use report::{Ablation, ExperimentOutcome, SimulatedCopyReport, SimulatedRow, run_simulated};
pub use study::SimulatedOptions;
pub use system::SimulatedSystem;
