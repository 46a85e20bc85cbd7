//! Which figures an experiment has, and what is on them.

use super::cell::{Label, level};
use super::chart::{Chart, Line, Mark, Point, Run};
use super::experiments::{Figure, Vertical};
use super::outcome::{CellOutcome, ExperimentOutcome};
use super::stats::Summary;

/// A figure as the page shows it.
pub(super) struct Drawing {
    /// What distinguishes it from the experiment's other figures; may be empty.
    pub(super) title: String,
    /// The picture.
    pub(super) svg: String,
    /// The lines by name, in the order of their marks.
    pub(super) legend: Vec<(String, Mark)>,
    /// Whether it has the paper's means, too.
    pub(super) has_paper: bool,
}

/// All figures of an experiment; an error is plotters' own words.
pub(super) fn drawings(outcome: &ExperimentOutcome) -> Result<Vec<Drawing>, String> {
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

/// One for each combination of levels on the axes that the figure does not name.
fn panels<'a>(outcome: &'a ExperimentOutcome, figure: &Figure) -> Vec<Panel<'a>> {
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

/// Each item once, in the order in which they come first.
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

fn draw(figure: &Figure, panel: &Panel<'_>) -> Result<Drawing, String> {
    let names = levels(&panel.cells, figure.lines);
    let legend = names.iter().cloned().zip(Mark::all()).collect();
    let on =
        |name: &str| panel.cells.iter().copied().filter(|c| c.level(figure.lines) == Some(name)).collect::<Vec<_>>();
    let (svg, has_paper) = if figure.y == Vertical::Packets {
        let runs: Vec<Run<'_>> =
            names.iter().map(|name| Run { packets: on(name).first().map_or(&[], |c| &c.packets) }).collect();
        (super::chart::packets(&runs)?, false)
    } else {
        let x_levels = levels(&panel.cells, figure.x);
        let lines: Vec<Line> = names.iter().map(|name| line(figure, &x_levels, &on(name))).collect();
        let has_paper = lines.iter().any(|l| !l.paper.is_empty());
        let (y_title, logarithmic) = vertical(figure.y);
        let chart = Chart { x_title: figure.x, x_levels: &x_levels, y_title, logarithmic, lines: &lines };
        (chart.svg()?, has_paper)
    };
    Ok(Drawing { title: panel.title.clone(), svg, legend, has_paper })
}

fn vertical(y: Vertical) -> (&'static str, bool) {
    match y {
        Vertical::Linear(measure) => (measure.heading(), false),
        Vertical::Logarithmic(measure) => (measure.heading(), true),
        Vertical::Ratio => ("times the floor", true),
        Vertical::Packets => ("packet number", false),
    }
}

fn line(figure: &Figure, x_levels: &[String], cells: &[&CellOutcome]) -> Line {
    let at = |cell: &CellOutcome| x_levels.iter().position(|l| Some(l.as_str()) == cell.level(figure.x));
    let points = cells.iter().filter_map(|c| point(figure.y, at(c)?, c)).collect();
    let paper = match figure.y {
        Vertical::Linear(_) => cells.iter().filter_map(|c| Some((at(c)?, c.paper.as_ref()?.mean))).collect(),
        _ => Vec::new(),
    };
    Line { points, paper }
}

fn point(y: Vertical, x: usize, cell: &CellOutcome) -> Option<Point> {
    let (summary, above, limit): (&Summary, f64, f64) = match y {
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
    let median = if summary.median.is_finite() { summary.median } else { above };
    Some(Point::new(x, (median, summary.median.is_infinite()), summary.low.zip(summary.high), limit))
}
