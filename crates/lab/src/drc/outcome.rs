//! What came of it: everything that the reports show and `--json` prints.

use remora_sim::drc::Outcome;
use serde::Serialize;

use super::cell::{Cell, Mode, Paper, Patience, Server, Variation};
use super::{Options, Way};
use crate::wireless::{Source, Summary};

/// All that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of Remora that ran it.
    pub version: &'static str,
    /// Where the figures come from.
    pub source: Source,
    /// How many times as fast as they would be the real runs' timers and disks are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faster: Option<f64>,
    /// The command that gives this again.
    pub command: String,
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds each cell was run with.
    pub seeds: u64,
    /// A row for each cell.
    pub rows: Vec<Row>,
    /// Example 1 with each form of the cache; always simulated.
    pub examples: Vec<Example>,
}

/// Which table a row is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Tables 2 and 3.
    Tables,
    /// The clients of today.
    Today,
    /// What was fitted, varied.
    Sensitivity,
}

/// A cell with all its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which table it is in.
    pub group: Group,
    /// The server.
    pub server: Server,
    /// The client.
    pub client: Patience,
    /// The cache.
    pub cache: Mode,
    /// What about the model is other than fitted.
    pub varied: Option<String>,
    /// Writes sent.
    pub sent: Option<Summary>,
    /// Of these, sent again.
    pub duplicates_sent: Option<Summary>,
    /// Writes executed again.
    pub duplicates_processed: Option<Summary>,
    /// KB a second.
    pub speed: Option<Summary>,
    /// By how many percent the mean speed is above that with the reference port's cache, or
    /// without one.
    pub change_percent: Option<f64>,
    /// What the paper has.
    pub paper: Option<Paper>,
    /// By how many percent the means lie above the paper's.
    pub difference_percent: Option<Difference>,
    /// Runs after which the file was not what was written.
    pub damaged: usize,
    /// Runs that failed.
    pub failures: Vec<FailedRun>,
}

/// By how many percent means lie above the paper's.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// Writes sent.
    pub sent: f64,
    /// Of these, sent again.
    pub duplicates_sent: f64,
    /// KB a second.
    pub speed: f64,
}

/// A run that failed.
#[derive(Clone, Debug, Serialize)]
pub struct FailedRun {
    /// Its seed.
    pub seed: u64,
    /// What went wrong.
    pub why: String,
}

/// Example 1 with one form of the cache.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// Which.
    pub cache: Mode,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Bytes of the file in the end. The client was told that all are there.
    pub size: u64,
    /// Whether the write is lost.
    pub lost: bool,
    /// To be drawn.
    #[serde(skip)]
    pub(super) timeline: remora_sim::drc::example::Timeline,
}

/// What somebody did in Example 1.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When, in seconds after the first create.
    pub seconds: f64,
    /// Who: the client, a daemon, or the server for both.
    pub who: String,
    /// What.
    pub what: String,
}

impl Report {
    pub(super) fn new(options: &Options, rows: Vec<Row>, examples: Vec<Example>) -> Report {
        let (source, faster) = match options.way {
            Way::Simulated => (Source::Simulated, None),
            Way::Real { faster } => (Source::Real, Some(faster)),
        };
        Report {
            version: env!("CARGO_PKG_VERSION"),
            source,
            faster,
            command: options.command.clone(),
            first_seed: options.first_seed,
            seeds: options.seeds,
            rows,
            examples,
        }
    }

    /// How many runs failed, or left a file that is not what was written.
    pub fn failures(&self) -> usize {
        self.rows.iter().map(|r| r.failures.len() + r.damaged).sum()
    }

    /// The rows of a table.
    pub(super) fn group(&self, group: Group) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| r.group == group)
    }
}

impl Row {
    pub(super) fn new(group: Group, cell: &Cell, runs: Vec<(u64, Result<Outcome, String>)>) -> Row {
        let mut done = Vec::new();
        let mut failures = Vec::new();
        for (seed, run) in runs {
            match run {
                Ok(outcome) => done.push(outcome),
                Err(why) => failures.push(FailedRun { seed, why }),
            }
        }
        let summary = |of: fn(&Outcome) -> f64| Summary::of(&done.iter().map(of).collect::<Vec<_>>());
        let mut row = Row {
            group,
            server: cell.server,
            client: cell.patience,
            cache: cell.mode,
            varied: cell.variation.map(Variation::name),
            sent: summary(|o| o.sent.into()),
            duplicates_sent: summary(|o| o.duplicates_sent.into()),
            duplicates_processed: summary(|o| o.duplicates_processed.into()),
            speed: summary(Outcome::speed),
            change_percent: None,
            paper: cell.paper(),
            difference_percent: None,
            damaged: done.iter().filter(|o| !o.intact).count(),
            failures,
        };
        row.difference_percent = row.difference();
        row
    }

    fn difference(&self) -> Option<Difference> {
        let paper = self.paper?;
        let above = |summary: Option<Summary>, paper: f64| Some(100.0 * (mean(summary)? / paper - 1.0));
        Some(Difference {
            sent: above(self.sent, paper.sent)?,
            duplicates_sent: above(self.duplicates_sent, paper.duplicates_sent)?,
            speed: above(self.speed, paper.speed)?,
        })
    }

    /// Whether `other` is the same but for the cache.
    fn is_beside(&self, other: &Row) -> bool {
        (self.group, self.server, self.client) == (other.group, other.server, other.client)
            && self.varied == other.varied
    }
}

/// The mean of the runs that ended.
pub(super) fn mean(summary: Option<Summary>) -> Option<f64> {
    summary?.mean
}

/// Compares the speeds of rows with the mean of the unmodified servers' beside them, with and without the
/// reference port's cache, which writes make no use of: in real time those are two samples of one thing.
pub(super) fn compare(rows: &mut [Row]) {
    let base = |rows: &[Row], row: &Row| {
        let unmodified = rows.iter().filter(|r| r.is_beside(row) && !r.cache.is_modified());
        let speeds: Vec<f64> = unmodified.filter_map(|r| mean(r.speed)).collect();
        (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64)
    };
    let changes: Vec<Option<f64>> =
        rows.iter().map(|row| Some(100.0 * (mean(row.speed)? / base(rows, row)? - 1.0))).collect();
    for (row, change) in rows.iter_mut().zip(changes) {
        row.change_percent = change.filter(|_| row.cache.is_modified());
    }
}
