//! The runs of a study: several workers, each with its own bench and medium.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

use guest::find;
use indicatif::ProgressBar;

use super::bench::CopyBench;
use super::options::Options;
use super::outcome::{CopyPeer, CopyStudyReport, StudyRuns};
use super::plan::{self, Cell, CopySystem, SETUP_BYTES};
use super::run::{Run, Stopped};
use crate::report::progress::bar;
use crate::wireless::cell::RunError;
use crate::wireless::real::peers::{libnfs_version, said};

pub(super) fn cells(options: &Options, systems: &[CopySystem]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &system in systems {
        if system.has_network() {
            cells.push(Cell { system, bytes: SETUP_BYTES, load_percent: 0.0 });
        }
        for &bytes in &options.sizes {
            let loads: &[f64] = if system.has_network() { &options.loads_percent } else { &[0.0] };
            cells.extend(loads.iter().map(|&load_percent| Cell { system, bytes, load_percent }));
        }
    }
    cells
}

/// Runs the study with a progress bar. If `stop` is set, current runs are abandoned and the report has the others.
/// Fails if no bench can start.
pub fn run(options: &Options, stop: &AtomicBool) -> Result<CopyStudyReport, RunError> {
    let began = Instant::now();
    let peers: Vec<CopyPeer> = options.systems.iter().map(|s| look_for(*s)).collect();
    let systems: Vec<CopySystem> = peers.iter().filter(|p| p.missing.is_none()).map(|p| p.system).collect();
    let cells = cells(options, &systems);
    let mut order = plan::order(cells.len(), options.first_seed, options.seeds);
    // Workers pop from the end.
    order.reverse();
    let bar = bar(order.len() as u64, "runs", true);
    let study = StudyWork {
        options,
        systems,
        results: Mutex::new(vec![Vec::new(); cells.len()]),
        cells,
        order: Mutex::new(order),
        disk: RwLock::new(()),
        bar,
        stop,
    };
    let first = CopyBench::start(options, &study.systems)?;
    thread::scope(|scope| {
        let study = &study;
        scope.spawn(move || study.work(Some(first)));
        for _ in 1..options.jobs.get() {
            scope.spawn(move || study.work(None));
        }
    });
    study.bar.finish_and_clear();
    let complete = !stop.load(Ordering::Acquire);
    let results = study.results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let cells = study.cells.into_iter().zip(results).collect();
    Ok(CopyStudyReport::new(options, peers, StudyRuns { cells, complete, took_s: began.elapsed().as_secs_f64() }))
}

type RunResult = Result<Run, String>;

struct StudyWork<'a> {
    options: &'a Options,
    systems: Vec<CopySystem>,
    cells: Vec<Cell>,
    /// Remaining runs, the next one last.
    order: Mutex<Vec<(usize, u64)>>,
    results: Mutex<Vec<Vec<RunResult>>>,
    /// Shared by network copies; a disk copy holds it exclusively.
    disk: RwLock<()>,
    bar: ProgressBar,
    stop: &'a AtomicBool,
}

impl StudyWork<'_> {
    /// Runs jobs until none is left.
    fn work(&self, mut bench: Option<CopyBench>) {
        while let Some((index, seed)) = self.next() {
            let Some(cell) = self.cells.get(index) else { continue };
            self.bar.set_message(cell.to_string());
            let outcome = self.one(&mut bench, cell, seed);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if let (Some(outcome), Some(results)) = (outcome, locked(&self.results).get_mut(index)) {
                results.push(outcome);
            }
            self.bar.inc(1);
        }
    }

    fn next(&self) -> Option<(usize, u64)> {
        locked(&self.order).pop()
    }

    fn one(&self, bench: &mut Option<CopyBench>, cell: &Cell, seed: u64) -> Option<RunResult> {
        let failed = |e: RunError| Some(Err(format!("seed {seed}: {e}")));
        let mut here = match bench.take() {
            Some(bench) => bench,
            None => match CopyBench::start(self.options, &self.systems) {
                Ok(bench) => bench,
                Err(e) => return failed(e),
            },
        };
        let copied = if cell.system.has_network() {
            let _shared = self.disk.read().unwrap_or_else(PoisonError::into_inner);
            here.copy(cell, seed, self.stop)
        } else {
            let _alone = self.disk.write().unwrap_or_else(PoisonError::into_inner);
            here.copy(cell, seed, self.stop)
        };
        // A bench is not reused after a failed or cut-off run: its traffic would meet the next.
        let is_clean = matches!(&copied, Ok(Ok(run)) if run.seconds.is_finite());
        *bench = is_clean.then_some(here);
        match copied {
            Ok(Ok(run)) => Some(Ok(run)),
            Ok(Err(Stopped)) => None,
            Err(e) => failed(e),
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look_for(system: CopySystem) -> CopyPeer {
    let missing = system.programs().iter().find(|(program, _)| find(program).is_none());
    let version = || match system {
        CopySystem::Libnfs => find("nfs-cp").map(|p| libnfs_version(&p)),
        CopySystem::Scp => Some(said("ssh", "-V")),
        CopySystem::Rsync => Some(said("rsync", "--version")),
        // vsftpd prints its version on standard input.
        CopySystem::Ftp => Some(said("lftp", "--version")),
        CopySystem::Remora | CopySystem::SameDisk | CopySystem::FromMemory => {
            Some(env!("CARGO_PKG_VERSION").to_owned())
        }
    };
    CopyPeer {
        system,
        version: missing.is_none().then(version).flatten(),
        missing: missing.map(|(_, package)| format!("install {package}")),
    }
}
