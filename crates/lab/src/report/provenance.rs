//! How a report's figures were made: what every `--json` object begins with.

use serde::Serialize;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Simulated,
    Real,
    Paper,
}

/// Who made a report, and how to make it again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Provenance {
    pub version: &'static str,
    pub source: Source,
    /// The command line that repeats the runs.
    pub command: String,
    pub first_seed: u64,
    pub seeds: u64,
}

impl Provenance {
    pub(crate) fn new(source: Source, command: &str, first_seed: u64, seeds: u64) -> Provenance {
        Provenance { version: env!("CARGO_PKG_VERSION"), source, command: command.to_owned(), first_seed, seeds }
    }
}

/// A run that gave no figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailedRun {
    pub seed: u64,
    pub why: String,
}

/// A run of one seed, or why it failed.
pub(crate) struct SeedRun<T, E> {
    pub(crate) seed: u64,
    pub(crate) result: Result<T, E>,
}

/// Separates the runs that gave a result, with their seeds, from those that failed.
pub(crate) fn separate<T, E: ToString>(runs: Vec<SeedRun<T, E>>) -> (Vec<(u64, T)>, Vec<FailedRun>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for SeedRun { seed, result } in runs {
        match result {
            Ok(result) => done.push((seed, result)),
            Err(why) => failed.push(FailedRun { seed, why: why.to_string() }),
        }
    }
    (done, failed)
}
