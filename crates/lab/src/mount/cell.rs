//! The figures of runs, and of a system's measure over all seeds.

use serde::Serialize;

use super::options::MountSystem;
use super::work::{DOCUMENT, Measure, Work};
use crate::report::statistics::Summary;

/// Bytes of a note.
const NOTE: u64 = 100;

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sample {
    /// In seconds; infinite if a step was cut off.
    pub(super) values: Vec<(Measure, f64)>,
    /// Seconds that the best sender needs for the bytes.
    pub(super) floors: Vec<(Measure, f64)>,
    /// Documents opened and notes made beside the large write.
    pub(super) documents: usize,
    pub(super) notes: usize,
    pub(super) lateness_ms: f64,
    /// Why the run is invalid.
    pub(super) fault: Option<String>,
}

/// A run of a system and its work.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct WorkRun {
    pub(super) system: MountSystem,
    pub(super) work: Work,
    pub(super) seed: u64,
    pub(super) result: Result<Sample, String>,
}

/// A system's figures of one measure over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MountCell {
    pub system: MountSystem,
    pub measure: Measure,
    pub seconds: Summary,
    /// Median of the seconds that the best sender needs.
    pub floor_seconds: Option<f64>,
    /// Median of the link time of the bytes that were read and written beside, in seconds.
    pub beside_seconds: Option<f64>,
    /// Runs in which the emulator was late or lost packets.
    pub invalid: usize,
    pub runs: Vec<SeedValue>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SeedValue {
    pub seed: u64,
    /// Infinite (JSON: null) if it was cut off.
    pub seconds: f64,
}

/// The cells of all measures, in order.
pub(super) fn all(systems: &[MountSystem], runs: &[WorkRun], rate_bits_per_s: f64) -> Vec<MountCell> {
    let pairs = Measure::ALL.into_iter().flat_map(|measure| systems.iter().map(move |system| (measure, *system)));
    pairs.filter_map(|(measure, system)| cell(measure, system, runs, rate_bits_per_s)).collect()
}

fn cell(measure: Measure, system: MountSystem, runs: &[WorkRun], rate_bits_per_s: f64) -> Option<MountCell> {
    let of_system = runs.iter().filter(|run| run.system == system);
    let samples = of_system.filter_map(|run| Some((run.seed, run.result.as_ref().ok()?)));
    let find = |all: &[(Measure, f64)]| all.iter().find(|(m, _)| *m == measure).map(|(_, value)| *value);
    let mut valued: Vec<(SeedValue, &Sample)> = samples
        .filter_map(|(seed, sample)| Some((SeedValue { seed, seconds: find(&sample.values)? }, sample)))
        .collect();
    valued.sort_by_key(|(run, _)| run.seed);
    let runs: Vec<SeedValue> = valued.iter().map(|(run, _)| *run).collect();
    let median = |values: Vec<f64>| Summary::of(&values).map(|summary| summary.median);
    let beside = |sample: &Sample| {
        let bytes = sample.documents as u64 * DOCUMENT + sample.notes as u64 * NOTE;
        bytes as f64 * 8.0 / rate_bits_per_s
    };
    Some(MountCell {
        system,
        measure,
        seconds: Summary::of(&runs.iter().map(|run| run.seconds).collect::<Vec<_>>())?,
        floor_seconds: median(valued.iter().filter_map(|(_, sample)| find(&sample.floors)).collect()),
        beside_seconds: (measure == Measure::BulkBeside)
            .then(|| median(valued.iter().map(|(_, sample)| beside(sample)).collect()))
            .flatten(),
        invalid: valued.iter().filter(|(_, sample)| sample.fault.is_some()).count(),
        runs,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn run(system: MountSystem, work: Work, seed: u64, values: &[(Measure, f64)]) -> WorkRun {
        let sample = Sample { values: values.to_vec(), lateness_ms: 1.0, ..Sample::default() };
        WorkRun { system, work, seed, result: Ok(sample) }
    }

    #[test]
    fn link_time_of_the_others_is_that_of_their_bytes() {
        let mut beside = run(MountSystem::Atp, Work::Beside, 1, &[(Measure::BulkBeside, 50.0)]);
        let sample = beside.result.as_mut().unwrap();
        (sample.documents, sample.notes) = (50, 0);
        let seconds = all(&MountSystem::ALL, &[beside], 1e6)[0].beside_seconds.unwrap();
        assert!((seconds - 50.0 * 20480.0 * 8.0 / 1e6).abs() < 1e-9, "{seconds}");
    }
}
