//! Who runs a job: the simulator, or real programs on the emulator.

use std::time::Duration;

use super::cell::Sample;
use super::job::Job;
use crate::report::provenance::Source;

/// Runs jobs. Several threads share one.
pub trait Runner: Sync {
    /// Where its figures come from.
    fn source(&self) -> Source;

    /// Whether it can run this job here; cells with others are left out.
    fn takes(&self, _job: &Job) -> bool {
        true
    }

    /// Runs a job once. It is cut off after `limit` (of the run's own time).
    fn run(&self, job: &Job, seed: u64, limit: Duration) -> Result<Sample, RunError>;
}

/// Why there is no sample.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// This runner cannot run this kind of job.
    #[error("cannot be run this way")]
    Unsupported,
    /// Something went wrong that no channel explains.
    #[error("{0}")]
    Failed(String),
}
