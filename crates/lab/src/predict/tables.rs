//! The tables, for a terminal and for the page.

use std::fmt::Write;

use super::method::Method;
use super::outcome::{GAIN_GOAL, PredictReport, Row, TraceSummary, WASTE_GOAL};
use crate::report::number::{self, or_empty};
use crate::report::table::Table;

impl PredictReport {
    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = format!("Traces\n{}\n", self.trace_table().to_text_within(width));
        // Writing to a `String` cannot fail.
        let _ = writeln!(out, "{}\n{}", self.title(), self.table().to_text_within(width));
        for line in self.verdicts().into_iter().chain(self.troubles()) {
            let _ = writeln!(out, "{line}");
        }
        out
    }

    /// What the rows are.
    pub(super) fn title(&self) -> String {
        let judged = match self.is_tuning {
            true => "the second quarter of each trace, trained on the first",
            false => "the second half of each trace, trained on the first",
        };
        format!("Files opened in {judged}; cache: a tenth of the trace's bytes")
    }

    pub(super) fn trace_table(&self) -> Table {
        let row = |summary: &TraceSummary| {
            vec![
                summary.trace.clone(),
                summary.reads.to_string(),
                summary.files.to_string(),
                number::megabytes(summary.bytes),
                number::megabytes(summary.cache_bytes),
                number::figure(summary.hours),
            ]
        };
        Table::new(1, ["trace", "reads", "files", "bytes", "cache", "hours"], self.traces.iter().map(row))
    }

    pub(super) fn table(&self) -> Table {
        let row = |row: &Row| {
            vec![
                row.trace.clone(),
                row.program.clone().unwrap_or_else(|| "(all)".into()),
                row.method.name().to_owned(),
                row.reads.to_string(),
                format!("{:.1}", row.hit_percent),
                format!("{:+.1}", row.gain_points),
                number::megabytes(row.prefetched_bytes),
                or_empty(row.wasted_percent, |wasted| format!("{wasted:.0}")),
                or_empty(row.lead_ms, |lead| lead.to_string()),
                or_empty(row.lead_accesses, |lead| lead.to_string()),
            ]
        };
        let head = [
            "trace",
            "program",
            "method",
            "reads",
            "hits %",
            "gain",
            "prefetched",
            "wasted %",
            "lead ms",
            "lead opens",
        ];
        Table::new(3, head, self.rows.iter().map(row))
    }

    /// Whether the methods with the model meet the goal.
    pub(super) fn verdicts(&self) -> Vec<String> {
        let verdict = |method: Method| {
            let rows: Vec<&Row> = self.totals().filter(|row| row.method == method).collect();
            let met: Vec<&str> = rows.iter().filter(|row| row.meets_goal()).map(|row| row.trace.as_str()).collect();
            let list = if met.is_empty() { String::new() } else { format!(": {}", met.join(", ")) };
            format!("{}: goal met on {} of {} traces{list}.", method.name(), met.len(), rows.len())
        };
        let goal = format!(
            "Goal: {GAIN_GOAL:+} points of hits over LRU with neighbours, at most {WASTE_GOAL} % of prefetched bytes wasted."
        );
        [goal].into_iter().chain([Method::Model, Method::NeighboursAndModel].map(verdict)).collect()
    }

    /// What was left out of the traces.
    pub(super) fn troubles(&self) -> Vec<String> {
        let trouble = |summary: &TraceSummary| {
            let doubts = &summary.doubts;
            let bad = doubts.first_bad_line.map(|first| {
                let bad = number::count(doubts.bad_lines as u64, "line");
                format!("{}: {bad} not of strace's format, first line {first}", summary.trace)
            });
            let sizeless = (doubts.unknown_sizes > 0).then(|| {
                let opens = number::count(doubts.unknown_sizes as u64, "open");
                format!("{}: {opens} left out: the file's size is unknown", summary.trace)
            });
            [bad, sizeless].into_iter().flatten()
        };
        self.traces.iter().flat_map(trouble).collect()
    }
}
