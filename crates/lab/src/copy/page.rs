//! The study as a page: Copy 89's figures 2, 4 and 11 redrawn, and every table.

use std::collections::BTreeSet;

use super::outcome::{CellOutcome, Predicted, Report};
use super::plan::System;
use super::stacked::Stacked;
use super::tables::{figure, megabytes};
use crate::report::page::{Html, document, escape};
use crate::wireless::chart::{Chart, Line, Mark, Point};

/// Sections 3.1, 3.3 and 4: the figures themselves have no numbers that can be read.
const PAPER_QUIET: &str =
    "The paper: 100 MB take 600 to 1500 s, 8 to 19 times the bare bits; rcp is fastest, NFS slowest.";
const PAPER_MOST: &str =
    "The paper, beside 98 %: 34 to 63 times the bare bits, about four times as long as without load.";
const PAPER_PREDICTED: &str = "The paper: 10 and 60 % change nothing, 98 % does; its model is 16 to 37 % off.";

/// A figure: its title, its picture, its lines by name.
struct Drawing {
    title: String,
    svg: String,
    names: Vec<&'static str>,
    /// What circles stand for.
    circles: Option<&'static str>,
    /// What the paper's figure shows, as far as its text tells.
    paper: &'static str,
}

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = "<h1>Copying files beside a load</h1>".to_owned();
        for note in self.notes() {
            body += &format!("<p>{}</p>", escape(&note));
        }
        for drawing in self.drawings()? {
            body += &drawing.to_html();
        }
        for bytes in self.parts.iter().map(|p| p.bytes).collect::<BTreeSet<_>>() {
            body += &bars(&Stacked::new(&self.parts, bytes), bytes)?;
        }
        for (title, table) in self.tables() {
            body += &format!("<h2>{}</h2>{}", escape(title), table.to_html());
        }
        Ok(document("remora lab copy", &body))
    }
}

impl Report {
    fn drawings(&self) -> Result<Vec<Drawing>, String> {
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
    fn by_size(&self, title: String, paper: &'static str, load: f64, sizes: &[u64]) -> Result<Drawing, String> {
        let x_levels: Vec<String> = sizes.iter().map(|s| megabytes(*s)).collect();
        // For fewer lines: the copy from memory is in the table.
        let systems = System::ALL.into_iter().filter(|s| *s != System::FromMemory);
        let systems: Vec<System> = systems.filter(|s| self.plain().any(|c| c.cell.system == *s)).collect();
        let line = |system: &System| {
            // A disk knows no load.
            let load = if system.has_network() { load } else { 0.0 };
            let at = |(x, size): (usize, &u64)| point(x, self.cell(*system, *size, load)?);
            Line { points: sizes.iter().enumerate().filter_map(at).collect(), paper: Vec::new() }
        };
        let mut lines: Vec<Line> = systems.iter().map(line).collect();
        let bits = |size: &u64| *size as f64 * 8.0 / self.rate_bits_per_s as f64;
        let ideal = sizes.iter().map(bits).enumerate().collect();
        lines.push(Line { points: Vec::new(), paper: ideal });
        let chart =
            Chart { x_title: "size", x_levels: &x_levels, y_title: "seconds", logarithmic: true, lines: &lines };
        let names = systems.iter().map(|s| s.name()).collect();
        Ok(Drawing { title, svg: chart.svg()?, names, circles: Some("the bare bits at the medium's rate"), paper })
    }

    /// Time over load for files of one size; circles are what `by` predicted.
    fn by_load(
        &self,
        size: u64,
        loads: &[f64],
        by: &'static str,
        predicted: fn(&CellOutcome) -> Option<&Predicted>,
    ) -> Result<Drawing, String> {
        let x_levels: Vec<String> = loads.iter().map(|l| format!("{} %", figure(*l))).collect();
        let systems = System::ALL.into_iter().filter(|s| s.has_network());
        let systems: Vec<System> = systems.filter(|s| self.plain().any(|c| c.cell.system == *s)).collect();
        let line = |system: &System| {
            let cells = || loads.iter().enumerate().filter_map(|(x, l)| Some((x, self.cell(*system, size, *l)?)));
            Line {
                points: cells().filter_map(|(x, c)| point(x, c)).collect(),
                paper: cells().filter_map(|(x, c)| Some((x, predicted(c)?.seconds))).collect(),
            }
        };
        let lines: Vec<Line> = systems.iter().map(line).collect();
        let chart = Chart {
            x_title: "load asked for",
            x_levels: &x_levels,
            y_title: "seconds",
            logarithmic: true,
            lines: &lines,
        };
        let title = format!("Copy 89, figure 11: files of {}, measured and predicted by {by}", megabytes(size));
        let names = systems.iter().map(|s| s.name()).collect();
        Ok(Drawing { title, svg: chart.svg()?, names, circles: Some(by), paper: PAPER_PREDICTED })
    }
}

/// A cell's median; what was cut off lies at the limit or beyond.
fn point(x: usize, outcome: &CellOutcome) -> Option<Point> {
    let seconds = outcome.seconds?;
    let (median, limit) = (seconds.median, outcome.limit_seconds);
    let interval = seconds.low.zip(seconds.high);
    Some(Point::new(x, (median.min(limit), median.is_infinite()), interval, limit))
}

/// Where the time of copies of one size goes.
fn bars(stacked: &Stacked<'_>, bytes: u64) -> Result<String, String> {
    let entry = |(name, colour): (String, String)| {
        format!("<span><span style=\"color:{colour}\">■</span> {}</span>", escape(&name))
    };
    let legend: String = stacked.legend().into_iter().map(entry).collect();
    let title = format!("Where the time goes: files of {}", megabytes(bytes));
    Ok(framed(&title, &legend, &stacked.svg()?, ""))
}

/// A picture with its title and its legend, which is HTML.
fn framed(title: &str, legend: &str, svg: &str, paper: &str) -> String {
    format!(
        "<h2>{}</h2><figure><figcaption><div class=\"legend\">{legend}</div></figcaption>\
         <div class=\"wrap\">{svg}</div><small>{}</small></figure>",
        escape(title),
        escape(paper)
    )
}

impl Drawing {
    fn to_html(&self) -> String {
        let mut legend: String = self
            .names
            .iter()
            .zip(Mark::all())
            .map(|(name, mark)| {
                format!("<span><span style=\"color:{}\">{}</span> {name}</span>", mark.colour(), mark.sign())
            })
            .collect();
        legend += &self.circles.map(|what| format!("<span>○ {}</span>", escape(what))).unwrap_or_default();
        framed(&self.title, &legend, &self.svg, self.paper)
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::report;
    use crate::report::page::Html as _;

    #[test]
    fn the_page_has_the_papers_figures_and_all_tables() {
        let html = report().to_html().unwrap();
        assert_eq!((html.matches("<svg").count(), html.matches("<table").count()), (5, 4));
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
        assert!(!html.contains("NaN") && !html.contains("src="), "it needs nothing from anywhere");
    }
}
