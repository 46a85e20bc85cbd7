//! The report of `remora lab copy` as an HTML page: figures 2, 4 and 11 of Copy 89 with the measured values, and all
//! tables.

use std::collections::BTreeSet;

use plotters::prelude::*;

use super::outcome::{CellOutcome, CopyStudyReport, Parts, Predicted};
use super::plan::CopySystem;
use crate::report::chart::{LevelChart, LevelPoint, Mark, Series};
use crate::report::number::{figure, megabytes};
use crate::report::page::{Body, Figure, Html, LegendEntry};
use crate::report::plot::{self, Axis, GREEN, GREY, ORANGE, PINK, SKY, VERMILION};

/// Sections 3.1, 3.3 and 4: the figures have no numbers that can be read.
const PAPER_QUIET: &str =
    "The paper: 100 MB take 600 to 1500 s, 8 to 19 times the bare bits; rcp is fastest, NFS slowest.";
const PAPER_MOST: &str =
    "The paper, beside 98 %: 34 to 63 times the bare bits, about four times as long as without load.";
const PAPER_PREDICTED: &str = "The paper: 10 and 60 % change nothing, 98 % does; its model is 16 to 37 % off.";

impl Html for CopyStudyReport {
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

impl CopyStudyReport {
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

    /// Time over size, one line for each system; circles show the time of the bits alone.
    fn by_size(&self, title: String, paper: &'static str, load: f64, sizes: &[u64]) -> Result<Figure, String> {
        let x_levels: Vec<String> = sizes.iter().map(|s| megabytes(*s)).collect();
        // The copy from memory is in the table only.
        let systems = CopySystem::ALL.into_iter().filter(|s| *s != CopySystem::FromMemory);
        let systems: Vec<CopySystem> = systems.filter(|s| self.plain().any(|c| c.cell.system == *s)).collect();
        let line = |system: &CopySystem| {
            // A disk copy has no load.
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

    /// Time over load for files of one size; circles are predictions by `by`.
    fn by_load(
        &self,
        size: u64,
        loads: &[f64],
        by: &'static str,
        predicted: fn(&CellOutcome) -> Option<&Predicted>,
    ) -> Result<Figure, String> {
        let x_levels: Vec<String> = loads.iter().map(|l| format!("{} %", figure(*l))).collect();
        let systems = CopySystem::ALL.into_iter().filter(|s| s.has_network());
        let systems: Vec<CopySystem> = systems.filter(|s| self.plain().any(|c| c.cell.system == *s)).collect();
        let line = |system: &CopySystem| {
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

/// A chart with a line for each system. `circles` explains the circles; `remark` describes the figure of Copy 89.
fn drawn(caption: String, systems: &[CopySystem], circles: &str, svg: String, remark: &'static str) -> Figure {
    let mut legend: Vec<LegendEntry> =
        systems.iter().zip(Mark::all()).map(|(system, mark)| LegendEntry::marked(mark, system.name())).collect();
    legend.push(LegendEntry::plain('○', circles));
    Figure { caption, legend, svg, remark }
}

const SIZE: plot::Size = plot::Size { width: 760, height: 360 };
const HALF: f64 = 0.3;
/// Hardware, software, then loads. Orange and vermilion, which are alike, do not meet.
const COLOURS: [RGBColor; 6] = [GREY, GREEN, SKY, ORANGE, PINK, VERMILION];

/// The bars of copies of one size.
pub(super) struct Stacked<'a> {
    parts: Vec<&'a Parts>,
    loads: Vec<f64>,
}

impl<'a> Stacked<'a> {
    pub(super) fn new(parts: &'a [Parts], bytes: u64) -> Stacked<'a> {
        let parts: Vec<&Parts> = parts.iter().filter(|p| p.bytes == bytes).collect();
        let mut loads: Vec<f64> = parts.iter().flat_map(|p| p.contention_s.iter().map(|(l, _)| *l)).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        Stacked { parts, loads }
    }

    pub(super) fn legend(&self) -> Vec<LegendEntry> {
        let names = ["hardware: wire or disk".to_owned(), "software".to_owned()].into_iter();
        let names = names.chain(self.loads.iter().map(|l| format!("contention at {} %", figure(*l))));
        bars_legend(names)
    }

    /// The drawing as SVG; an error is plotters' message.
    pub(super) fn svg(&self) -> Result<String, String> {
        let names: Vec<String> = self.parts.iter().map(|p| p.system.name().to_owned()).collect();
        bars(&names, &self.parts.iter().map(|p| self.levels(p)).collect::<Vec<_>>())
    }

    /// Upper ends of a bar's colours: each load's on top of the previous one. A load that was cut off has no height.
    fn levels(&self, parts: &Parts) -> Vec<f64> {
        let alone = parts.hardware_s + parts.software_s;
        let at = |load: &f64| parts.contention_s.iter().find(|(l, _)| l == load).map_or(0.0, |(_, s)| *s);
        let mut levels = vec![parts.hardware_s.min(alone), alone];
        for load in &self.loads {
            let below = levels.last().copied().unwrap_or(0.0);
            let level = alone + at(load);
            levels.push(if level.is_finite() { level.max(below) } else { below });
        }
        levels
    }
}

/// The names of the colours of [`bars`], from below.
pub(super) fn bars_legend(names: impl Iterator<Item = String>) -> Vec<LegendEntry> {
    let entry = |(name, colour): (String, &RGBColor)| LegendEntry::coloured(plot::css(*colour), &name);
    names.zip(COLOURS.iter().cycle()).map(entry).collect()
}

/// Named bars in seconds as SVG, each from the upper ends of its colours; an error is plotters' message.
pub(super) fn bars(names: &[String], levels: &[Vec<f64>]) -> Result<String, String> {
    let tops = levels.iter().filter_map(|levels| levels.last().copied());
    let top = tops.fold(0.0, f64::max).max(1e-3) * 1.06;
    plot::svg(SIZE, |root| {
        let mut canvas = plot::axes(root, Axis::levels("", names), Axis::linear("seconds", 0.0..top))?;
        for (i, levels) in levels.iter().enumerate() {
            let (left, right, mut below) = (i as f64 - HALF, i as f64 + HALF, 0.0);
            for (level, colour) in levels.iter().zip(COLOURS.iter().cycle()) {
                canvas.draw_series([Rectangle::new([(left, below), (right, *level)], colour.filled())])?;
                below = *level;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::outcome::tests::report;
    use crate::copy::plan::CopySystem;

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

    fn parts(contention_s: &[(f64, f64)]) -> Parts {
        Parts {
            system: CopySystem::Scp,
            bytes: 1,
            bits_s: 0.8,
            disk_s: Some(0.1),
            wire_s: 0.9,
            hardware_s: 0.9,
            software_s: 0.3,
            setup_s: None,
            contention_s: contention_s.to_vec(),
        }
    }

    #[test]
    fn bar_only_grows_and_ends_at_the_longest() {
        let all = [parts(&[(60.0, 1.0), (98.0, 2.0)]), parts(&[(60.0, -0.1), (98.0, f64::INFINITY)])];
        let stacked = Stacked::new(&all, 1);
        let close = |a: Vec<f64>, b: [f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(close(stacked.levels(&all[0]), [0.9, 1.2, 2.2, 3.2]));
        assert!(close(stacked.levels(&all[1]), [0.9, 1.2, 1.2, 1.2]));
        assert_eq!(stacked.legend().len(), 4);
        let svg = stacked.svg().unwrap();
        assert!(
            svg.contains("scp") && !svg.contains("NaN") && !svg.contains("inf") && !svg.contains("#000000"),
            "{svg}"
        );
        // An empty chart is valid.
        assert!(Stacked::new(&[], 1).svg().is_ok());
    }
}
