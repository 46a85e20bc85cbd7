//! The report as a page: figures and tables of every experiment.

use plotters::prelude::*;

use super::cell::{Label, Packet, level};
use super::experiments::experiment::{ExperimentFigure, Origin, Vertical};
use super::outcome::{CellOutcome, ExperimentOutcome, WirelessReport};
use super::real::peers::Peer;
use super::tables::{place, table};
use crate::report::chart::{LevelChart, LevelPoint, Mark, Series};
use crate::report::number::escape;
use crate::report::page::{Body, Figure, Html, LegendEntry};
use crate::report::plot::{self, Axis};
use crate::report::provenance::Source;

impl Html for WirelessReport {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Files over wireless links");
        body.html(&self.introduction());
        for (origin, title) in [(Origin::Papers, "The papers' experiments"), (Origin::Beyond, "Beyond the papers")] {
            let of: Vec<&ExperimentOutcome> = self.experiments.iter().filter(|e| e.origin == origin).collect();
            if !of.is_empty() {
                body.heading(title);
            }
            for outcome in of {
                body.html(&section(outcome)?);
            }
        }
        Ok(body.finish("remora lab wireless"))
    }
}

impl WirelessReport {
    fn introduction(&self) -> String {
        let links: String = self.experiments.iter().map(|e| format!("<a href=\"#{0}\">{0}</a> ", e.name)).collect();
        format!(
            "<p class=\"note\">{}</p>\
             <p>Made by <code>{}</code> (Remora {}): {} in each cell{}. \
             Figures show medians and their 95 % intervals (order statistics). A run that was cut off at its limit ranks \
             above all others; a median beyond the limit is an open sign with an arrow, and no line leads to it. The \
             <em>floor</em> is the first moment at which the channel could have carried the file in full frames, with \
             the same seed. Reductions compare means, as the papers do.</p><nav>{links}</nav>",
            self.made_how(),
            escape(&self.made.command),
            self.made.version,
            self.seeds_text(),
            if self.complete { "" } else { "; interrupted, so not all runs were made" },
        )
    }

    fn made_how(&self) -> String {
        if self.made.source != Source::Real {
            return "Everything here is <strong>simulated</strong>: the real client, server and link code ran in virtual \
                    time over an emulated channel. The papers' figures are marked."
                .into();
        }
        let peer = |p: &Peer| match &p.missing {
            None => format!(" {}: {}.", p.name, escape(p.version.as_deref().unwrap_or_default())),
            Some(missing) => format!(" {}: skipped, {}.", p.name, escape(missing)),
        };
        let peers: String = self.peers.iter().map(peer).collect();
        let conditions = self.conditions.map(|c| format!(" ({c})")).unwrap_or_default();
        format!(
            "Everything here is <strong>real</strong>: programs in network namespaces on both sides of an emulated \
             channel, in real time{conditions}. The simulator's figures stand beside them and are marked.{peers}"
        )
    }
}

fn section(outcome: &ExperimentOutcome) -> Result<String, String> {
    let mut html = format!("<h3 id=\"{0}\">{0}</h3><p>{1}.</p>", outcome.name, escape(outcome.about));
    let figures = figures(outcome)?;
    html.extend(figures.iter().map(|figure| figure.to_html()));
    for cell in &outcome.cells {
        for failed in &cell.failures {
            let (place, why) = (escape(&place(cell)), escape(&failed.why));
            html += &format!("<p class=\"note\">Failed: {place}, seed {}: {why}</p>", failed.seed);
        }
    }
    let open = if figures.is_empty() { " open" } else { "" };
    html += &format!("<details{open}><summary>table</summary>{}</details>", table(outcome).to_html());
    Ok(html)
}

const PACKETS_SIZE: plot::Size = plot::Size { width: 760, height: 400 };

/// All figures of an experiment; an error is plotters' message.
pub(super) fn figures(outcome: &ExperimentOutcome) -> Result<Vec<Figure>, String> {
    let mut all = Vec::new();
    for figure in outcome.experiment.figures {
        for panel in panels(outcome, figure) {
            all.push(draw(figure, &panel)?);
        }
    }
    Ok(all)
}

/// The cells that share a figure.
struct Panel<'a> {
    title: String,
    cells: Vec<&'a CellOutcome>,
}

/// One panel for each combination of levels on the axes that the figure does not name.
fn panels<'a>(outcome: &'a ExperimentOutcome, figure: &ExperimentFigure) -> Vec<Panel<'a>> {
    let rest = |cell: &CellOutcome| -> Vec<Label> {
        cell.labels.iter().filter(|l| l.axis != figure.x && l.axis != figure.lines).cloned().collect()
    };
    let places = distinct(outcome.cells.iter().map(rest));
    let panel = |place: Vec<Label>| Panel {
        title: place.iter().map(|l| format!("{}: {}", l.axis, l.level)).collect::<Vec<_>>().join(", "),
        cells: outcome.cells.iter().filter(|c| rest(c) == place).collect(),
    };
    places.into_iter().map(panel).collect()
}

/// Each item once, in the order of first occurrence.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

fn levels(cells: &[&CellOutcome], axis: &str) -> Vec<String> {
    distinct(cells.iter().filter_map(|c| level(&c.labels, axis)).map(str::to_owned))
}

fn draw(figure: &ExperimentFigure, panel: &Panel<'_>) -> Result<Figure, String> {
    let names = levels(&panel.cells, figure.lines);
    let on =
        |name: &str| panel.cells.iter().copied().filter(|c| c.level(figure.lines) == Some(name)).collect::<Vec<_>>();
    let mut legend: Vec<LegendEntry> =
        names.iter().zip(Mark::all()).map(|(name, mark)| LegendEntry::marked(mark, name)).collect();
    let svg = if figure.y == Vertical::Packets {
        let cells: Vec<&[Vec<Packet>]> =
            names.iter().map(|name| on(name).first().map_or(&[][..], |c| &c.packets)).collect();
        legend = legend.into_iter().map(|entry| entry.with_sign('●')).collect();
        legend.push(LegendEntry::plain('×', "sent again"));
        legend.push(LegendEntry::plain('—', "other seeds"));
        packets(&cells)?
    } else {
        let x_levels = levels(&panel.cells, figure.x);
        let lines: Vec<Series> = names.iter().map(|name| line(figure, &x_levels, &on(name))).collect();
        if lines.iter().any(|l| !l.circles.is_empty()) {
            legend.push(LegendEntry::plain('○', "the paper's mean"));
        }
        let (y_title, logarithmic) = vertical(figure.y);
        LevelChart { x_title: figure.x, x_levels: &x_levels, y_title, logarithmic, lines: &lines }.svg()?
    };
    Ok(Figure { caption: panel.title.clone(), legend, svg, ..Figure::default() })
}

fn vertical(y: Vertical) -> (&'static str, bool) {
    match y {
        Vertical::Linear(measure) => (measure.heading(), false),
        Vertical::Logarithmic(measure) => (measure.heading(), true),
        Vertical::Ratio => ("times the floor", true),
        Vertical::Packets => ("packet number", false),
    }
}

fn line(figure: &ExperimentFigure, x_levels: &[String], cells: &[&CellOutcome]) -> Series {
    let at = |cell: &CellOutcome| x_levels.iter().position(|l| Some(l.as_str()) == cell.level(figure.x));
    let points = cells.iter().filter_map(|c| point(figure.y, at(c)?, c)).collect();
    let circles = match figure.y {
        Vertical::Linear(_) => cells.iter().filter_map(|c| Some((at(c)?, c.paper.as_ref()?.mean))).collect(),
        _ => Vec::new(),
    };
    Series { points, circles }
}

fn point(y: Vertical, level: usize, cell: &CellOutcome) -> Option<LevelPoint> {
    let (summary, above, limit) = match y {
        Vertical::Linear(measure) | Vertical::Logarithmic(measure) => {
            let (summary, limit) = (cell.summary(measure)?, cell.limit_seconds);
            (summary, summary.median_above(limit), limit)
        }
        Vertical::Ratio => {
            let summary = cell.ratio.as_ref()?;
            let above = cell.ratio_above.unwrap_or(summary.median);
            let shortest = cell.floor_seconds.iter().copied().flatten().reduce(f64::min)?;
            (summary, above, cell.limit_seconds / shortest)
        }
        Vertical::Packets => return None,
    };
    let is_beyond = summary.median.is_infinite();
    let median = if is_beyond { above } else { summary.median };
    Some(LevelPoint { level, median, interval: summary.interval(), is_beyond, limit })
}

/// Packet numbers over time, one colour for each cell: signs for its first run, crosses where it retransmits, thin
/// lines for its other runs.
fn packets(cells: &[&[Vec<Packet>]]) -> Result<String, String> {
    let all = || cells.iter().copied().flatten().flatten();
    let end = all().map(|p| p.seconds).fold(1.0, f64::max);
    let top = all().map(|p| f64::from(p.number)).fold(1.0, f64::max);
    let at = |p: &Packet| (p.seconds, f64::from(p.number));
    plot::svg(PACKETS_SIZE, |root| {
        let (x, y) = (Axis::linear("seconds", 0.0..end * 1.02), Axis::linear("packet number", 0.0..top * 1.05));
        let mut canvas = plot::axes(root, x, y)?;
        for (runs, mark) in cells.iter().zip(Mark::all()) {
            let colour = mark.colour();
            for run in runs.iter().skip(1) {
                let first_sent = run.iter().filter(|p| !p.again).map(at).collect();
                plot::line(&mut canvas, first_sent, colour.mix(0.4).stroke_width(1))?;
            }
            let Some(run) = runs.first() else { continue };
            canvas.draw_series(run.iter().filter(|p| !p.again).map(|p| Circle::new(at(p), 2, colour.filled())))?;
            let again = run.iter().filter(|p| p.again);
            canvas.draw_series(again.map(|p| Cross::new(at(p), 4, colour.stroke_width(2))))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_an_empty_run_can_be_drawn() {
        assert!(packets(&[&[], &[Vec::new(), Vec::new()]]).unwrap().starts_with("<svg"));
    }
}
