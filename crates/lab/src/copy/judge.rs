//! Predictions beside measurements: fitted to copies of one size without load, and their errors.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::thread;

use super::outcome::{CellOutcome, CopyPeer, CopyStudyReport, Predicted};
use super::plan::{CopySystem, SETUP_BYTES};
use super::predict::{BackgroundLoad, CopyProgram, Frames, On, Seen};
use super::run::Run;
use crate::report::pool;

/// Load in percent up to which the first limit applies, and the largest error of a prediction in percent below and
/// above it.
const TOLERANCE: (f64, f64, f64) = (60.0, 10.0, 20.0);

/// Accuracy of predictions.
#[derive(Clone, PartialEq, Debug)]
pub struct Accuracy {
    pub by: &'static str,
    pub good: usize,
    /// Number of predictions, without fitted ones.
    pub all: usize,
    pub out: Vec<String>,
    pub worst_percent: f64,
}

impl CopyStudyReport {
    /// Fits every system to its smallest files without load and predicts all its other cells.
    pub(super) fn predict(&mut self, on: On) {
        let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let fit = |i: usize| CopySystem::ALL.get(i).and_then(|s| Some((*s, self.fit(*s, on)?)));
        let programs = pool::map(CopySystem::ALL.len(), threads, fit, || ()).into_iter().flatten();
        let programs: BTreeMap<CopySystem, (u64, CopyProgram)> = programs.collect();
        self.fitted = programs.iter().map(|(system, (_, program))| program.about(*system)).collect();
        let one = |i: usize| {
            let cell = self.cells.get(i)?;
            let (fitted_to, program) = programs.get(&cell.cell.system)?;
            (!cell.cell.is_setup()).then(|| cell.predictions(program, *fitted_to, self.made.first_seed)).flatten()
        };
        let all = pool::map(self.cells.len(), threads, one, || ());
        let baselines: Vec<Option<Predicted>> = self.cells.iter().map(|cell| self.baseline(cell)).collect();
        for ((cell, found), baseline) in self.cells.iter_mut().zip(all).zip(baselines) {
            (cell.predicted, cell.simulated) = found.unwrap_or_default();
            cell.baseline = baseline;
        }
    }

    /// `setup + bytes / (rate x (1 - carried load))`, with the setup of a copy of [`SETUP_BYTES`] without load; nothing
    /// of it is fitted. `None` where the load leaves nothing.
    fn baseline(&self, cell: &CellOutcome) -> Option<Predicted> {
        if !cell.is_to_be_predicted() {
            return None;
        }
        let measured = cell.seconds.map(|s| s.median).filter(|m| m.is_finite())?;
        let setup_s = self.cell(cell.cell.system, SETUP_BYTES, 0.0)?.seconds?.median;
        let left = 1.0 - cell.load_carried.map_or(0.0, |load| load.median);
        let seconds = setup_s + cell.cell.bytes as f64 * 8.0 / (self.rate_bits_per_s as f64 * left);
        (left > 0.0).then(|| Predicted::judged(seconds, measured, cell.cell.load_percent))
    }

    /// What was not run, not judged or out of tolerance; empty if the study is complete. `named`: systems were named on the
    /// command line. `check`: everything must run, and predictions count.
    pub fn objections(&self, named: bool, check: bool) -> Vec<String> {
        let absent = |p: &CopyPeer| p.missing.as_ref().map(|why| format!("{} was not run: {why}", p.system.name()));
        let mut all: Vec<String> = self.peers.iter().filter(|_| named || check).filter_map(absent).collect();
        let is_empty = self.cells.iter().all(|c| c.runs.is_empty());
        if is_empty {
            all.push("no run was made".into());
        }
        if check {
            let verdicts = self.verdicts();
            let out: usize = verdicts.iter().map(|v| v.out.len()).sum();
            match out {
                0 if verdicts.is_empty() && !is_empty => all.push("there is no prediction to judge".into()),
                0 => {}
                1 => all.push("a prediction is out of tolerance".into()),
                n => all.push(format!("{n} predictions are out of tolerance")),
            }
        }
        all
    }

    fn fit(&self, system: CopySystem, on: On) -> Option<(u64, CopyProgram)> {
        let quiet = self.cells.iter().filter(|c| c.cell.system == system && c.cell.load_percent == 0.0);
        let quiet = quiet.filter(|c| !c.cell.is_setup()).min_by_key(|c| c.cell.bytes)?;
        let setup = self.cell(system, SETUP_BYTES, 0.0)?;
        let frames = |cell: &CellOutcome| {
            let of = |value: fn(&Run) -> f64| cell.middle(value);
            let there = Frames { count: of(|r| r.there.frames as f64)?, seconds: of(|r| r.there.seconds)? };
            let back = Frames { count: of(|r| r.back.frames as f64)?, seconds: of(|r| r.back.seconds)? };
            Some((there, back))
        };
        let flow = |r: &Run| r.flow_s.unwrap_or(f64::NAN);
        let seen = Seen {
            on,
            bytes: quiet.cell.bytes,
            flow_s: quiet.middle(flow)?,
            rest_s: quiet.middle(|r| r.flow_s.map_or(f64::NAN, |flow_s| (r.seconds - flow_s).max(0.0)))?,
            frames: frames(quiet)?,
            begun: frames(setup)?,
        };
        let is_whole = seen.flow_s.is_finite() && seen.rest_s.is_finite();
        is_whole.then(|| (seen.bytes, CopyProgram::fitted(&seen)))
    }

    /// Verdicts on the model and the simulator, if there are predictions.
    pub fn verdicts(&self) -> Vec<Accuracy> {
        let of = |by, pick: fn(&CellOutcome) -> Option<&Predicted>| {
            let mut verdict = Accuracy { by, good: 0, all: 0, out: Vec::new(), worst_percent: 0.0 };
            for cell in self.cells.iter().filter(|c| c.is_to_be_predicted()) {
                let Some(predicted) = pick(cell) else {
                    // The basis of a prediction may be missing after an interruption.
                    if !self.complete {
                        continue;
                    }
                    // No prediction covers copies that do not end.
                    let why = if cell.has_ended() { "none" } else { "cut off" };
                    verdict.all += 1;
                    verdict.out.push(format!("{} ({why})", cell.cell));
                    continue;
                };
                if predicted.fitted {
                    continue;
                }
                verdict.all += 1;
                verdict.worst_percent = verdict.worst_percent.max(predicted.difference_percent.abs());
                match predicted.is_within_tolerance() {
                    true => verdict.good += 1,
                    false => verdict.out.push(format!("{} ({:+.0} %)", cell.cell, predicted.difference_percent)),
                }
            }
            verdict
        };
        let both = [of("the model", |c| c.predicted.as_ref()), of("the simulator", |c| c.simulated.as_ref())];
        both.into_iter().filter(|v| v.all > 0).collect()
    }
}

impl CellOutcome {
    /// Whether it is a network copy of more than setup size.
    fn is_to_be_predicted(&self) -> bool {
        self.cell.system.has_network() && !self.cell.is_setup() && self.seconds.is_some()
    }

    fn has_ended(&self) -> bool {
        self.seconds.is_some_and(|s| s.median.is_finite())
    }

    fn predictions(
        &self,
        program: &CopyProgram,
        fitted_to: u64,
        seed: u64,
    ) -> Option<(Option<Predicted>, Option<Predicted>)> {
        let measured = self.seconds.map(|s| s.median).filter(|m| m.is_finite())?;
        let packet_bytes = self.runs.iter().map(|r| r.load_packet_bytes).max()?;
        let load = |value: fn(&Run) -> f64| Some(BackgroundLoad { share: self.middle(value)?, packet_bytes });
        let (offered, carried) = (load(|r| r.load_offered)?, load(|r| r.load_carried)?);
        let fitted = self.cell.load_percent == 0.0 && self.cell.bytes == fitted_to;
        let judged = |seconds: f64, doubts| Predicted {
            fitted,
            doubts,
            ..Predicted::judged(seconds, measured, self.cell.load_percent)
        };
        let bytes = self.cell.bytes;
        let model = program.by_model(bytes, offered, carried).map(|(seconds, doubts)| judged(seconds, doubts));
        let simulated = program.by_simulation(bytes, offered, seed);
        Some((model, simulated.map(|seconds| judged(seconds, Vec::new()))))
    }
}

impl Predicted {
    /// A prediction that nothing was fitted for, beside what was measured.
    fn judged(seconds: f64, measured: f64, load_percent: f64) -> Predicted {
        let (to, within, beyond) = TOLERANCE;
        Predicted {
            seconds,
            difference_percent: (seconds / measured - 1.0) * 100.0,
            tolerance_percent: if load_percent <= to { within } else { beyond },
            fitted: false,
            doubts: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::outcome::tests::report;

    #[test]
    fn model_and_simulator_predict_loaded_cells() {
        let report = report();
        let cell = |load| report.cell(CopySystem::Scp, 1_000_000, load).unwrap();
        for pick in [|c: &CellOutcome| c.predicted.clone(), |c: &CellOutcome| c.simulated.clone()] {
            let quiet = pick(cell(0.0)).unwrap();
            assert!(quiet.fitted && quiet.difference_percent.abs() < 2.0, "{quiet:?}");
            let loaded = pick(cell(60.0)).unwrap();
            assert!(!loaded.fitted && loaded.tolerance_percent == 10.0 && loaded.is_within_tolerance(), "{loaded:?}");
        }
        let [fitted] = &report.fitted[..] else { panic!("{:?}", report.fitted) };
        assert!((fitted.rest_s - 0.1).abs() < 1e-3 && fitted.exchanges == 4.5, "{fitted:?}");
    }

    #[test]
    fn baseline_is_setup_and_bits_at_the_rate_left() {
        let report = report();
        let at = |load| report.cell(CopySystem::Scp, 1_000_000, load).unwrap().baseline.clone().unwrap();
        // 0.1 s of setup; 8 Mbit at 10 Mbit/s, and at 4 Mbit/s beside 60 %.
        assert!((at(0.0).seconds - 0.9).abs() < 1e-9 && (at(60.0).seconds - 2.1).abs() < 1e-9);
        assert!(!at(0.0).fitted, "nothing is fitted");
        assert!((at(60.0).difference_percent - 100.0 * (2.1 / 2.304 - 1.0)).abs() < 1e-9);
        assert_eq!(report.cell(CopySystem::Scp, SETUP_BYTES, 0.0).unwrap().baseline, None);
    }

    #[test]
    fn missing_run_is_an_objection() {
        const FTP: &str = "ftp was not run: install vsftpd";
        let report = report();
        assert_eq!(report.objections(false, false), [""; 0], "what is not here is left out, unless it was named");
        assert_eq!(report.objections(true, false), [FTP]);
        assert_eq!(report.objections(false, true), [FTP]);
        let nothing = CopyStudyReport { cells: Vec::new(), ..report.clone() };
        assert_eq!(nothing.objections(false, false), ["no run was made"]);
        assert_eq!(nothing.objections(true, true), [FTP, "no run was made"]);
        let cells = report.cells.iter().filter(|c| c.cell.load_percent == 0.0).cloned().collect();
        let fitted = CopyStudyReport { cells, peers: Vec::new(), ..report };
        assert_eq!(fitted.objections(true, true), ["there is no prediction to judge"]);
    }

    #[test]
    fn prediction_out_of_tolerance_is_named() {
        let mut report = report();
        for verdict in report.verdicts() {
            assert_eq!((verdict.good, verdict.all, verdict.out.len()), (1, 1, 0), "{verdict:?}");
        }
        for cell in &mut report.cells {
            cell.predicted.iter_mut().filter(|p| !p.fitted).for_each(|p| p.difference_percent = -10.6);
        }
        assert!(report.objections(false, true).contains(&"a prediction is out of tolerance".to_owned()));
        let verdicts = report.verdicts();
        assert_eq!((verdicts[0].good, &verdicts[0].out[..]), (0, &["scp 1 MB at 60 % (-11 %)".to_owned()][..]));
        assert_eq!(verdicts[1].good, 1);
    }

    #[test]
    fn copy_cut_off_is_out_of_tolerance() {
        let mut report = report();
        for cell in report.cells.iter_mut().filter(|c| c.cell.load_percent > 0.0) {
            (cell.predicted, cell.simulated) = (None, None);
            cell.seconds.iter_mut().for_each(|s| s.median = f64::INFINITY);
        }
        for verdict in report.verdicts() {
            assert_eq!((verdict.all, &verdict.out[..]), (1, &["scp 1 MB at 60 % (cut off)".to_owned()][..]));
        }
        assert!(report.objections(false, true).contains(&"2 predictions are out of tolerance".to_owned()));
    }
}
