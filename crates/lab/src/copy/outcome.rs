//! The report: every run, medians, the parts of a copy's time, and predictions.

use remora_base::Rate;
use remora_channel::Access;
use remora_model::Reason;
use serde::Serialize;

use super::options::Options;
use super::plan::{Cell, CopySystem, SETUP_BYTES};
use super::predict::Fitted;
use super::run::Run;
use crate::report::provenance::{Provenance, Source};
use crate::report::statistics::Summary;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CopyPeer {
    pub system: CopySystem,
    pub version: Option<String>,
    /// What to install if it is missing.
    pub missing: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CellOutcome {
    #[serde(flatten)]
    pub cell: Cell,
    /// Copies that take longer are cut off.
    pub limit_seconds: f64,
    pub seconds: Option<Summary>,
    /// Carried load during the flow, as a share of the medium.
    pub load_carried: Option<Summary>,
    /// Time over that without load, by pairs of the same seed.
    pub factor: Option<Summary>,
    pub paper_factor: Option<f64>,
    /// The model's prediction for the carried load.
    pub predicted: Option<Predicted>,
    /// The simulator's prediction for the offered load.
    pub simulated: Option<Predicted>,
    /// Setup plus the file's bits at the rate that the carried load leaves: what model and simulator must improve on.
    pub baseline: Option<Predicted>,
    /// Runs in which the emulator was late.
    pub late: usize,
    pub runs: Vec<Run>,
    pub failures: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Predicted {
    pub seconds: f64,
    /// Error in percent of the measured time.
    pub difference_percent: f64,
    pub tolerance_percent: f64,
    /// Fitted to these copies, not predicted.
    pub fitted: bool,
    /// The model's reasons for doubt.
    pub doubts: Vec<Reason>,
}

impl Predicted {
    /// Whether the error is within the limit.
    pub fn is_within_tolerance(&self) -> bool {
        self.difference_percent.abs() <= self.tolerance_percent
    }
}

/// Where the time of copies of one size goes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Parts {
    pub system: CopySystem,
    pub bytes: u64,
    /// Time of the file's bits at the medium's rate.
    pub bits_s: f64,
    /// The same copy on one disk.
    pub disk_s: Option<f64>,
    /// Airtime of the copy's own frames, without load.
    pub wire_s: f64,
    /// Hardware: the longer of disk and wire, which overlap.
    pub hardware_s: f64,
    /// Software: the rest of a copy without load.
    pub software_s: f64,
    /// Start, connect and end: the time of a tiny copy.
    pub setup_s: Option<f64>,
    /// Contention: load in percent, and the extra time.
    pub contention_s: Vec<(f64, f64)>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CopyStudyReport {
    #[serde(flatten)]
    pub made: Provenance,
    /// False if the study was interrupted.
    pub complete: bool,
    pub rate_bits_per_s: u64,
    pub collisions: bool,
    /// Rate over that of Copy 89's medium.
    pub compression: f64,
    /// Concurrent copies, each on its own medium.
    pub jobs: usize,
    pub took_s: f64,
    /// Largest lateness of the emulator in a valid run.
    pub lateness_ms_bound: f64,
    pub peers: Vec<CopyPeer>,
    pub cells: Vec<CellOutcome>,
    pub fitted: Vec<Fitted>,
    pub parts: Vec<Parts>,
}

pub(super) struct StudyRuns {
    /// Runs or failures of each cell.
    pub(super) cells: Vec<(Cell, Vec<Result<Run, String>>)>,
    pub(super) complete: bool,
    pub(super) took_s: f64,
}

impl CopyStudyReport {
    pub(super) fn new(options: &Options, peers: Vec<CopyPeer>, done: StudyRuns) -> CopyStudyReport {
        let cells = done.cells.into_iter();
        let mut report = CopyStudyReport {
            made: Provenance::new(Source::Real, &options.command, options.first_seed, options.seeds),
            complete: done.complete,
            rate_bits_per_s: options.rate.bits(),
            collisions: options.access == Access::Collisions,
            compression: options.rate.bits() as f64 / 1e7,
            jobs: options.jobs.get(),
            took_s: done.took_s,
            lateness_ms_bound: options.lateness_max.as_secs_f64() * 1e3,
            peers,
            cells: cells.map(|(cell, runs)| CellOutcome::new(cell, runs, options.rate)).collect(),
            fitted: Vec::new(),
            parts: Vec::new(),
        };
        report.compare();
        report.predict(options.on());
        report.parts = report.all_parts();
        report
    }

    pub fn failures(&self) -> usize {
        self.cells.iter().map(|c| c.failures.len()).sum()
    }

    pub(super) fn cell(&self, system: CopySystem, bytes: u64, load_percent: f64) -> Option<&CellOutcome> {
        self.cells.iter().find(|c| c.cell == Cell { system, bytes, load_percent })
    }

    fn compare(&mut self) {
        let factor = |own: &CellOutcome| own.factor_over(self.cell(own.cell.system, own.cell.bytes, 0.0)?);
        let factors: Vec<Option<Summary>> = self.cells.iter().map(factor).collect();
        for (cell, factor) in self.cells.iter_mut().zip(factors) {
            cell.factor = factor;
        }
    }

    fn all_parts(&self) -> Vec<Parts> {
        let quiet = self.cells.iter().filter(|c| c.cell.load_percent == 0.0 && !c.cell.is_setup());
        quiet.filter(|c| c.cell.system.has_network()).filter_map(|c| self.parts_of(c)).collect()
    }

    fn parts_of(&self, quiet: &CellOutcome) -> Option<Parts> {
        let Cell { system, bytes, .. } = quiet.cell;
        let median = |cell: &CellOutcome| cell.seconds.map(|s| s.median);
        let alone = median(quiet)?;
        let wire_s = quiet.middle(|r| r.there.seconds + r.back.seconds)?;
        let disk_s = self.cell(CopySystem::SameDisk, bytes, 0.0).and_then(median);
        let hardware_s = disk_s.unwrap_or(0.0).max(wire_s);
        let beside = self.cells.iter().filter(|c| (c.cell.system, c.cell.bytes) == (system, bytes));
        let beside = beside.filter(|c| c.cell.load_percent > 0.0);
        Some(Parts {
            system,
            bytes,
            bits_s: bytes as f64 * 8.0 / self.rate_bits_per_s as f64,
            disk_s,
            wire_s,
            hardware_s,
            software_s: alone - hardware_s,
            setup_s: self.cell(system, SETUP_BYTES, 0.0).and_then(median),
            contention_s: beside.filter_map(|c| Some((c.cell.load_percent, median(c)? - alone))).collect(),
        })
    }
}

impl CellOutcome {
    fn new(cell: Cell, runs: Vec<Result<Run, String>>, rate: Rate) -> CellOutcome {
        let (mut made, mut failures) = (Vec::new(), Vec::new());
        for run in runs {
            match run {
                Ok(run) => made.push(run),
                Err(why) => failures.push(why),
            }
        }
        let of = |value: fn(&Run) -> f64| Summary::of(&made.iter().map(value).collect::<Vec<_>>());
        CellOutcome {
            limit_seconds: cell.limit_seconds(rate),
            seconds: of(|r| r.seconds),
            load_carried: of(|r| r.load_carried).filter(|_| cell.load_percent > 0.0),
            factor: None,
            paper_factor: cell.system.has_network().then(|| paper_factor(cell.load_percent)).flatten(),
            predicted: None,
            simulated: None,
            baseline: None,
            late: made.iter().filter(|r| !r.in_time).count(),
            cell,
            runs: made,
            failures,
        }
    }

    /// Median over the runs for which `value` is a number.
    pub(super) fn middle(&self, value: impl Fn(&Run) -> f64) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().map(value).filter(|v| !v.is_nan()).collect();
        Summary::of(&values).map(|s| s.median)
    }

    /// Ratio of times by shared seed.
    fn factor_over(&self, quiet: &CellOutcome) -> Option<Summary> {
        if self.cell.load_percent <= 0.0 {
            return None;
        }
        let pair = |run: &Run| Some(run.seconds / quiet.runs.iter().find(|q| q.seed == run.seed)?.seconds);
        Summary::of(&self.runs.iter().filter_map(pair).filter(|v| !v.is_nan()).collect::<Vec<_>>())
    }
}

/// Copy 89, sections 3.2 and 3.3: loads of 10 and 60 % changed nothing, at 98 % copies took about
/// four times as long. (The figures themselves have no numbers.)
fn paper_factor(load_percent: f64) -> Option<f64> {
    match load_percent {
        l if l > 0.0 && l <= 65.0 => Some(1.0),
        98.0 => Some(4.0),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;
    use std::time::Duration;

    use super::*;
    use crate::copy::run::Wire;

    /// A report on synthetic runs: scp copies of 1 MB at 10 Mbit/s, without load and at 60 %, and setup copies.
    pub(in crate::copy) fn report() -> CopyStudyReport {
        // Predictions are slow.
        static REPORT: LazyLock<CopyStudyReport> = LazyLock::new(made_up);
        REPORT.clone()
    }

    fn made_up() -> CopyStudyReport {
        let cell = |system, bytes, load_percent| Cell { system, bytes, load_percent };
        let frames = |n: u64, each_s: f64| Wire { frames: n, seconds: n as f64 * each_s, dropped: 0 };
        let run = |seed: u64, seconds: f64, load: f64| Run {
            seed,
            seconds,
            flow_s: Some(seconds - 0.1),
            load_offered: load,
            load_carried: load,
            load_packet_bytes: 1028,
            there: frames(700, 1.2e-3),
            back: frames(350, 41.6e-6),
            in_time: true,
            ..Run::default()
        };
        let small = |seed| Run { there: frames(9, 1e-4), back: frames(9, 1e-4), ..run(seed, 0.1, 0.0) };
        let runs = |base: f64, load: f64| -> Vec<Result<Run, String>> {
            (1..=6).map(|seed| Ok(run(seed, base + seed as f64 * 0.001, load))).collect()
        };
        let mut loaded = runs(2.3, 0.6);
        loaded.push(Ok(run(7, f64::INFINITY, 0.6)));
        loaded.push(Err("it broke".into()));
        let cells = vec![
            (cell(CopySystem::Scp, SETUP_BYTES, 0.0), (1..=6).map(|s| Ok(small(s))).collect()),
            (cell(CopySystem::Scp, 1_000_000, 0.0), runs(1.0, 0.0)),
            (cell(CopySystem::Scp, 1_000_000, 60.0), loaded),
            (cell(CopySystem::SameDisk, 1_000_000, 0.0), vec![Ok(Run::local(1, Duration::from_millis(20)))]),
        ];
        let peers = vec![CopyPeer { system: CopySystem::Ftp, version: None, missing: Some("install vsftpd".into()) }];
        let options = Options { seeds: 6, command: "remora lab copy".into(), ..Options::default() };
        CopyStudyReport::new(&options, peers, StudyRuns { cells, complete: true, took_s: 60.0 })
    }

    #[test]
    fn report_has_medians_factors_and_parts() {
        let report = report();
        let loaded = report.cell(CopySystem::Scp, 1_000_000, 60.0).unwrap();
        let seconds = loaded.seconds.unwrap();
        assert_eq!((seconds.runs, seconds.censored, loaded.failures.len()), (7, 1, 1));
        assert!((seconds.median - 2.304).abs() < 1e-9);
        // Seeds 1 to 6 have a partner, 7 has none.
        let factor = loaded.factor.unwrap();
        assert!(factor.runs == 6 && (factor.median - 2.295).abs() < 0.01, "{factor:?}");
        assert_eq!(loaded.paper_factor, Some(1.0));
        let [parts] = &report.parts[..] else { panic!("{:?}", report.parts) };
        assert_eq!((parts.disk_s, parts.setup_s), (Some(0.02), Some(0.1)));
        assert!(parts.hardware_s == parts.wire_s && (parts.bits_s - 0.8).abs() < 1e-9);
        assert!((parts.hardware_s + parts.software_s - 1.0035).abs() < 1e-9);
        assert!(matches!(parts.contention_s[..], [(60.0, s)] if (s - 1.3005).abs() < 1e-9), "{parts:?}");
        assert_eq!(report.failures(), 1);
    }
}
