//! What a study came to: every run, the medians, the parts of a copy's time, and the model's word.

use std::time::Duration;

use remora_base::Rate;
use remora_model::Reason;
use serde::Serialize;

use super::Options;
use super::plan::{Cell, SETUP_BYTES, System};
use super::predict::Given;
use super::stats::Median;

/// Beside a load up to this many percent, and beside more: how far the model may be off.
const BAR: (f64, f64, f64) = (60.0, 10.0, 20.0);

/// What a copy's link carried in one direction.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Wire {
    /// Frames sent.
    pub frames: u64,
    /// Their time on the medium in seconds.
    pub seconds: f64,
    /// Frames that the station's full queue dropped.
    pub dropped: u64,
}

/// One copy.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// How long it took; infinite (JSON: null): it was cut off.
    pub seconds: f64,
    /// The load that its senders were due to send, as a share of the medium.
    pub load_offered: f64,
    /// The load that arrived while the copy ran, as a share of the medium.
    pub load_carried: f64,
    /// The same in packets a second.
    pub load_packets_per_s: f64,
    /// A packet of the load in bytes.
    pub load_packet_bytes: u64,
    /// What the client sent.
    pub there: Wire,
    /// What the server sent to the client.
    pub back: Wire,
    /// How late the emulator was at worst.
    pub lateness_ms: f64,
    /// Whether that was within the bound; a run that was not stays in the figures.
    pub in_time: bool,
}

impl Run {
    /// A copy without a network.
    pub(super) fn local(seed: u64, took: Duration) -> Run {
        Run { seed, seconds: took.as_secs_f64(), in_time: true, ..Run::default() }
    }
}

/// A system, and whether it was there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Peer {
    /// Which.
    pub system: System,
    /// Its version, as far as it tells.
    pub version: Option<String>,
    /// What it takes to have it, if it is not there.
    pub missing: Option<String>,
}

/// A cell and its runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CellOutcome {
    /// What was measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// After so long a copy was cut off.
    pub limit_seconds: f64,
    /// How long the copies took.
    pub seconds: Option<Median>,
    /// The load that was carried, as a share of the medium.
    pub load_carried: Option<Median>,
    /// How many times as long as without load, by pairs of runs with the same seed.
    pub factor: Option<Median>,
    /// Copy 89's factor, where it has one.
    pub paper_factor: Option<f64>,
    /// What the model says, for the load that was carried.
    pub predicted: Option<Predicted>,
    /// Runs beside which the emulator was late.
    pub late: usize,
    /// The runs.
    pub runs: Vec<Run>,
    /// Why runs failed.
    pub failures: Vec<String>,
}

/// The model's word on a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Predicted {
    /// How long the copy takes.
    pub seconds: f64,
    /// How far that is from what was measured, in percent of it.
    pub difference_percent: f64,
    /// How far it may be.
    pub bar_percent: f64,
    /// Whether the figure follows from the one beside it: the software's time is fitted to the
    /// copies without load.
    pub fitted: bool,
    /// Time of the software for a block, in seconds, by that fit.
    pub software_s: f64,
    /// Why to doubt it, by the model's own word.
    pub doubts: Vec<Reason>,
}

/// Where the time of copies of one size goes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Parts {
    /// Who copied.
    pub system: System,
    /// How much.
    pub bytes: u64,
    /// Hardware: the same copy from the disk to the same disk.
    pub disk_s: Option<f64>,
    /// The wire's floor: the time of the copy's own frames on the medium, without load.
    pub wire_s: f64,
    /// Software: what a copy without load takes beyond that.
    pub software_s: f64,
    /// Of which starting, connecting and ending, as a copy of next to nothing shows it.
    pub setup_s: Option<f64>,
    /// Contention: load in percent, and what the copy takes beyond the one without.
    pub contention_s: Vec<(f64, f64)>,
}

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Remora's version.
    pub version: &'static str,
    /// Whether all runs were made; false: it was interrupted.
    pub complete: bool,
    /// The command that makes the same runs.
    pub command: String,
    /// The medium's rate in bits a second.
    pub rate_bits_per_s: u64,
    /// How many times as fast as Copy 89's it is.
    pub compression: f64,
    /// The first seed.
    pub first_seed: u64,
    /// Seeds for each cell.
    pub seeds: u64,
    /// How late the emulator may be in a run that counts as in time.
    pub lateness_ms_bound: f64,
    /// Who was there.
    pub peers: Vec<Peer>,
    /// All cells, in order.
    pub cells: Vec<CellOutcome>,
    /// Where the time goes.
    pub parts: Vec<Parts>,
}

impl Report {
    /// Sums up runs: for each cell those that were made, or why not.
    pub(super) fn new(
        options: &Options,
        peers: Vec<Peer>,
        cells: Vec<(Cell, Vec<Result<Run, String>>)>,
        complete: bool,
    ) -> Report {
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            complete,
            command: options.command.clone(),
            rate_bits_per_s: options.rate.bits(),
            compression: options.rate.bits() as f64 / 1e7,
            first_seed: options.first_seed,
            seeds: options.seeds,
            lateness_ms_bound: options.lateness_max.as_secs_f64() * 1e3,
            peers,
            cells: cells.into_iter().map(|(cell, runs)| CellOutcome::new(cell, runs, options.rate)).collect(),
            parts: Vec::new(),
        };
        for index in 0..report.cells.len() {
            report.compare(index, options.rate);
        }
        report.parts = report.all_parts();
        report
    }

    /// How many runs failed.
    pub fn failures(&self) -> usize {
        self.cells.iter().map(|c| c.failures.len()).sum()
    }

    /// The cell of this system, size and load.
    pub(super) fn cell(&self, system: System, bytes: u64, load_percent: f64) -> Option<&CellOutcome> {
        self.cells.iter().find(|c| c.cell == Cell { system, bytes, load_percent })
    }

    /// Compares a cell with the one without load, and with the model.
    fn compare(&mut self, index: usize, rate: Rate) {
        let Some(own) = self.cells.get(index).filter(|c| c.cell.system.has_network() && !c.cell.is_setup()) else {
            return;
        };
        let Some(quiet) = self.cell(own.cell.system, own.cell.bytes, 0.0) else { return };
        let factor = own.factor_over(quiet);
        let setup = self.cell(own.cell.system, SETUP_BYTES, 0.0);
        let predicted = own.predicted(quiet, setup, rate);
        if let Some(own) = self.cells.get_mut(index) {
            (own.factor, own.predicted) = (factor, predicted);
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
        let beside = self.cells.iter().filter(|c| (c.cell.system, c.cell.bytes) == (system, bytes));
        let beside = beside.filter(|c| c.cell.load_percent > 0.0);
        Some(Parts {
            system,
            bytes,
            disk_s: self.cell(System::SameDisk, bytes, 0.0).and_then(median),
            wire_s,
            software_s: alone - wire_s,
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
        let of = |value: fn(&Run) -> f64| Median::of(&made.iter().map(value).collect::<Vec<_>>());
        CellOutcome {
            limit_seconds: cell.limit_seconds(rate),
            seconds: of(|r| r.seconds),
            load_carried: of(|r| r.load_carried).filter(|_| cell.load_percent > 0.0),
            factor: None,
            paper_factor: cell.system.has_network().then(|| paper_factor(cell.load_percent)).flatten(),
            predicted: None,
            late: made.iter().filter(|r| !r.in_time).count(),
            cell,
            runs: made,
            failures,
        }
    }

    fn middle(&self, value: impl Fn(&Run) -> f64) -> Option<f64> {
        Median::of(&self.runs.iter().map(value).collect::<Vec<_>>()).map(|m| m.median)
    }

    /// Of each seed that both have: how many times as long.
    fn factor_over(&self, quiet: &CellOutcome) -> Option<Median> {
        let pair = |run: &Run| Some(run.seconds / quiet.runs.iter().find(|q| q.seed == run.seed)?.seconds);
        let ratios: Vec<f64> = self.runs.iter().filter_map(pair).collect();
        Median::of(&ratios).filter(|_| self.cell.load_percent > 0.0)
    }

    /// What the model says of this cell, by what the one without load needed.
    fn predicted(&self, quiet: &CellOutcome, setup: Option<&CellOutcome>, rate: Rate) -> Option<Predicted> {
        let measured = self.seconds?.median;
        let alone = quiet.seconds?.median;
        let begun = |value: fn(&Run) -> f64| setup.and_then(|s| s.middle(value)).unwrap_or(0.0);
        // The file's own frames: those of the copy without those of starting and ending.
        let of = |value: fn(&Run) -> f64| quiet.middle(value).map(|v| (v - begun(value)).max(0.0));
        let given = Given {
            rate,
            system: self.cell.system,
            bytes: self.cell.bytes,
            there: (of(|r| r.there.frames as f64)?, of(|r| r.there.seconds)?),
            back: (of(|r| r.back.frames as f64)?, of(|r| r.back.seconds)?),
            load: (0.0, 0),
        };
        if !(measured.is_finite() && alone.is_finite()) {
            return None;
        }
        // Starting takes what a copy of next to nothing took, but no more than the medium leaves of
        // the copy without load: a busy machine makes short runs longer than parts of long ones.
        let bare = given.predict(0.0)?.seconds;
        let setup_s = setup.and_then(|s| s.seconds).map_or(0.0, |s| s.median).min((alone - bare).max(0.0));
        let software_s = given.calibrate(alone - setup_s);
        let packet_bytes = self.runs.iter().map(|r| r.load_packet_bytes).max()?;
        let loaded = Given { load: (self.middle(|r| r.load_packets_per_s)?, packet_bytes), ..given };
        let prediction = loaded.predict(software_s)?;
        let seconds = setup_s + prediction.seconds;
        let (to, within, beyond) = BAR;
        Some(Predicted {
            seconds,
            difference_percent: (seconds / measured - 1.0) * 100.0,
            bar_percent: if self.cell.load_percent <= to { within } else { beyond },
            fitted: self.cell.load_percent == 0.0,
            software_s,
            doubts: prediction.doubts,
        })
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
    use super::*;

    /// A report on made-up runs: copies by scp of 1 MB at 10 Mbit/s, without load and at 60 %, and
    /// what starting takes.
    pub(in super::super) fn report() -> Report {
        let cell = |system, bytes, load_percent| Cell { system, bytes, load_percent };
        let frames = |n: u64, each_s: f64| Wire { frames: n, seconds: n as f64 * each_s, dropped: 0 };
        let run = |seed: u64, seconds: f64, load: f64| Run {
            seed,
            seconds,
            load_carried: load,
            load_packets_per_s: load * 1e7 / 8224.0,
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
            (cell(System::Scp, SETUP_BYTES, 0.0), (1..=6).map(|s| Ok(small(s))).collect()),
            (cell(System::Scp, 1_000_000, 0.0), runs(1.0, 0.0)),
            (cell(System::Scp, 1_000_000, 60.0), loaded),
            (cell(System::SameDisk, 1_000_000, 0.0), vec![Ok(Run::local(1, Duration::from_millis(20)))]),
        ];
        let peers = vec![Peer { system: System::Ftp, version: None, missing: Some("install vsftpd".into()) }];
        let options = Options { seeds: 6, command: "remora lab copy".into(), ..Options::default() };
        Report::new(&options, peers, cells, true)
    }

    #[test]
    fn runs_become_medians_factors_and_parts() {
        let report = report();
        let loaded = report.cell(System::Scp, 1_000_000, 60.0).unwrap();
        let seconds = loaded.seconds.unwrap();
        assert_eq!((seconds.runs, seconds.censored, loaded.failures.len()), (7, 1, 1));
        assert!((seconds.median - 2.304).abs() < 1e-9);
        // Seeds 1 to 6 have a partner, 7 has none.
        let factor = loaded.factor.unwrap();
        assert!(factor.runs == 6 && (factor.median - 2.295).abs() < 0.01, "{factor:?}");
        assert_eq!(loaded.paper_factor, Some(1.0));
        let [parts] = &report.parts[..] else { panic!("{:?}", report.parts) };
        assert_eq!((parts.disk_s, parts.setup_s), (Some(0.02), Some(0.1)));
        assert!((parts.wire_s + parts.software_s - 1.0035).abs() < 1e-9);
        assert!(matches!(parts.contention_s[..], [(60.0, s)] if (s - 1.3005).abs() < 1e-9), "{parts:?}");
        assert_eq!(report.failures(), 1);
    }

    #[test]
    fn the_model_is_fitted_without_load_and_says_the_rest() {
        let report = report();
        let quiet = report.cell(System::Scp, 1_000_000, 0.0).unwrap().predicted.clone().unwrap();
        assert!(quiet.fitted && quiet.difference_percent.abs() < 1.0, "{quiet:?}");
        let loaded = report.cell(System::Scp, 1_000_000, 60.0).unwrap().predicted.clone().unwrap();
        assert!(!loaded.fitted && loaded.bar_percent == 10.0 && loaded.software_s == quiet.software_s);
        assert!(loaded.difference_percent.abs() < 10.0, "{loaded:?}");
    }

    #[test]
    fn a_slow_start_on_a_busy_machine_does_not_spoil_the_fit() {
        let mut report = report();
        let setup = report.cells.iter_mut().find(|c| c.cell.is_setup()).unwrap();
        // Longer than what the medium leaves of the whole copy.
        setup.seconds = Median::of(&[0.9]);
        for index in 0..report.cells.len() {
            report.compare(index, Rate::mbit(10));
        }
        let quiet = report.cell(System::Scp, 1_000_000, 0.0).unwrap().predicted.clone().unwrap();
        assert!(quiet.difference_percent.abs() < 1.0, "{quiet:?}");
    }
}
