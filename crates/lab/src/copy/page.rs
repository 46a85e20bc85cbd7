//! The study as a page: Copy 89's figures 2, 4 and 11 redrawn, and every table.

use std::collections::BTreeSet;

use super::outcome::{CellOutcome, Predicted, Report};
use super::plan::System;
use super::stacked::Stacked;
use super::tables::{figure, megabytes};
use crate::report::chart::{LevelChart, LevelPoint, Mark, Series};
use crate::report::page::{Body, Figure, Html, LegendEntry};

/// Sections 3.1, 3.3 and 4: the figures have no numbers that can be read.
const PAPER_QUIET: &str =
    "The paper: 100 MB take 600 to 1500 s, 8 to 19 times the bare bits; rcp is fastest, NFS slowest.";
const PAPER_MOST: &str =
    "The paper, beside 98 %: 34 to 63 times the bare bits, about four times as long as without load.";
const PAPER_PREDICTED: &str = "The paper: 10 and 60 % change nothing, 98 % does; its model is 16 to 37 % off.";

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Copying files beside a load");
        for note in self.notes() {
            body.paragraph(&note);
        }
        for figure in self.figures()? {
            body.figure(&figure);
        }
        for bytes in self.parts.iter().map(|p| p.bytes).collect::<BTreeSet<_>>() {
            let stacked = Stacked::new(&self.parts, bytes);
            let caption = format!("Where the time goes: files of {}", megabytes(bytes));
            body.figure(&Figure { caption, legend: stacked.legend(), svg: stacked.svg()?, ..Figure::default() });
        }
        for (title, table) in self.tables() {
            body.table(title, &table);
        }
        Ok(body.finish("remora lab copy"))
    }
}

impl Report {
    fn figures(&self) -> Result<Vec<Figure>, String> {
        let mut sizes: Vec<u64> = self.plain().map(|c| c.cell.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut loads: Vec<f64> = self.plain().map(|c| c.cell.load_percent).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        let title = "Copy 89, figure 2: without load".to_owned();
        let mut all = vec![self.by_size(title, PAPER_QUIET, 0.0, &sizes)?];
        if let Some(most) = loads.last().filter(|load| **load > 0.0) {
            let title = format!("Copy 89, figure 4: beside a load of {} %", figure(*most));
            all.push(self.by_size(title, PAPER_MOST, *most, &sizes)?);
        }
        if let Some(largest) = sizes.last() {
            all.push(self.by_load(*largest, &loads, "the model", |c| c.predicted.as_ref())?);
            all.push(self.by_load(*largest, &loads, "the simulator", |c| c.simulated.as_ref())?);
        }
        Ok(all)
    }

    fn plain(&self) -> impl Iterator<Item = &CellOutcome> {
        self.cells.iter().filter(|c| !c.cell.is_setup())
    }

    /// Time over size, a line for each system; circles are what the bare bits take.
    fn by_size(&self, title: String, paper: &'static str, load: f64, sizes: &[u64]) -> Result<Figure, String> {
        let x_levels: Vec<String> = sizes.iter().map(|s| megabytes(*s)).collect();
        // For fewer lines: the copy from memory is in the table.
        let systems = System::ALL.into_iter().filter(|s| *s != System::FromMemory);
        let systems: Vec<System> = systems.filter(|s| self.plain().any(|c| c.cell.system == *s)).collect();
        let line = |system: &System| {
            // A disk knows no load.
            let load = if system.has_network() { load } else { 0.0 };
            let at = |(x, size): (usize, &u64)| point(x, self.cell(*system, *size, load)?);
            Series { points: sizes.iter().enumerate().filter_map(at).collect(), circles: Vec::new() }
        };
        let mut lines: Vec<Series> = systems.iter().map(line).collect();
        let bits = |size: &u64| *size as f64 * 8.0 / self.rate_bits_per_s as f64;
        let ideal = sizes.iter().map(bits).enumerate().collect();
        lines.push(Series { points: Vec::new(), circles: ideal });
        let chart =
            LevelChart { x_title: "size", x_levels: &x_levels, y_title: "seconds", logarithmic: true, lines: &lines };
        Ok(drawn(title, &systems, "the bare bits at the medium's rate", chart.svg()?, paper))
    }

    /// Time over load for files of one size; circles are what `by` predicted.
    fn by_load(
        &self,
        size: u64,
        loads: &[f64],
        by: &'static str,
        predicted: fn(&CellOutcome) -> Option<&Predicted>,
    ) -> Result<Figure, String> {
        let x_levels: Vec<String> = loads.iter().map(|l| format!("{} %", figure(*l))).collect();
        let systems = System::ALL.into_iter().filter(|s| s.has_network());
        let systems: Vec<System> = systems.filter(|s| self.plain().any(|c| c.cell.system == *s)).collect();
        let line = |system: &System| {
            let cells = || loads.iter().enumerate().filter_map(|(x, l)| Some((x, self.cell(*system, size, *l)?)));
            Series {
                points: cells().filter_map(|(x, c)| point(x, c)).collect(),
                circles: cells().filter_map(|(x, c)| Some((x, predicted(c)?.seconds))).collect(),
            }
        };
        let lines: Vec<Series> = systems.iter().map(line).collect();
        let chart = LevelChart {
            x_title: "load asked for",
            x_levels: &x_levels,
            y_title: "seconds",
            logarithmic: true,
            lines: &lines,
        };
        let title = format!("Copy 89, figure 11: files of {}, measured and predicted by {by}", megabytes(size));
        Ok(drawn(title, &systems, by, chart.svg()?, PAPER_PREDICTED))
    }
}

/// The median of a cell. One that was cut off lies at the limit.
fn point(level: usize, outcome: &CellOutcome) -> Option<LevelPoint> {
    let (seconds, limit) = (outcome.seconds?, outcome.limit_seconds);
    let (median, is_beyond) = (seconds.median.min(limit), seconds.median.is_infinite());
    Some(LevelPoint { level, median, interval: seconds.interval(), is_beyond, limit })
}

/// A chart with a line for each system. `circles` says what circles stand for, `remark` what the paper's figure shows
/// by its text.
fn drawn(caption: String, systems: &[System], circles: &str, svg: String, remark: &'static str) -> Figure {
    let mut legend: Vec<LegendEntry> =
        systems.iter().zip(Mark::all()).map(|(system, mark)| LegendEntry::marked(mark, system.name())).collect();
    legend.push(LegendEntry::plain('○', circles));
    Figure { caption, legend, svg, remark }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::report;
    use crate::report::page::Html as _;

    #[test]
    fn page_has_the_papers_figures_and_all_tables() {
        let html = report().to_html().unwrap();
        assert_eq!((html.matches("<figure").count(), html.matches("<table").count()), (5, 4));
        for piece in [
            "figure 2",
            "figure 4",
            "by the model",
            "by the simulator",
            "Where the time goes",
            "8 to 19 times",
            "cut off",
            "SKIPPED ftp",
        ] {
            assert!(html.contains(piece), "{piece}");
        }
        assert!(!html.contains("NaN") && !html.contains("src="), "no external resource");
    }
}
