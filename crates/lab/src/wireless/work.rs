//! All runs of all experiments in one pool, with results at any time, so that an interruption loses nothing.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use remora_channel::Distribution;

use super::cell::{Cell, RunError, Runner, Sample};
use super::experiments::experiment::{Experiment, SEEDS};
use super::job::name_of;
use super::outcome::{CellOutcome, Conditions, ExperimentOutcome, WirelessReport};
use super::real::peers;
use crate::report::pool;
use crate::report::progress::bar;
use crate::report::provenance::{Provenance, SeedRun};

#[derive(Clone, Debug)]
pub struct Options {
    pub experiments: Vec<&'static Experiment>,
    pub first_seed: u64,
    /// Seeds for each cell, 1 to `SEEDS_MAX`; `None`: the experiment's default.
    pub seeds: Option<u64>,
    /// Results do not depend on it.
    pub threads: NonZeroUsize,
    /// Show a progress bar on a terminal.
    pub bar: bool,
    /// Command line for the report.
    pub command: String,
    /// Only cells at these levels, on each axis that has one of them.
    pub only: Vec<String>,
    /// Distribution of good and bad periods, in place of the experiments' own.
    pub distribution: Option<Distribution>,
    /// Other systems, for the report.
    pub peers: Vec<peers::Peer>,
    pub conditions: Option<Conditions>,
}

pub fn run(options: Options, runner: impl Runner) -> Result<WirelessReport, PlanError> {
    let work = Work::plan(options, runner)?;
    work.run(|_| ());
    Ok(work.report())
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// No chosen experiment has this level.
    #[error("no chosen experiment has the level '{level}'; the levels are\n{levels}")]
    Level { level: String, levels: String },
    /// No cell at these levels can run here.
    #[error("no cell to run: no system on this machine has one at these levels; the levels are\n{0}")]
    Nothing(String),
}

#[derive(Debug)]
pub struct Work<R> {
    options: Options,
    runner: R,
    tables: Vec<ExperimentTable>,
    made: Mutex<Vec<CellResults>>,
    told: Mutex<usize>,
}

/// Results by cell and seed.
type CellResults = Vec<Vec<Option<Result<Sample, RunError>>>>;

/// The cells of an experiment that will run.
#[derive(Debug)]
struct ExperimentTable {
    experiment: &'static Experiment,
    cells: Vec<Cell>,
    seeds: u64,
}

/// A run. Runs are ordered by seed, so that runs that wait for one another come one by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct RunKey {
    table: usize,
    seed: usize,
    cell: usize,
}

impl<R: Runner> Work<R> {
    /// Selects the cells that the options name and the runner supports.
    pub fn plan(options: Options, runner: R) -> Result<Work<R>, PlanError> {
        let all: Vec<Vec<Cell>> = options.experiments.iter().map(|e| cells(e, options.distribution)).collect();
        let labels = || all.iter().flatten().flat_map(|c| &c.labels);
        if let Some(level) = options.only.iter().find(|only| labels().all(|l| l.level != **only)) {
            return Err(PlanError::Level { level: level.clone(), levels: levels(&all) });
        }
        let chosen: BTreeSet<&str> = labels().filter(|l| options.only.contains(&l.level)).map(|l| l.axis).collect();
        let wanted = |cell: &&Cell| {
            cell.labels.iter().all(|l| !chosen.contains(l.axis) || options.only.contains(&l.level))
                && runner.takes(&cell.job)
        };
        let table = |(experiment, cells): (&&'static Experiment, &Vec<Cell>)| ExperimentTable {
            experiment,
            cells: cells.iter().filter(wanted).cloned().collect(),
            seeds: experiment.seeds(options.seeds),
        };
        let tables: Vec<ExperimentTable> =
            options.experiments.iter().zip(&all).map(table).filter(|t| !t.cells.is_empty()).collect();
        if tables.is_empty() {
            return Err(PlanError::Nothing(levels(&all)));
        }
        let empty =
            |t: &ExperimentTable| vec![vec![None; usize::try_from(t.seeds).unwrap_or(usize::MAX)]; t.cells.len()];
        let made = Mutex::new(tables.iter().map(empty).collect());
        Ok(Work { options, runner, tables, made, told: Mutex::new(0) })
    }

    /// Makes all runs on one pool. `ended` is called for each experiment when it and all before it have ended.
    pub fn run(&self, ended: impl Fn(&ExperimentOutcome) + Sync) {
        let places = self.places();
        let bar = bar(places.len() as u64, "runs", self.options.bar);
        let work = |n: usize| {
            let Some(place) = places.get(n) else { return };
            self.make(*place);
            self.tell(|outcome| bar.suspend(|| ended(outcome)));
        };
        pool::map(places.len(), self.options.threads, work, || bar.inc(1));
        bar.finish_and_clear();
    }

    /// All runs, in order.
    fn places(&self) -> Vec<RunKey> {
        let mut places = Vec::new();
        for (table, results) in self.made().iter().enumerate() {
            for (cell, seeds) in results.iter().enumerate() {
                places.extend((0..seeds.len()).map(|seed| RunKey { table, seed, cell }));
            }
        }
        places.sort();
        places
    }

    fn make(&self, place: RunKey) {
        let Some(cell) = self.tables.get(place.table).and_then(|t| t.cells.get(place.cell)) else { return };
        let seed = self.seed(place.seed);
        let result = self.runner.run(&cell.job.drawn(seed), seed, cell.limit);
        let mut made = self.made();
        let table = made.get_mut(place.table).and_then(|t| t.get_mut(place.cell));
        if let Some(slot) = table.and_then(|c| c.get_mut(place.seed)) {
            *slot = Some(result);
        }
    }

    fn tell(&self, ended: impl Fn(&ExperimentOutcome)) {
        // The lock keeps reports in order. The results are not locked: the callback may be slow.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(table) = self.tables.get(*told) {
            let outcome = {
                let made = self.made();
                let results = made.get(*told).filter(|r| r.iter().flatten().all(Option::is_some));
                results.map(|results| self.outcome(table, results))
            };
            let Some(outcome) = outcome else { return };
            ended(&outcome);
            *told = told.saturating_add(1);
        }
    }

    pub fn report(&self) -> WirelessReport {
        let made = self.made();
        let runs = || made.iter().flatten().flatten();
        let begun = self.tables.iter().zip(made.iter()).filter(|(_, r)| r.iter().flatten().any(Option::is_some));
        WirelessReport {
            made: Provenance::new(
                self.runner.source(),
                &self.options.command,
                self.options.first_seed,
                self.options.seeds.unwrap_or(SEEDS),
            ),
            complete: runs().all(Option::is_some),
            peers: self.options.peers.clone(),
            conditions: self.options.conditions,
            experiments: begun.map(|(table, results)| self.outcome(table, results)).collect(),
        }
    }

    /// The experiments that were not reported yet, as text with tables at most `width` characters wide. Nothing is
    /// reported afterwards.
    pub fn rest(&self, report: &WirelessReport, width: usize) -> String {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let rest: String = report.experiments.iter().skip(*told).map(|ended| ended.to_text(width)).collect();
        *told = usize::MAX;
        rest + &report.footer()
    }

    fn outcome(&self, table: &ExperimentTable, results: &CellResults) -> ExperimentOutcome {
        let cell = |(cell, results): (&Cell, &Vec<Option<Result<Sample, RunError>>>)| {
            let run = |(n, r): (usize, &Option<Result<Sample, RunError>>)| {
                Some(SeedRun { seed: self.seed(n), result: r.clone()? })
            };
            let runs = results.iter().enumerate().filter_map(run).collect();
            CellOutcome::new(table.experiment, cell, self.runner.source(), runs)
        };
        ExperimentOutcome::new(table.experiment, table.seeds, table.cells.iter().zip(results).map(cell).collect())
    }

    fn seed(&self, n: usize) -> u64 {
        self.options.first_seed.wrapping_add(n as u64)
    }

    fn made(&self) -> MutexGuard<'_, Vec<CellResults>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cells of an experiment, with `distribution` if given: where that is an axis, the cells at its level; otherwise
/// all cells, without the papers' results, which are for uniform periods.
fn cells(experiment: &Experiment, distribution: Option<Distribution>) -> Vec<Cell> {
    let cells = (experiment.cells)();
    let Some(distribution) = distribution else { return cells };
    let is_other = |cell: &Cell| cell.level("distribution").is_some_and(|level| level != name_of(distribution));
    let with = |cell: Cell| {
        let paper = cell.paper.filter(|_| distribution == Distribution::Uniform);
        Cell { job: cell.job.distributed(distribution), paper, ..cell }
    };
    cells.into_iter().filter(|cell| !is_other(cell)).map(with).collect()
}

/// One line for each axis, with its levels.
fn levels(all: &[Vec<Cell>]) -> String {
    let mut axes: Vec<(&str, Vec<&str>)> = Vec::new();
    for label in all.iter().flatten().flat_map(|c| &c.labels) {
        match axes.iter_mut().find(|(axis, _)| *axis == label.axis) {
            Some((_, levels)) if levels.contains(&label.level.as_str()) => {}
            Some((_, levels)) => levels.push(&label.level),
            None => axes.push((label.axis, vec![&label.level])),
        }
    }
    let mut text = String::new();
    for (axis, levels) in axes {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  {axis}: {}", levels.join(", "));
    }
    text.trim_end().to_owned()
}
