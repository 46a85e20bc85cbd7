//! Experiments as text tables.

use std::fmt::{self, Display, Formatter, Write};

use super::cell::Measure;
use super::outcome::{CellOutcome, Conditions, ExperimentOutcome, WirelessReport};
use crate::report::number::count;
use crate::report::provenance::Source;
use crate::report::statistics::Summary;
use crate::report::table::Table;

impl WirelessReport {
    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let experiments: String = self.experiments.iter().map(|outcome| outcome.to_text(width)).collect();
        experiments + &self.footer()
    }

    pub fn footer(&self) -> String {
        let mut out = String::new();
        for peer in &self.peers {
            let (version, missing) = (peer.version.as_deref(), peer.missing.as_deref());
            // Writing to a `String` cannot fail.
            let _ = match missing {
                None => writeln!(out, "{}: {}", peer.name, version.unwrap_or_default()),
                Some(missing) => writeln!(out, "{}: skipped, {missing}", peer.name),
            };
        }
        let source = match self.made.source {
            Source::Real => "Real programs on the emulator, in real time",
            Source::Simulated | Source::Paper => "Simulated, in virtual time",
        };
        let _ = writeln!(
            out,
            "{source}{}; {}. Medians; the interval holds the median with 95 %. Runs cut off are shown as > the limit \
             and rank above all others.",
            self.conditions.map(|c| format!(", {c}")).unwrap_or_default(),
            self.seeds_text(),
        );
        if !self.complete {
            out += "Interrupted: not all runs were made.\n";
        }
        out
    }

    /// Number of seeds, and the exceptions.
    pub(super) fn seeds_text(&self) -> String {
        let first = self.experiments.first().map_or(self.made.seeds, |e| e.seeds);
        let usual = if self.experiments.iter().all(|e| e.seeds == first) { first } else { self.made.seeds };
        let others = self.experiments.iter().filter(|e| e.seeds != usual);
        let others: Vec<String> = others.map(|e| format!("{}: {}", e.name, e.seeds)).collect();
        let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
        format!("{} from {}{others}", count(usual, "seed"), self.made.first_seed)
    }
}

impl Display for Conditions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} at a time, no frame later than {} ms", count(self.jobs as u64, "run"), self.lateness_ms_bound)
    }
}

impl ExperimentOutcome {
    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = format!("{}: {}\n{}\n", self.name, self.about, table(self).to_text_within(width));
        for cell in &self.cells {
            for failed in &cell.failures {
                let _ = writeln!(out, "  failed: {}, seed {}: {}", place(cell), failed.seed, failed.why);
            }
        }
        out
    }
}

pub(super) fn place(cell: &CellOutcome) -> String {
    cell.labels.iter().map(|l| l.level.as_str()).collect::<Vec<_>>().join(", ")
}

/// What a column has for a cell.
type Show = dyn Fn(&CellOutcome) -> Option<String>;

/// A column of figures.
struct Column {
    heading: String,
    cell: Box<Show>,
}

impl Column {
    fn new(heading: impl Into<String>, cell: impl Fn(&CellOutcome) -> Option<String> + 'static) -> Column {
        Column { heading: heading.into(), cell: Box::new(cell) }
    }
}

/// One row for each cell; empty columns are left out.
pub(super) fn table(outcome: &ExperimentOutcome) -> Table {
    let mut columns = Vec::new();
    for (n, measure) in outcome.experiment.measures.iter().enumerate() {
        columns.extend(of_measure(*measure, n == 0));
    }
    let compared = outcome.experiment.baseline.is_some() || outcome.cells.iter().any(|c| c.paper.is_some());
    columns.extend(of_floor_and_papers(outcome.experiment.measures.first().copied().filter(|_| compared)));
    columns.retain(|column| outcome.cells.iter().any(|c| (column.cell)(c).is_some()));

    let axes = outcome.cells.first().map(|c| c.labels.iter().map(|l| l.axis.to_owned()).collect()).unwrap_or_default();
    let mut head: Vec<String> = axes;
    let left = head.len();
    head.extend(columns.iter().map(|c| c.heading.clone()));
    let row = |cell: &CellOutcome| {
        let names = cell.labels.iter().map(|l| l.level.clone());
        names.chain(columns.iter().map(|column| (column.cell)(cell).unwrap_or_default())).collect()
    };
    Table::new(left, head, outcome.cells.iter().map(row))
}

fn of_measure(measure: Measure, whole: bool) -> Vec<Column> {
    let of = move |figure: fn(&Summary) -> Option<f64>| {
        move |c: &CellOutcome| figure(c.summary(measure)?).map(|v| show(v, c.limit_seconds, measure.digits()))
    };
    let interval = move |c: &CellOutcome| {
        let (low, high) = c.summary(measure)?.interval()?;
        let show = |v| show(v, c.limit_seconds, measure.digits());
        Some(format!("{} .. {}", show(low), show(high)))
    };
    let median = move |c: &CellOutcome| Some(middle(c.summary(measure)?, c.limit_seconds, measure.digits()));
    let mut columns = vec![Column::new(measure.heading(), median), Column::new("95 % interval", interval)];
    if whole {
        columns.push(Column::new("min", of(|s| Some(s.min))));
        columns.push(Column::new("max", of(|s| Some(s.max))));
    }
    if measure.is_limited() {
        let cut = move |c: &CellOutcome| c.summary(measure).map(|s| s.censored).filter(|n| *n > 0);
        columns.push(Column::new("cut off", move |c| cut(c).map(|n| n.to_string())));
    }
    columns
}

/// `compared` is the measure to show beside the papers' means.
fn of_floor_and_papers(compared: Option<Measure>) -> Vec<Column> {
    let mean = move |c: &CellOutcome| c.summary(compared?)?.mean;
    let percent = |v: f64| format!("{:.0} %", v.round() + 0.0); // no minus before a zero
    vec![
        Column::new("x floor", |c| {
            let median = c.ratio?.median;
            Some(c.ratio_above.map_or_else(|| format!("{median:.2}"), above))
        }),
        Column::new("fastest", |c| c.fastest.filter(|f| *f).map(|_| "*".to_owned())),
        Column::new("simulated", |c| Some(middle(&c.simulated?, c.limit_seconds, 2))),
        Column::new("off by", |c| c.difference_percent.map(|d| format!("{d:+.1} %"))),
        Column::new("late ms", |c| c.lateness_ms_max.map(|l| format!("{l:.1}"))),
        Column::new("repeated", |c| Some(c.repeated.len()).filter(|n| *n > 0).map(|n| n.to_string())),
        Column::new("mean", move |c| mean(c).map(|v| format!("{v:.1}"))),
        Column::new("paper", |c| c.paper.as_ref().map(|p| format!("{:.1}", p.mean))),
        Column::new("reduction", move |c| c.reduction_percent.map(percent)),
        Column::new("95 % interval", move |c| {
            let (low, high) = c.reduction_interval_percent?;
            Some(format!("{:.0} .. {}", low.round() + 0.0, percent(high)))
        }),
        Column::new("paper's", move |c| c.paper_reduction_percent.map(percent)),
    ]
}

/// A median, or its lower bound.
fn middle(summary: &Summary, limit: f64, digits: usize) -> String {
    show(summary.median, summary.median_above(limit), digits)
}

/// A figure, or `>limit` if it was cut off.
fn show(value: f64, limit: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { format!(">{:.0}", limit.floor()) }
}

/// A lower bound, rounded down.
fn above(ratio: f64) -> String {
    format!(">{:.1}", (ratio * 10.0).floor() / 10.0)
}
