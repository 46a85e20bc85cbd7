//! The tables, for a terminal and for the page.

use std::fmt::Write;

use super::outcome::{CHANGE_NEAR, DrcReport, Example, Group, NEAR, Row, mean};
use crate::report::number::{self, or_empty};
use crate::report::provenance::Source;
use crate::report::statistics::Summary;
use crate::report::table::Table;

impl Group {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Group::Tables => "DRC 89, tables 2 and 3: 128 writes of 8 KB, 4 biods, 4 nfsds, 0.7 s x 4",
            Group::Today => "The same load and servers, with the clients of today",
            Group::Sensitivity => {
                "Fitted parameters, a quarter less and a quarter more; and daemons that do not overtake"
            }
        }
    }

    pub(super) const ALL: [Group; 3] = [Group::Tables, Group::Today, Group::Sensitivity];
}

impl DrcReport {
    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        for group in Group::ALL {
            if self.group(group).next().is_some() {
                // Writing to a `String` cannot fail.
                let _ = writeln!(out, "{}\n{}", group.title(), self.table(group).to_text_within(width));
            }
            if group == Group::Tables {
                let _ = writeln!(out, "{}\n", self.nearness());
            }
        }
        for example in &self.examples {
            let _ = writeln!(out, "{}\n{}", example.title(), example.to_text());
        }
        for line in self.troubles() {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(out, "{}", self.made_how());
        out
    }

    /// How the figures were made.
    pub(super) fn made_how(&self) -> String {
        let how = match (self.made.source, self.faster) {
            (Source::Real, Some(1.0)) => {
                "The real server and client on loopback with a slow disk, in real time".to_owned()
            }
            (Source::Real, Some(faster)) => format!(
                "The real server and client on loopback with a slow disk, timers and disk {faster} times as fast; \
                 speeds are those of the original pace. Remora's client is left out: its timers cannot be scaled"
            ),
            _ => "Simulated, in virtual time".to_owned(),
        };
        format!(
            "{how}. Means of {} from {}, with 95 % intervals; the paper's are of 20 runs.",
            number::count(self.made.seeds, "seed"),
            self.made.first_seed
        )
    }

    /// Compares tables 2 and 3 with DRC 89.
    pub(super) fn nearness(&self) -> String {
        let far: Vec<String> = self.group(Group::Tables).flat_map(Row::far).collect();
        let open: Vec<String> = self.group(Group::Tables).filter_map(Row::unmeasured).collect();
        let mut said = Vec::new();
        if !far.is_empty() {
            said.push(format!(
                "More than {NEAR} % from the paper's, changes {CHANGE_NEAR} points: {}.",
                far.join("; ")
            ));
        }
        if !open.is_empty() {
            said.push(format!("Not measured: {}.", open.join("; ")));
        }
        if said.is_empty() {
            said.push(format!("All are within {NEAR} % of the paper's, changes within {CHANGE_NEAR} points."));
        }
        said.join(" ")
    }

    pub(super) fn troubles(&self) -> Vec<String> {
        let mut lines = self.example_failures.clone();
        for row in &self.rows {
            let place = format!("{}, {}, {}", row.server.name(), row.client.name(), row.cache.name());
            lines.extend(row.failures.iter().map(|f| format!("failed: {place}, seed {}: {}", f.seed, f.why)));
            if row.damaged > 0 {
                lines.push(format!("damaged: {place}: the file differed from what was written, {} times", row.damaged));
            }
        }
        lines
    }

    pub(super) fn table(&self, group: Group) -> Table {
        match group {
            Group::Tables => self.tables(),
            Group::Today => self.today(),
            Group::Sensitivity => self.sensitivity(),
        }
    }

    fn tables(&self) -> Table {
        let row = |r: &Row| {
            let (paper, off) = (r.paper, r.difference_percent);
            vec![
                r.server.name().into(),
                r.cache.name().into(),
                figure(r.sent, r.margins.sent),
                show(paper.map(|p| p.sent), 0),
                signed(off.map(|d| d.sent)),
                figure(r.duplicates_sent, r.margins.duplicates_sent),
                show(paper.map(|p| p.duplicates_sent), 0),
                signed(off.map(|d| d.duplicates_sent)),
                figure(r.duplicates_processed, r.margins.duplicates_processed),
                show(paper.map(|p| p.duplicates_processed), 0),
                signed(off.and_then(|d| d.duplicates_processed)),
                figure(r.speed, r.margins.speed),
                show(paper.map(|p| p.speed), 0),
                signed(off.map(|d| d.speed)),
                change(r),
                signed(paper.and_then(|p| p.change_percent)),
                or_empty(off.and_then(|d| d.change_points), |p| format!("{p:+.0}")),
            ]
        };
        let head = [
            "server",
            "cache",
            "sent",
            "paper",
            "off by",
            "duplicates",
            "paper",
            "off by",
            "processed",
            "paper",
            "off by",
            "KB/s",
            "paper",
            "off by",
            "change",
            "paper",
            "off by",
        ];
        Table::new(2, head, self.group(Group::Tables).map(row))
    }

    fn today(&self) -> Table {
        let row = |r: &Row| {
            vec![
                r.client.name().into(),
                r.server.name().into(),
                r.cache.name().into(),
                figure(r.sent, r.margins.sent),
                figure(r.duplicates_sent, r.margins.duplicates_sent),
                figure(r.duplicates_processed, r.margins.duplicates_processed),
                figure(r.speed, r.margins.speed),
                change(r),
            ]
        };
        let head = ["client", "server", "cache", "sent", "duplicates", "processed", "KB/s", "change"];
        Table::new(3, head, self.group(Group::Today).map(row))
    }

    /// A row for each parameter and factor: without a cache, and with Juszczak's.
    fn sensitivity(&self) -> Table {
        let all: Vec<&Row> = self.group(Group::Sensitivity).collect();
        let row = |pair: &[&Row]| match pair {
            [off, modified] => Some(vec![
                off.server.name().into(),
                off.varied.clone().unwrap_or_else(|| "as fitted".into()),
                figure(off.duplicates_sent, off.margins.duplicates_sent),
                figure(modified.duplicates_sent, modified.margins.duplicates_sent),
                figure(off.speed, off.margins.speed),
                figure(modified.speed, modified.margins.speed),
                change(modified),
            ]),
            _ => None,
        };
        let head = ["server", "what", "duplicates, off", "juszczak", "KB/s, off", "juszczak", "change"];
        Table::new(2, head, all.chunks(2).filter_map(row))
    }
}

impl Example {
    pub(super) fn title(&self) -> String {
        let how = if self.source == Source::Real { "on the real server" } else { "simulated" };
        format!("Example 1, cache {}, {how}", self.cache.name())
    }

    fn to_text(&self) -> String {
        let mut out = String::new();
        for event in &self.events {
            let _ = writeln!(out, "  {:>7.3} s  {:<7} {}", event.seconds, event.who, event.what);
        }
        out + &format!("  {}\n", self.verdict())
    }

    pub(super) fn verdict(&self) -> String {
        let told = remora_sim::drc::example::WRITTEN;
        let fate = if self.lost { "the write is lost" } else { "nothing is lost" };
        format!("At the end the file has {} of the {told} bytes written: {fate}.", self.size)
    }
}

fn figure(summary: Option<Summary>, margin: Option<f64>) -> String {
    let margin = or_empty(margin, |m| format!(" ±{m:.1}"));
    show(mean(summary), 1) + &margin
}

fn change(row: &Row) -> String {
    let margin = or_empty(row.margins.change_percent, |m| format!(" ±{m:.0}"));
    signed(row.change_percent) + &margin
}

fn show(value: Option<f64>, digits: usize) -> String {
    or_empty(value, |v| format!("{v:.digits$}"))
}

fn signed(percent: Option<f64>) -> String {
    or_empty(percent, |p| format!("{p:+.0} %"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use remora_sim::drc::Outcome;

    use super::*;
    use crate::drc::cell::{Cell, Mode, Server};
    use crate::drc::options::{Execution, Options};
    use crate::drc::{cell, outcome};
    use crate::report::provenance::SeedRun;

    /// The text if all servers but some did as the paper's, and all runs of those failed.
    fn nearness(has_failed: impl Fn(&Cell) -> bool) -> String {
        let run = |cell: &Cell| {
            let paper = cell.paper().filter(|_| !has_failed(cell)).ok_or_else(|| "lost".to_owned())?;
            let count = |n: f64| n as u32;
            Ok(Outcome {
                sent: count(paper.sent),
                duplicates_sent: count(paper.duplicates_sent),
                duplicates_processed: count(paper.duplicates_processed),
                seconds: 1024.0 / paper.speed,
                intact: true,
            })
        };
        let row = |cell: &Cell| Row::new(Group::Tables, cell, vec![SeedRun { seed: 1, result: run(cell) }]);
        let mut rows: Vec<Row> = cell::tables().iter().map(row).collect();
        outcome::compare(&mut rows, true);
        let options = Options {
            way: Execution::Simulated,
            first_seed: 1,
            seeds: 1,
            sensitivity: false,
            threads: NonZeroUsize::MIN,
            bar: false,
            command: String::new(),
        };
        DrcReport::new(&options, rows, Vec::new()).nearness()
    }

    #[test]
    fn unmeasured_row_is_not_near() {
        assert_eq!(nearness(|_| false), "All are within 15 % of the paper's, changes within 10 points.");
        let one = nearness(|cell| (cell.server, cell.mode) == (Server::Large, Mode::Juszczak));
        assert_eq!(one, "Not measured: large, juszczak.");
        let unmodified = nearness(|cell| cell.server == Server::Small && !cell.mode.is_modified());
        let words = "Not measured: small, off; small, reference; small, juszczak: change; small, full: change.";
        assert_eq!(unmodified, words);
    }
}
