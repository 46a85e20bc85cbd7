//! The report: everything that is shown and that `--json` prints.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::cell::{Cell, Label, Measure, Packet, Paper, RunError, Sample, level};
use super::experiments::experiment::{Experiment, Origin};
use super::job::Settings;
use super::real::peers::Peer;
use crate::report::provenance::{FailedRun, Provenance, SeedRun, Source, separate};
use crate::report::statistics::{Bounded, Paired, Summary, reduction_interval};

/// Runs of a cell whose packets are kept.
const PACKET_RUNS_MAX: usize = 5;

/// What real runs depend on beside the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Conditions {
    pub jobs: usize,
    /// Largest lateness of a frame in a valid run.
    pub lateness_ms_bound: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct WirelessReport {
    #[serde(flatten)]
    pub made: Provenance,
    /// False if the runs were interrupted.
    pub complete: bool,
    /// Other systems: their versions, or what is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Peer>,
    /// What real runs depend on beside the seeds.
    #[serde(flatten)]
    pub conditions: Option<Conditions>,
    pub experiments: Vec<ExperimentOutcome>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ExperimentOutcome {
    pub name: &'static str,
    pub about: &'static str,
    pub origin: Origin,
    pub seeds: u64,
    pub cells: Vec<CellOutcome>,
    #[serde(skip)]
    pub(crate) experiment: &'static Experiment,
}

#[derive(Clone, Debug, Serialize)]
pub struct CellOutcome {
    #[serde(serialize_with = "as_map")]
    pub labels: Vec<Label>,
    pub source: Source,
    pub(crate) settings: Settings,
    /// Time limit of a run, in seconds.
    pub limit_seconds: f64,
    /// Seeds of the values, in order.
    pub seeds: Vec<u64>,
    pub results: Vec<Measured>,
    /// Time of the best sender with each seed.
    pub floor_seconds: Vec<Option<f64>>,
    pub ratio: Option<Summary>,
    /// Lower bound of an unknown median: a run that was cut off is above the limit over its own floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_above: Option<f64>,
    pub paper: Option<Paper>,
    /// Reduction of the mean below the baseline's cell, in percent.
    pub reduction_percent: Option<f64>,
    /// Its 95 % interval, by resampling seeds. `None` if there are too few.
    pub reduction_interval_percent: Option<(f64, f64)>,
    pub paper_reduction_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Summary>,
    /// Difference of the median from the simulator's, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference_percent: Option<f64>,
    /// No other system has a lower median under the same conditions, among real runs with shared seeds. `None` without
    /// shared seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fastest: Option<bool>,
    /// Largest lateness of a frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_ms_max: Option<f64>,
    /// Seeds whose first run was invalid because of the lateness, and was repeated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<u64>,
    pub failures: Vec<FailedRun>,
    /// All packets of the first seeds, in order; empty unless the experiment shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<Vec<Packet>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub measure: Measure,
    pub summary: Summary,
    /// In the order of the seeds. Null: cut off, or, if the run has `seconds`, not applicable (a copy that ended
    /// before the outage did).
    pub values: Vec<Option<f64>>,
}

fn as_map<S: Serializer>(labels: &[Label], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(labels.len()))?;
    for label in labels {
        map.serialize_entry(label.axis, &label.level)?;
    }
    map.end()
}

impl WirelessReport {
    pub fn failures(&self) -> usize {
        self.experiments.iter().flat_map(|e| &e.cells).map(|c| c.failures.len()).sum()
    }
}

impl ExperimentOutcome {
    /// Compares the cells with one another.
    pub(crate) fn new(experiment: &'static Experiment, seeds: u64, mut cells: Vec<CellOutcome>) -> ExperimentOutcome {
        if let Some((axis, level)) = experiment.baseline {
            let bases: Vec<Option<usize>> = (0..cells.len()).map(|i| base(&cells, i, axis, level)).collect();
            let compared: Vec<_> = bases.iter().enumerate().map(|(i, b)| b.map(|b| compare(&cells, i, b))).collect();
            for (cell, compared) in cells.iter_mut().zip(compared) {
                let compared = compared.unwrap_or_default();
                cell.reduction_percent = compared.ours;
                cell.reduction_interval_percent = compared.interval;
                cell.paper_reduction_percent = compared.papers;
            }
        }
        mark_fastest(&mut cells);
        ExperimentOutcome {
            name: experiment.name,
            about: experiment.about,
            origin: experiment.origin,
            seeds,
            cells,
            experiment,
        }
    }
}

/// The cell at the same place with the baseline's level.
fn base(cells: &[CellOutcome], of: usize, axis: &str, base: &str) -> Option<usize> {
    let mut labels = cells.get(of)?.labels.clone();
    if level(&labels, axis) == Some(base) {
        return None;
    }
    labels.iter_mut().filter(|l| l.axis == axis).for_each(|l| base.clone_into(&mut l.level));
    cells.iter().position(|c| c.labels == labels)
}

/// Marks the real system with the lowest median under the same conditions, over the seeds that all have.
fn mark_fastest(cells: &mut [CellOutcome]) {
    let conditions =
        |c: &CellOutcome| -> Vec<Label> { c.labels.iter().filter(|l| l.axis != "system").cloned().collect() };
    let fastest = |cell: &CellOutcome| -> Option<bool> {
        cell.level("system").filter(|_| cell.source == Source::Real)?;
        let place = conditions(cell);
        let rivals: Vec<&CellOutcome> = cells.iter().filter(|c| conditions(c) == place).collect();
        if rivals.len() < 2 {
            return None;
        }
        let seeds: Vec<u64> =
            cell.seeds.iter().copied().filter(|seed| rivals.iter().all(|c| c.main(*seed).is_some())).collect();
        let median = |c: &CellOutcome| {
            let values: Vec<f64> = seeds.iter().filter_map(|seed| c.main(*seed)).collect();
            Summary::of(&values).map(|s| s.median)
        };
        let mine = median(cell)?;
        Some(mine.is_finite() && rivals.iter().filter_map(|c| median(c)).all(|other| mine <= other))
    };
    let marks: Vec<Option<bool>> = cells.iter().map(fastest).collect();
    cells.iter_mut().zip(marks).for_each(|(cell, mark)| cell.fastest = mark);
}

/// Reductions of a cell against its base, in percent.
#[derive(Default)]
struct Compared {
    ours: Option<f64>,
    interval: Option<(f64, f64)>,
    papers: Option<f64>,
}

fn compare(cells: &[CellOutcome], cell: usize, base: usize) -> Compared {
    let (Some(cell), Some(base)) = (cells.get(cell), cells.get(base)) else { return Compared::default() };
    let percent = |of: f64, from: f64| (1.0 - of / from) * 100.0;
    let mean = |c: &CellOutcome| c.results.first().and_then(|r| r.summary.mean);
    let ours = mean(cell).zip(mean(base)).map(|(of, from)| percent(of, from));
    let papers = cell.paper.as_ref().zip(base.paper.as_ref()).map(|(of, from)| percent(of.mean, from.mean));
    let pair = |seed: &u64| Some(Paired { before: base.main(*seed)?, after: cell.main(*seed)? });
    let pairs: Vec<Paired> = cell.seeds.iter().filter_map(pair).collect();
    Compared { ours, interval: reduction_interval(&pairs), papers }
}

impl CellOutcome {
    pub(crate) fn new(
        experiment: &Experiment,
        cell: &Cell,
        source: Source,
        runs: Vec<SeedRun<Sample, RunError>>,
    ) -> CellOutcome {
        let (mut samples, failures) = separate(runs);
        let floor_seconds: Vec<Option<f64>> = samples.iter().map(|(_, s)| s.floor_seconds).collect();
        let limit_seconds = cell.limit.as_secs_f64();
        let ratios: Vec<Bounded> = samples.iter().filter_map(|(_, s)| ratio(s, limit_seconds)).collect();
        let ratio = Summary::of_bounded(&ratios);
        let simulated: Vec<f64> = samples.iter().filter_map(|(_, s)| s.simulated).collect();
        let simulated = Summary::of(&simulated);
        let results: Vec<Measured> = experiment.measures.iter().filter_map(|m| measured(*m, &samples)).collect();
        let seconds = results.iter().find(|r| r.measure == Measure::Seconds).map(|r| r.summary.median);
        let emulations = || samples.iter().filter_map(|(seed, s)| Some((*seed, s.emulation?)));
        CellOutcome {
            labels: cell.labels.clone(),
            source,
            settings: Settings::of(&cell.job),
            limit_seconds,
            seeds: samples.iter().map(|(seed, _)| *seed).collect(),
            results,
            floor_seconds,
            ratio: ratio.as_ref().map(|r| r.summary),
            ratio_above: ratio.filter(|r| r.summary.median.is_infinite()).map(|r| r.median_above),
            paper: cell.paper.clone(),
            reduction_percent: None,
            reduction_interval_percent: None,
            paper_reduction_percent: None,
            simulated,
            difference_percent: seconds
                .zip(simulated.filter(|s| s.median.is_finite()))
                .map(|(real, s)| (real / s.median - 1.0) * 100.0)
                .filter(|d| d.is_finite()),
            fastest: None,
            lateness_ms_max: emulations().map(|(_, e)| e.lateness_ms).reduce(f64::max),
            repeated: emulations().filter(|(_, e)| e.repeated).map(|(seed, _)| seed).collect(),
            failures,
            packets: samples
                .iter_mut()
                .take(PACKET_RUNS_MAX)
                .map(|(_, s)| std::mem::take(&mut s.packets))
                .filter(|packets| !packets.is_empty())
                .collect(),
        }
    }

    pub fn summary(&self, measure: Measure) -> Option<&Summary> {
        self.results.iter().find(|r| r.measure == measure).map(|r| &r.summary)
    }

    pub fn level(&self, axis: &str) -> Option<&str> {
        level(&self.labels, axis)
    }

    /// The main measure of the run with this seed.
    fn main(&self, seed: u64) -> Option<f64> {
        let at = self.seeds.iter().position(|s| *s == seed)?;
        self.results.first()?.values.get(at).copied().flatten()
    }
}

fn ratio(sample: &Sample, limit_seconds: f64) -> Option<Bounded> {
    let floor = sample.floor_seconds.filter(|f| *f > 0.0)?;
    let seconds = sample.value(Measure::Seconds)?;
    Some(Bounded { value: seconds.min(limit_seconds) / floor, is_exact: seconds.is_finite() })
}

fn measured(measure: Measure, samples: &[(u64, Sample)]) -> Option<Measured> {
    let values: Vec<Option<f64>> = samples.iter().map(|(_, s)| s.value(measure)).collect();
    let there: Vec<f64> = values.iter().copied().flatten().collect();
    Some(Measured { measure, summary: Summary::of(&there)?, values })
}
