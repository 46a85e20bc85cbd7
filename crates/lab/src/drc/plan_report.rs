//! The runs of DRC 89's plan as a report: table, drawings, JSON.

use std::fmt::Write;
use std::num::NonZeroUsize;

use remora_sim::drc::{CrowdOutcome, run_crowd};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::options::SEEDS_MAX;
use super::plan::{Axis, Level, Plan, PlanCell};
use crate::report::chart::{LevelChart, LevelPoint, Series};
use crate::report::number::{self, or_empty};
use crate::report::page::{Body, Figure, Html, LegendEntry};
use crate::report::pool;
use crate::report::progress::bar;
use crate::report::provenance::{FailedRun, Provenance, SeedRun, Source, separate};
use crate::report::statistics::{Summary, mean_margin};
use crate::report::table::Table;

#[derive(Clone, Debug)]
pub struct PlanOptions {
    pub experiments: Vec<Plan>,
    pub first_seed: u64,
    /// 1 to [`SEEDS_MAX`].
    pub seeds: u64,
    pub threads: NonZeroUsize,
    /// Show a progress bar on a terminal.
    pub bar: bool,
    /// Command line for the report.
    pub command: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    #[serde(flatten)]
    pub made: Provenance,
    pub experiments: Vec<PlanOutcome>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlanOutcome {
    pub name: Plan,
    pub about: &'static str,
    pub rows: Vec<PlanRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlanRow {
    #[serde(serialize_with = "as_map")]
    pub levels: Vec<Level>,
    pub retransmissions: Option<Summary>,
    /// Share of the duplicates that the cache recognised, of those that reached it.
    pub hit_rate: Option<Summary>,
    /// Duplicates that the server executed again.
    pub executed_again: Option<Summary>,
    /// Of these, calls that are not idempotent.
    pub non_idempotent_again: Option<Summary>,
    pub cache_bytes: Option<Summary>,
    /// KB per second of all clients together.
    pub speed: Option<Summary>,
    /// Half the 95 % interval of the mean speed.
    pub speed_margin: Option<f64>,
    /// Runs with a damaged file.
    pub damaged: usize,
    pub failures: Vec<FailedRun>,
}

fn as_map<S: Serializer>(levels: &[Level], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(levels.len()))?;
    for level in levels {
        map.serialize_entry(&level.axis, &level.level)?;
    }
    map.end()
}

/// Runs the experiments, all cells on one pool.
pub fn run_plan(options: &PlanOptions) -> PlanReport {
    let tables: Vec<(Plan, Vec<PlanCell>)> = options.experiments.iter().map(|plan| (*plan, plan.cells())).collect();
    let seeds: Vec<u64> = (0..options.seeds.clamp(1, SEEDS_MAX)).map(|n| options.first_seed.wrapping_add(n)).collect();
    let runs: Vec<(&PlanCell, u64)> = tables
        .iter()
        .flat_map(|(_, cells)| cells)
        .flat_map(|cell| seeds.iter().map(move |seed| (cell, *seed)))
        .collect();
    let bar = bar(runs.len() as u64, "runs", options.bar);
    let work = |n: usize| runs.get(n).map(|(cell, seed)| run_crowd(&cell.crowd, *seed).map_err(|e| e.to_string()));
    let made: Vec<_> = pool::map(runs.len(), options.threads, work, || bar.inc(1)).into_iter().flatten().collect();
    bar.finish_and_clear();
    let mut made = made.into_iter();
    let mut outcome = |(plan, cells): &(Plan, Vec<PlanCell>)| {
        let row = |cell: &PlanCell| {
            let runs = seeds.iter().copied().zip(made.by_ref().take(seeds.len()));
            PlanRow::new(cell, runs.map(|(seed, result)| SeedRun { seed, result }).collect())
        };
        PlanOutcome { name: *plan, about: plan.about(), rows: cells.iter().map(row).collect() }
    };
    let experiments = tables.iter().map(&mut outcome).collect();
    PlanReport {
        made: Provenance::new(Source::Simulated, &options.command, options.first_seed, options.seeds),
        experiments,
    }
}

impl PlanRow {
    fn new(cell: &PlanCell, runs: Vec<SeedRun<CrowdOutcome, String>>) -> PlanRow {
        let (done, failures) = separate(runs);
        let values = |of: &dyn Fn(&CrowdOutcome) -> Option<f64>| -> Vec<f64> {
            done.iter().filter_map(|(_, outcome)| of(outcome)).collect()
        };
        let summary = |of: &dyn Fn(&CrowdOutcome) -> Option<f64>| Summary::of(&values(of));
        PlanRow {
            levels: cell.levels.clone(),
            retransmissions: summary(&|o| Some(o.retransmissions as f64)),
            hit_rate: summary(&CrowdOutcome::hit_rate),
            executed_again: summary(&|o| Some(o.executed_again as f64)),
            non_idempotent_again: summary(&|o| Some(o.non_idempotent_again as f64)),
            cache_bytes: summary(&|o| Some(o.cache_bytes as f64)),
            speed: summary(&|o| Some(o.speed)),
            speed_margin: mean_margin(&values(&|o| Some(o.speed))),
            damaged: done.iter().filter(|(_, outcome)| !outcome.intact).count(),
            failures,
        }
    }

    fn level(&self, axis: Axis) -> Option<&str> {
        self.levels.iter().find(|l| l.axis == axis).map(|l| l.level.as_str())
    }
}

fn mean(summary: Option<Summary>) -> Option<f64> {
    summary?.mean
}

impl PlanOutcome {
    fn table(&self) -> Table {
        let axes: Vec<Axis> = self.rows.first().map(|r| r.levels.iter().map(|l| l.axis).collect()).unwrap_or_default();
        let head = axes.iter().map(Axis::to_string);
        let figures =
            ["retransmissions", "hit rate", "executed again", "not idempotent", "cache KiB", "KB/s"].map(str::to_owned);
        let row = |r: &PlanRow| {
            let count = |summary| or_empty(mean(summary), |n| format!("{n:.1}"));
            let figures = [
                count(r.retransmissions),
                or_empty(mean(r.hit_rate), |rate| format!("{:.1} %", 100.0 * rate)),
                count(r.executed_again),
                count(r.non_idempotent_again),
                or_empty(mean(r.cache_bytes), |bytes| format!("{:.1}", bytes / 1024.0)),
                or_empty(mean(r.speed), |speed| format!("{speed:.1}"))
                    + &or_empty(r.speed_margin, |margin| format!(" ±{margin:.1}")),
            ];
            r.levels.iter().map(|l| l.level.clone()).chain(figures).collect()
        };
        Table::new(axes.len(), head.chain(figures), self.rows.iter().map(row))
    }

    /// One figure for each combination of levels on the axes but the horizontal one: speed and executions again.
    fn figures(&self) -> Result<Vec<Figure>, String> {
        let x = self.name.x();
        let lines: Vec<String> = distinct(self.rows.iter().map(|row| rest(row, x)));
        // Sizes of the two forms have different units.
        let groups = match self.name {
            Plan::CacheSize => distinct(self.rows.iter().filter_map(|r| r.level(Axis::Cache).map(str::to_owned))),
            _ => vec![String::new()],
        };
        let mut figures = Vec::new();
        for group in &groups {
            let rows: Vec<&PlanRow> =
                self.rows.iter().filter(|r| group.is_empty() || r.level(Axis::Cache) == Some(group)).collect();
            let lines: Vec<&String> = lines.iter().filter(|line| rows.iter().any(|r| rest(r, x) == **line)).collect();
            for (y_title, of) in [("KB/s", speed as fn(&PlanRow) -> Option<Summary>), ("executed again", again)] {
                let x_levels = distinct(rows.iter().filter_map(|r| r.level(x).map(str::to_owned)));
                let series: Vec<Series> = lines.iter().map(|line| series(&rows, line, x, &x_levels, of)).collect();
                let chart = LevelChart {
                    x_title: &x.to_string(),
                    x_levels: &x_levels,
                    y_title,
                    logarithmic: false,
                    lines: &series,
                };
                let legend = LegendEntry::series(lines.iter().map(|line| line.as_str()));
                let caption = format!("{}: {y_title}", self.about);
                figures.push(Figure { caption, legend, svg: chart.svg()?, ..Figure::default() });
            }
        }
        Ok(figures)
    }
}

fn speed(row: &PlanRow) -> Option<Summary> {
    row.speed
}

fn again(row: &PlanRow) -> Option<Summary> {
    row.executed_again
}

/// The levels on all axes but one.
fn rest(row: &PlanRow, x: Axis) -> String {
    let others = row.levels.iter().filter(|l| l.axis != x);
    others.map(|l| format!("{} {}", l.axis, l.level)).collect::<Vec<_>>().join(", ")
}

fn series(rows: &[&PlanRow], line: &str, x: Axis, x_levels: &[String], of: fn(&PlanRow) -> Option<Summary>) -> Series {
    let point = |row: &&PlanRow| {
        let level = x_levels.iter().position(|l| Some(l.as_str()) == row.level(x))?;
        let summary = of(row)?;
        let (median, interval) = (summary.median, summary.interval());
        Some(LevelPoint { level, median, interval, is_beyond: false, limit: f64::INFINITY })
    };
    Series { points: rows.iter().filter(|r| rest(r, x) == line).filter_map(point).collect(), circles: Vec::new() }
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

impl PlanReport {
    /// Runs that failed or damaged a file.
    pub fn failures(&self) -> usize {
        self.experiments.iter().flat_map(|e| &e.rows).map(|r| r.failures.len() + r.damaged).sum()
    }

    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        for experiment in &self.experiments {
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                out,
                "{}: {}\n{}",
                experiment.name.name(),
                experiment.about,
                experiment.table().to_text_within(width)
            );
        }
        for line in self.troubles() {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(out, "{}", self.made_how());
        out
    }

    fn made_how(&self) -> String {
        let seeds = number::count(self.made.seeds, "seed");
        format!(
            "Simulated, in virtual time. Means of {seeds} from {}, speeds with 95 % intervals. \"executed again\" counts \
             what the form covers: every call (juszczak), or calls that are not idempotent.",
            self.made.first_seed
        )
    }

    fn troubles(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (plan, row) in self.experiments.iter().flat_map(|e| e.rows.iter().map(|r| (e.name, r))) {
            let levels: Vec<&str> = row.levels.iter().map(|l| l.level.as_str()).collect();
            let place = format!("{}, {}", plan.name(), levels.join(", "));
            lines.extend(row.failures.iter().map(|f| format!("failed: {place}, seed {}: {}", f.seed, f.why)));
            if row.damaged > 0 {
                lines.push(format!("damaged: {place}: a file differed from what was written, {} times", row.damaged));
            }
        }
        lines
    }
}

impl Html for PlanReport {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Sizes and windows of a duplicate request cache");
        body.note(&self.made_how());
        body.provenance(&self.made);
        for line in self.troubles() {
            body.note(&line);
        }
        for experiment in &self.experiments {
            body.table(experiment.about, &experiment.table());
            for figure in experiment.figures()? {
                body.figure(&figure);
            }
        }
        Ok(body.finish("remora lab drc"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_has_rectangular_tables_and_distinct_cells() {
        for plan in Plan::ALL {
            let cells = plan.cells();
            let axes = |c: &PlanCell| c.levels.iter().map(|l| l.axis).collect::<Vec<_>>();
            assert!(
                cells.iter().all(|c| axes(c) == axes(&cells[0])) && axes(&cells[0]).contains(&plan.x()),
                "{plan:?}"
            );
            let places = distinct(cells.iter().map(|c| &c.levels));
            assert_eq!(places.len(), cells.len(), "{plan:?}: two cells in one place");
        }
    }

    #[test]
    fn report_has_rows_figures_and_failures() {
        let cell = &Plan::TimeoutCycles.cells()[0];
        let outcome = CrowdOutcome {
            retransmissions: 40,
            hits: 30,
            executed_again: 10,
            non_idempotent_again: 8,
            cache_bytes: 2048,
            seconds: 10.0,
            speed: 102.4,
            intact: false,
        };
        let runs = vec![SeedRun { seed: 1, result: Ok(outcome) }, SeedRun { seed: 2, result: Err("lost".to_owned()) }];
        let (name, about) = (Plan::TimeoutCycles, Plan::TimeoutCycles.about());
        let report = PlanReport {
            made: Provenance::new(Source::Simulated, "remora lab drc timeout-cycles", 1, 2),
            experiments: vec![PlanOutcome { name, about, rows: vec![PlanRow::new(cell, runs)] }],
        };
        assert_eq!(report.failures(), 2);
        let text = report.to_text(usize::MAX);
        for piece in ["75.0 %", "102.4", "failed: timeout-cycles, juszczak, 1, 0, seed 2: lost", "damaged"] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
        assert_eq!(report.to_html().unwrap().matches("<figure").count(), 2);
    }
}
