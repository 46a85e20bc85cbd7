//! Figures by trace, program and method, and whether the goal is met.

use serde::Serialize;

use super::evaluation::Counts;
use super::input::LoadedTrace;
use super::method::Method;
use super::options::Options;
use super::strace::StraceDoubts;
use super::trace::{AccessKind, Trace};

/// Points of hits above read-ahead, and percent of prefetched bytes wasted, that are the goal.
pub(super) const GAIN_GOAL: f64 = 10.0;
pub(super) const WASTE_GOAL: f64 = 20.0;
/// Programs with fewer judged reads have no row of their own.
const READS_MIN: u64 = 50;

/// A trace and its cache.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceSummary {
    pub trace: String,
    pub reads: usize,
    pub files: usize,
    /// Bytes of all files that are read.
    pub bytes: u64,
    pub cache_bytes: u64,
    pub hours: f64,
    #[serde(flatten)]
    pub doubts: StraceDoubts,
}

/// A method on a trace, for one program or for all.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    pub trace: String,
    /// `None` for all programs together.
    pub program: Option<String>,
    pub method: Method,
    /// Files opened to be read in the judged part.
    pub reads: u64,
    pub hits: u64,
    pub hit_percent: f64,
    /// Points of hits above LRU with the mount's read-ahead.
    pub gain_points: f64,
    pub prefetched_bytes: u64,
    pub wasted_bytes: u64,
    /// Of the prefetched bytes; `None` if there are none.
    pub wasted_percent: Option<f64>,
    /// Medians of the time and the accesses between a prefetch and its use.
    pub lead_ms: Option<u64>,
    pub lead_accesses: Option<u64>,
}

/// The evaluation of all methods on all traces.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PredictReport {
    pub version: &'static str,
    pub command: String,
    pub is_tuning: bool,
    pub order_max: u32,
    pub threshold: f64,
    pub escape: f64,
    pub nodes_max: usize,
    pub traces: Vec<TraceSummary>,
    pub rows: Vec<Row>,
}

/// The counts of a method on a trace.
pub(super) struct Evaluated {
    pub(super) trace: String,
    pub(super) programs: Vec<String>,
    pub(super) method: Method,
    /// Of each program.
    pub(super) counts: Vec<Counts>,
}

impl Evaluated {
    fn total(&self) -> Counts {
        self.counts.iter().fold(Counts::default(), |mut total, counts| {
            total.add(counts);
            total
        })
    }
}

impl PredictReport {
    pub(super) fn new(
        options: &Options,
        traces: &[LoadedTrace],
        cache_parts: u64,
        evaluated: &[Evaluated],
    ) -> PredictReport {
        let summary = |loaded: &LoadedTrace| summary(&loaded.trace, loaded.doubts.clone(), cache_parts);
        let rows = evaluated.chunk_by(|a, b| a.trace == b.trace).flat_map(rows_of_trace).collect();
        PredictReport {
            version: env!("CARGO_PKG_VERSION"),
            command: options.command.clone(),
            is_tuning: options.is_tuning,
            order_max: options.model.order_max,
            threshold: options.model.threshold,
            escape: options.model.escape,
            nodes_max: options.model.nodes_max,
            traces: traces.iter().map(summary).collect(),
            rows,
        }
    }

    /// The rows of all programs together.
    pub(super) fn totals(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.program.is_none())
    }
}

impl Row {
    fn new(trace: &str, program: Option<&str>, method: Method, counts: &Counts, base: &Counts) -> Row {
        Row {
            trace: trace.to_owned(),
            program: program.map(str::to_owned),
            method,
            reads: counts.reads,
            hits: counts.hits,
            hit_percent: hit_percent(counts),
            gain_points: hit_percent(counts) - hit_percent(base),
            prefetched_bytes: counts.prefetched_bytes,
            wasted_bytes: counts.wasted_bytes,
            wasted_percent: percent(counts.wasted_bytes, counts.prefetched_bytes),
            lead_ms: median(&counts.lead_ms),
            lead_accesses: median(&counts.lead_accesses),
        }
    }

    /// Whether it has the goal's hits at the goal's waste.
    pub(super) fn meets_goal(&self) -> bool {
        self.gain_points >= GAIN_GOAL && self.wasted_percent.is_none_or(|wasted| wasted <= WASTE_GOAL)
    }
}

/// The rows of all methods on one trace: all programs together first.
fn rows_of_trace(evaluated: &[Evaluated]) -> Vec<Row> {
    let base = evaluated.iter().find(|evaluated| evaluated.method == Method::Neighbours);
    let base_total = base.map(Evaluated::total).unwrap_or_default();
    let total = |one: &Evaluated| Row::new(&one.trace, None, one.method, &one.total(), &base_total);
    let mut rows: Vec<Row> = evaluated.iter().map(total).collect();
    let programs = evaluated.first().map(|first| first.programs.as_slice()).unwrap_or_default();
    for (number, program) in programs.iter().enumerate() {
        let base = base.and_then(|base| base.counts.get(number)).cloned().unwrap_or_default();
        if base.reads < READS_MIN {
            continue;
        }
        rows.extend(
            evaluated.iter().filter_map(|one| {
                Some(Row::new(&one.trace, Some(program), one.method, one.counts.get(number)?, &base))
            }),
        );
    }
    rows
}

fn summary(trace: &Trace, doubts: StraceDoubts, cache_parts: u64) -> TraceSummary {
    TraceSummary {
        trace: trace.name.clone(),
        reads: trace.accesses.iter().filter(|access| access.kind == AccessKind::Read).count(),
        files: trace.files.len(),
        bytes: trace.bytes(),
        cache_bytes: trace.bytes() / cache_parts,
        hours: trace.accesses.last().map_or(0, |access| access.at_ms) as f64 / 3.6e6,
        doubts,
    }
}

fn hit_percent(counts: &Counts) -> f64 {
    percent(counts.hits, counts.reads).unwrap_or(0.0)
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

fn median(values: &[u64]) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(method: Method, hits: u64) -> Evaluated {
        let counts = |reads, hits| Counts {
            reads,
            hits,
            prefetched_bytes: 100,
            wasted_bytes: 20,
            lead_ms: vec![5, 1, 9],
            ..Counts::default()
        };
        let programs = vec!["often".to_owned(), "seldom".to_owned()];
        Evaluated { trace: "t".into(), programs, method, counts: vec![counts(100, hits), counts(READS_MIN - 1, 0)] }
    }

    #[test]
    fn gain_is_measured_against_read_ahead() {
        let rows = rows_of_trace(&[evaluated(Method::Neighbours, 40), evaluated(Method::Model, 60)]);
        let often = rows.last().unwrap();
        assert_eq!((often.program.as_deref(), rows.len()), (Some("often"), 4), "seldom has too few reads");
        assert_eq!((often.hit_percent, often.gain_points, often.wasted_percent), (60.0, 20.0, Some(20.0)));
        assert_eq!((often.lead_ms, often.lead_accesses), (Some(5), None));
        assert!(often.meets_goal());
        assert!(!Row { wasted_percent: Some(20.1), ..often.clone() }.meets_goal());
        assert!(!Row { gain_points: 9.9, ..often.clone() }.meets_goal());
    }
}
