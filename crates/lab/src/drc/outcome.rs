//! The report: everything that is shown and that `--json` prints.

use remora_sim::drc::Outcome;
use serde::Serialize;

use super::cell::{Cell, Mode, Paper, Patience, Server, Variation};
use super::options::{Execution, Options};
use crate::report::provenance::{FailedRun, Provenance, SeedRun, Source, separate};
use crate::report::statistics::{Summary, mean_margin};

#[derive(Clone, Debug, Serialize)]
pub struct DrcReport {
    #[serde(flatten)]
    pub made: Provenance,
    /// Acceleration of the real runs' timers and disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faster: Option<f64>,
    pub rows: Vec<Row>,
    /// Example 1 with each form of the cache.
    pub examples: Vec<Example>,
    pub example_failures: Vec<String>,
}

/// Which table a row is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Tables 2 and 3.
    Tables,
    Today,
    Sensitivity,
}

/// A cell with all its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub group: Group,
    pub server: Server,
    pub client: Patience,
    pub cache: Mode,
    pub varied: Option<String>,
    pub sent: Option<Summary>,
    pub duplicates_sent: Option<Summary>,
    pub duplicates_processed: Option<Summary>,
    /// KB per second.
    pub speed: Option<Summary>,
    pub margins: Margins,
    /// Change of the mean speed in percent, over the reference port's cache or none.
    pub change_percent: Option<f64>,
    pub paper: Option<Paper>,
    /// Difference of the means from those of DRC 89, in percent.
    pub difference_percent: Option<Difference>,
    /// Runs with a damaged file.
    pub damaged: usize,
    pub failures: Vec<FailedRun>,
}

/// Half the 95 % intervals of means; `None` if there are too few runs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Margins {
    pub sent: Option<f64>,
    pub duplicates_sent: Option<f64>,
    pub duplicates_processed: Option<f64>,
    /// KB per second.
    pub speed: Option<f64>,
    pub change_percent: Option<f64>,
}

/// Difference of means from those of DRC 89, in percent.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Difference {
    pub sent: f64,
    pub duplicates_sent: f64,
    pub duplicates_processed: Option<f64>,
    /// KB per second.
    pub speed: f64,
    /// The change of speed, in points.
    pub change_points: Option<f64>,
}

/// Largest difference from DRC 89 that counts as near, in percent.
pub(super) const NEAR: f64 = 15.0;
/// Largest difference of a change of speed that counts as near, in points.
pub(super) const CHANGE_NEAR: f64 = 10.0;

/// Example 1 with one form of the cache.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    pub source: Source,
    pub cache: Mode,
    pub events: Vec<Event>,
    /// Final size of the file. The client was told that all bytes were written.
    pub size: u64,
    pub lost: bool,
    #[serde(skip)]
    pub(super) timeline: remora_sim::drc::example::Timeline,
}

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub seconds: f64,
    /// Client, daemon or server.
    pub who: String,
    pub what: String,
}

impl DrcReport {
    pub(super) fn new(options: &Options, rows: Vec<Row>, examples: Vec<Result<Example, String>>) -> DrcReport {
        let (examples, failed): (Vec<_>, Vec<_>) = examples.into_iter().partition(Result::is_ok);
        let (source, faster) = match options.way {
            Execution::Simulated => (Source::Simulated, None),
            Execution::Real { faster } => (Source::Real, Some(faster)),
        };
        DrcReport {
            made: Provenance::new(source, &options.command, options.first_seed, options.seeds),
            faster,
            rows,
            examples: examples.into_iter().flatten().collect(),
            example_failures: failed.into_iter().filter_map(Result::err).collect(),
        }
    }

    /// Runs that failed or damaged the file.
    pub fn failures(&self) -> usize {
        self.rows.iter().map(|r| r.failures.len() + r.damaged).sum::<usize>() + self.example_failures.len()
    }

    pub(super) fn group(&self, group: Group) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| r.group == group)
    }
}

impl Row {
    pub(super) fn new(group: Group, cell: &Cell, runs: Vec<SeedRun<Outcome, String>>) -> Row {
        let (done, failures) = separate(runs);
        let values = |of: fn(&Outcome) -> f64| done.iter().map(|(_, outcome)| of(outcome)).collect::<Vec<_>>();
        let summary = |of: fn(&Outcome) -> f64| Summary::of(&values(of));
        let margins = Margins {
            sent: mean_margin(&values(|o| o.sent.into())),
            duplicates_sent: mean_margin(&values(|o| o.duplicates_sent.into())),
            duplicates_processed: mean_margin(&values(|o| o.duplicates_processed.into())),
            speed: mean_margin(&values(Outcome::speed)),
            change_percent: None,
        };
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
            margins,
            change_percent: None,
            paper: cell.paper(),
            difference_percent: None,
            damaged: done.iter().filter(|(_, outcome)| !outcome.intact).count(),
            failures,
        };
        row.difference_percent = row.difference();
        row
    }

    fn difference(&self) -> Option<Difference> {
        let paper = self.paper?;
        let above = |summary: Option<Summary>, paper: f64| Some(100.0 * (mean(summary)? / paper - 1.0));
        let has_any = paper.duplicates_processed > 0.0;
        Some(Difference {
            sent: above(self.sent, paper.sent)?,
            duplicates_sent: above(self.duplicates_sent, paper.duplicates_sent)?,
            duplicates_processed: above(self.duplicates_processed, paper.duplicates_processed).filter(|_| has_any),
            speed: above(self.speed, paper.speed)?,
            change_points: None,
        })
    }

    pub(super) fn far(&self) -> Vec<String> {
        let Some(d) = self.difference_percent else { return Vec::new() };
        let percents = [
            ("sent", Some(d.sent)),
            ("duplicates", Some(d.duplicates_sent)),
            ("processed", d.duplicates_processed),
            ("KB/s", Some(d.speed)),
        ];
        let percents = percents.into_iter().filter_map(|(what, off)| Some((what, off?, NEAR, " %")));
        let change = d.change_points.map(|off| ("change", off, CHANGE_NEAR, " points"));
        let far = percents.chain(change).filter(|(_, off, near, _)| off.abs() > *near);
        far.map(|(what, off, _, unit)| format!("{}, {}: {what} {off:+.0}{unit}", self.server.name(), self.cache.name()))
            .collect()
    }

    /// Values of DRC 89 that were not measured because runs failed.
    pub(super) fn unmeasured(&self) -> Option<String> {
        let paper = self.paper?;
        let what = match self.difference_percent {
            None => "",
            Some(d) if paper.change_percent.is_some() && d.change_points.is_none() => ": change",
            Some(_) => return None,
        };
        Some(format!("{}, {}{what}", self.server.name(), self.cache.name()))
    }

    /// Whether `other` differs only in its cache.
    fn is_beside(&self, other: &Row) -> bool {
        (self.group, self.server, self.client) == (other.group, other.server, other.client)
            && self.varied == other.varied
    }
}

pub(super) fn mean(summary: Option<Summary>) -> Option<f64> {
    summary?.mean
}

/// Compares the speed of each row with the mean of the unmodified servers beside it, with and without the reference
/// port's cache, which ignores writes: in real time they are two samples of one population. `one_run`: they are the
/// same simulated runs.
pub(super) fn compare(rows: &mut [Row], one_run: bool) {
    // The base speed, and its margin as a share.
    let base = |rows: &[Row], row: &Row| {
        let unmodified: Vec<&Row> = rows.iter().filter(|r| r.is_beside(row) && !r.cache.is_modified()).collect();
        let speeds: Vec<f64> = unmodified.iter().filter_map(|r| mean(r.speed)).collect();
        let speed = (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64)?;
        let margins: Option<Vec<f64>> = unmodified.iter().map(|r| r.margins.speed).collect();
        let of_all = |m: Vec<f64>| m.iter().fold(0.0, |all: f64, m| all.hypot(*m)) / m.len() as f64;
        let margin = if one_run { unmodified.first()?.margins.speed } else { margins.map(of_all) };
        Some((speed, margin.map(|m| m / speed)))
    };
    let changes: Vec<Option<(f64, Option<f64>)>> = rows
        .iter()
        .map(|row| {
            let (base, base_margin) = base(rows, row)?;
            let ratio = mean(row.speed)? / base;
            let margin = row.margins.speed.zip(mean(row.speed)).map(|(m, speed)| m / speed);
            // The error of a ratio of independent means.
            let margin = margin.zip(base_margin).map(|(a, b)| 100.0 * ratio * a.hypot(b));
            Some((100.0 * (ratio - 1.0), margin))
        })
        .collect();
    for (row, change) in rows.iter_mut().zip(changes).filter(|(row, _)| row.cache.is_modified()) {
        let Some((change, margin)) = change else { continue };
        (row.change_percent, row.margins.change_percent) = (Some(change), margin);
        if let (Some(difference), Some(paper)) = (&mut row.difference_percent, row.paper) {
            difference.change_points = paper.change_percent.map(|paper| change - paper);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margin_of_a_change_combines_both_rows() {
        let row = |mode, seconds: [f64; 3]| {
            let outcome =
                |seconds| Outcome { sent: 128, duplicates_sent: 0, duplicates_processed: 0, seconds, intact: true };
            let cell = Cell { server: Server::Small, patience: Patience::Reference, mode, variation: None };
            Row::new(
                Group::Tables,
                &cell,
                (1..).zip(seconds).map(|(seed, s)| SeedRun { seed, result: Ok(outcome(s)) }).collect(),
            )
        };
        let margin = |of: [[f64; 3]; 3], one_run| {
            let [off, reference, full] = of;
            let mut rows = [row(Mode::Off, off), row(Mode::Reference, reference), row(Mode::Full, full)];
            compare(&mut rows, one_run);
            rows[2].margins.change_percent.unwrap()
        };
        let (sure, unsure) = ([1.0; 3], [0.8, 1.0, 1.2]);
        assert_eq!(margin([sure, sure, sure], false), 0.0);
        let one = margin([unsure, sure, sure], false);
        assert!(one > 1.0 && (margin([sure, unsure, sure], false) / one - 1.0).abs() < 1e-9, "whichever it is");
        assert!(
            (margin([unsure, unsure, sure], true) / margin([unsure, unsure, sure], false) - 2f64.sqrt()).abs() < 1e-9
        );
    }
}
