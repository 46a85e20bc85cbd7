//! The tables, for a terminal and for the page.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use remora_sim::atp::{BULK_RATE, ROUND_TRIP};

use super::contention;
use super::options::Experiment;
use super::outcome::{AtpReport, Bulk, Made, Timeline};
use super::verdict::{Rival, Row, WorkloadVerdict};
use super::warning;
use crate::report::number::or_empty;
use crate::report::statistics::Summary;
use crate::report::table::Table;

pub(super) const TITLE: &str =
    "The same as ratios: asynchronous sends to TCP, synchronous ones to one object a round trip";
/// Payload of a full packet, and its IP, UDP and QUIC headers, in bytes.
const PAYLOAD: u32 = 1400;
const OVERHEAD: u32 = 72;
/// Bytes of the acknowledgement.
const ANSWER: u32 = 80;

impl AtpReport {
    /// One row for each size; `None` if there is nothing to compare.
    pub(super) fn ratios(&self) -> Option<Table> {
        let round_trip = self.real.as_ref().map_or(ROUND_TRIP, |r| Duration::from_secs_f64(r.round_trip_ms / 1e3));
        let tcp = self.bulk.iter().find(|b| b.scheme == "tcp");
        let columns: Vec<(String, Vec<(u32, f64)>)> =
            self.bulk.iter().filter_map(|b| Some((b.scheme.clone(), ratios(b, tcp, round_trip)?))).collect();
        let columns: Vec<(&str, &[(u32, f64)])> = columns.iter().map(|(name, points)| (&**name, &**points)).collect();
        (!columns.is_empty()).then(|| by_size(&columns, |ratio| format!("{ratio:.3}")))
    }
}

/// A scheme's ratios by size; `None` for the reference itself, or without TCP.
fn ratios(bulk: &Bulk, tcp: Option<&Bulk>, round_trip: Duration) -> Option<Vec<(u32, f64)>> {
    if bulk.scheme.ends_with("-sync") {
        let ideal = |size: u32| f64::from(size) / whole_round_trip(size, round_trip).as_secs_f64();
        return Some(bulk.points.iter().map(|(size, rate)| (*size, rate / ideal(*size))).collect());
    }
    let tcp = tcp.filter(|tcp| tcp.scheme != bulk.scheme)?;
    let beside = |size: u32| tcp.points.iter().find(|(s, _)| *s == size).map(|(_, rate)| *rate);
    Some(bulk.points.iter().filter_map(|(size, rate)| Some((*size, rate / beside(*size)?))).collect())
}

/// Time from sending an object on an idle link to its acknowledgement: propagation and transmission of both.
fn whole_round_trip(size: u32, propagation: Duration) -> Duration {
    let bytes = size + OVERHEAD * size.div_ceil(PAYLOAD) + ANSWER;
    propagation + Duration::from_secs_f64(f64::from(bytes) / BULK_RATE)
}

pub(super) const TABLE_2: &str = "ATP 02, Table 2 and Figure 6: objects by final status, medians over seeds";
pub(super) const GLANCE: &str = "Delivered in time: share of the oracle's, medians over seeds";
pub(super) const VERDICTS: &str = "Is atp better? High and low objects delivered in time, medians over seeds";
pub(super) const BULK: &str = "ATP 02, Figure 6(a): KB/s by object size, 512 KB/s at most";
pub(super) const STAND_INS: &str = "tcp, mtcp-1 to mtcp-4 and quic are stand-ins: QUIC's loss recovery and CUBIC in \
                                     place of a kernel's TCP. The oracle knows the future and has no header overhead.";

const REAL: &str = "tcp and mtcp-1 to mtcp-4 are the kernel's. The oracle knows the future and has no header overhead.";

impl AtpReport {
    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        let mut add = |title: &str, body: String| {
            // Writing to a `String` cannot fail.
            let _ = writeln!(out, "{title}\n{body}");
        };
        if !self.rows.is_empty() {
            add(TABLE_2, self.statuses().to_text_within(width));
            add(GLANCE, self.glance().to_text_within(width));
        }
        if !self.verdicts.is_empty() {
            add(VERDICTS, self.verdict_table().to_text_within(width));
        }
        if !self.warnings.is_empty() {
            add(warning::TITLE, warning::table(&self.warnings).to_text_within(width) + warning::NOTE + "\n");
        }
        for curve in &self.curves {
            let error = curve_error(&curve.seconds);
            let words = format!("  {}: median error of the estimate: {error} of the bandwidth\n", curve.scheme);
            add(&format!("ATP 02, Figure {}", curve.figure), words);
        }
        for timeline in &self.timelines {
            add(&format!("ATP 02, Figure 5, {}", timeline.scheme), timeline.to_text());
        }
        if !self.bulk.is_empty() {
            add(BULK, self.bulk_table().to_text_within(width));
            if let Some(ratios) = self.ratios() {
                add(TITLE, ratios.to_text_within(width));
            }
        }
        if !self.contention.is_empty() {
            add(contention::TITLE, contention::table(&self.contention).to_text_within(width) + contention::NOTE + "\n");
        }
        for line in self.evidence().into_iter().chain(self.troubles()) {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(out, "{}\n{}", self.made_how(), self.schemes());
        out
    }

    /// How the figures were made.
    pub(super) fn made_how(&self) -> String {
        if let Some(real) = &self.real {
            let has_deadlines = self.made.iter().any(|made| made.experiment == Experiment::Deadlines.name());
            return real.words(&self.made_of(), has_deadlines);
        }
        format!("Simulated, in virtual time. {}", self.made_of())
    }

    pub(super) fn made_of(&self) -> String {
        self.made.iter().map(Made::words).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn schemes(&self) -> &'static str {
        if self.real.is_some() { REAL } else { STAND_INS }
    }

    pub(super) fn troubles(&self) -> Vec<String> {
        self.failures.iter().map(|f| format!("failed: {}, seed {}: {}", f.what, f.run.seed, f.run.why)).collect()
    }

    pub(super) fn statuses(&self) -> Table {
        let head = [
            "workload",
            "class",
            "scheme",
            "objects",
            "oracle",
            "delivered",
            "95 %",
            "of oracle",
            "told",
            "rejected",
            "late",
            "paper",
            "rejected",
            "late",
        ];
        let row = |r: &Row| {
            let paper =
                |of: fn(&super::verdict::Paper) -> u32| r.paper.as_ref().map_or(String::new(), |p| of(p).to_string());
            vec![
                r.workload.into(),
                r.class.into(),
                r.scheme.into(),
                r.objects.to_string(),
                count(r.oracle),
                count(r.delivered),
                interval(r.delivered),
                part(r.of_oracle),
                count(r.told),
                count(r.rejected),
                count(r.late),
                // Doubtful where the three do not make all objects.
                paper(|p| p.delivered) + r.paper.as_ref().filter(|p| p.missing(r.objects) > 0).map_or("", |_| "?"),
                paper(|p| p.rejected),
                paper(|p| p.late),
            ]
        };
        Table::new(3, head, self.rows.iter().map(row))
    }

    /// One row for each workload and class, one column for each scheme.
    pub(super) fn glance(&self) -> Table {
        let mut schemes: Vec<&str> = Vec::new();
        let mut places: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            if !schemes.contains(&row.scheme) {
                schemes.push(row.scheme);
            }
            if !places.contains(&(row.workload, row.class)) {
                places.push((row.workload, row.class));
            }
        }
        let line = |(workload, class): &(&str, &str)| {
            let at = |scheme: &&str| {
                self.rows.iter().find(|r| (r.workload, r.class, r.scheme) == (*workload, *class, *scheme))
            };
            let cells = schemes.iter().map(|s| at(s).map_or(String::new(), |r| part(r.of_oracle)));
            [(*workload).to_owned(), (*class).to_owned()].into_iter().chain(cells).collect()
        };
        Table::new(2, ["workload", "class"].into_iter().chain(schemes.iter().copied()), places.iter().map(line))
    }

    /// One row for each workload.
    pub(super) fn verdict_table(&self) -> Table {
        let head = [
            "workload",
            "verdict",
            "atp",
            "best baseline",
            "atp-paper",
            "oracle",
            "of oracle",
            "at least",
            "paper's ATP",
            "low: atp",
            "baseline as good",
        ];
        let count = |n: Option<f64>| n.map_or_else(String::new, |n| n.to_string());
        // atp's count for the same seeds is shown if it differs from its own column.
        let rival = |r: Option<Rival>, atp: f64| {
            let beside = |r: &Rival| if r.atp == atp { String::new() } else { format!(" (atp: {})", r.atp) };
            r.map_or_else(String::new, |r| format!("{} {}{}", r.delivered, r.scheme, beside(&r)))
        };
        let part = |p: Option<f64>, digits: usize| p.map_or_else(String::new, |p| format!("{p:.digits$}"));
        let line = |v: &WorkloadVerdict| {
            vec![
                v.workload.into(),
                if v.missed.is_empty() { "ok".into() } else { v.missed.join("; ") },
                count(v.high),
                rival(v.baseline, v.high.unwrap_or_default()),
                count(v.paper_policy),
                count(v.oracle),
                part(v.of_oracle.map(|(part, _)| part), 3),
                part(v.of_oracle.map(|(_, bar)| bar), 2),
                v.table_2.map_or_else(String::new, |n| n.to_string()),
                count(v.low),
                rival(v.low_baseline, v.low.unwrap_or_default()),
            ]
        };
        Table::new(2, head, self.verdicts.iter().map(line))
    }

    pub(super) fn bulk_table(&self) -> Table {
        let columns: Vec<(&str, &[(u32, f64)])> = self.bulk.iter().map(|b| (&*b.scheme, &*b.points)).collect();
        by_size(&columns, |rate| format!("{:.0}", rate / 1024.0))
    }
}

/// One row for each size in any column; a failed cell is empty.
pub(super) fn by_size(columns: &[(&str, &[(u32, f64)])], show: impl Fn(f64) -> String) -> Table {
    let sizes: BTreeSet<u32> = columns.iter().flat_map(|(_, points)| *points).map(|(size, _)| *size).collect();
    let line = |size: u32| {
        let of = |points: &[(u32, f64)]| points.iter().find(|(s, _)| *s == size).map(|(_, figure)| show(*figure));
        let cells = columns.iter().map(|(_, points)| of(points).unwrap_or_default());
        std::iter::once((size >> 10).to_string()).chain(cells).collect()
    };
    let head = std::iter::once("object, KB").chain(columns.iter().map(|(name, _)| *name));
    Table::new(0, head, sizes.into_iter().map(line))
}

impl Timeline {
    pub(super) fn to_text(&self) -> String {
        self.events.iter().map(|e| format!("  {:>8.3} s  {}\n", e.at, e.what)).collect()
    }
}

/// Median error of the estimate in percent, where both exist.
pub(super) fn curve_error(seconds: &[super::outcome::Instant]) -> String {
    let off = |s: &super::outcome::Instant| Some(100.0 * ((s.estimate? - s.bandwidth) / s.bandwidth).abs());
    let errors: Vec<f64> = seconds.iter().filter(|s| s.bandwidth > 1.0 && s.at > 1.0).filter_map(off).collect();
    Summary::of(&errors).map_or_else(|| "?".to_owned(), |s| format!("{:.0} %", s.median))
}

/// A median of integers; it may end in .5.
fn count(summary: Option<Summary>) -> String {
    or_empty(summary, |s| s.median.to_string())
}

fn part(summary: Option<Summary>) -> String {
    or_empty(summary, |s| format!("{:.3}", s.median))
}

fn interval(summary: Option<Summary>) -> String {
    or_empty(summary.and_then(|s| s.interval()), |(low, high)| format!("{low:.0}..{high:.0}"))
}

#[cfg(test)]
mod tests {
    use remora_sim::atp::{Protocol, Sends};

    use super::*;
    use crate::atp::job::{Job, JobResult};
    use crate::atp::options::{Experiment, Options};

    #[test]
    fn whole_round_trip_includes_transmission_times() {
        for (size, ms) in [(1024, 12.243), (2048, 14.333), (1 << 20, 2113.2)] {
            let took = whole_round_trip(size, ROUND_TRIP).as_secs_f64() * 1e3;
            assert!((took / ms - 1.0).abs() < 1e-3, "{size}: {took} ms");
        }
    }

    #[test]
    fn sends_are_compared_with_their_reference() {
        let bulk = |scheme: &str, rate: f64| Bulk { scheme: scheme.into(), points: vec![(1024, rate)] };
        let tcp = bulk("tcp", 500e3);
        assert_eq!(ratios(&bulk("atp-async", 480e3), Some(&tcp), ROUND_TRIP), Some(vec![(1024, 0.96)]));
        assert_eq!(ratios(&bulk("atp-async", 480e3), None, ROUND_TRIP), None);
        assert_eq!(ratios(&tcp, Some(&tcp), ROUND_TRIP), None);
        let sync = ratios(&bulk("atp-sync", 1024.0 / 0.012_243), None, ROUND_TRIP).unwrap();
        assert!((sync[0].1 - 1.0).abs() < 1e-3, "{sync:?}");
    }

    #[test]
    fn failed_size_of_one_scheme_is_an_empty_cell() {
        let cell = |protocol, sends, kb, done| (Job::Bulk(protocol, sends, kb), done);
        let (one, many) = (Sends::Synchronous, Sends::Asynchronous);
        let report = AtpReport::new(
            &Options::simulated(&[Experiment::Bulk]),
            [
                cell(Protocol::Tcp, many, 1, JobResult::Rate(400.0 * 1024.0)),
                cell(Protocol::Tcp, many, 2, JobResult::Failed("late".into())),
                cell(Protocol::Atp, one, 1, JobResult::Failed("late".into())),
                cell(Protocol::Atp, one, 2, JobResult::Rate(2048.0 / 0.014_333)),
                cell(Protocol::Atp, many, 1, JobResult::Rate(200.0 * 1024.0)),
                cell(Protocol::Atp, many, 2, JobResult::Rate(300.0 * 1024.0)),
            ]
            .into_iter(),
        );
        let table = report.bulk_table();
        assert_eq!(table.head, ["object, KB", "tcp", "atp-sync", "atp-async"]);
        assert_eq!(table.rows, [["1", "400", "", "200"], ["2", "", "140", "300"]]);
        let ratios = report.ratios().unwrap();
        assert_eq!(ratios.head, ["object, KB", "atp-sync", "atp-async"]);
        assert_eq!(ratios.rows, [["1", "", "0.500"], ["2", "1.000", ""]]);
    }
}
