//! The report as a page, with Figures 4 and 6.

use plotters::prelude::*;
use remora_sim::atp::Class;

use super::contention;
use super::outcome::{AtpReport, Bulk, Curve, Instant};
use super::tables;
use super::verdict::Row;
use super::warning;
use crate::report::page::{Body, Figure, Html, LegendEntry};
use crate::report::plot::{self, Axis, Canvas, Drawn};
use crate::report::statistics::Summary;

impl Html for AtpReport {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Objects delivered in time");
        body.note(&format!("{} {}", self.made_how(), self.schemes()));
        body.provenance(&self.made_by);
        for line in self.troubles() {
            body.note(&line);
        }
        if !self.rows.is_empty() {
            if !self.verdicts.is_empty() {
                body.table(tables::VERDICTS, &self.verdict_table());
            }
            body.table(tables::GLANCE, &self.glance());
            for class in Class::ALL {
                self.bars(&mut body, class.name())?;
            }
            body.table(tables::TABLE_2, &self.statuses());
            if !self.warnings.is_empty() {
                body.table(warning::TITLE, &warning::table(&self.warnings));
                body.note(warning::NOTE);
            }
            self.evidence().iter().for_each(|remark| body.note(remark));
        }
        for curve in &self.curves {
            let error = tables::curve_error(&curve.seconds);
            body.heading(&format!("ATP 02, Figure {}: {}", curve.figure, curve.scheme));
            body.figure(&Figure {
                caption: format!("Median error of the estimate: {error} of the bandwidth."),
                legend: LegendEntry::series(CURVE),
                svg: curve_svg(curve)?,
                ..Figure::default()
            });
        }
        if !self.bulk.is_empty() {
            let legend = LegendEntry::series(self.bulk.iter().map(|b| b.scheme.as_str()));
            body.table(tables::BULK, &self.bulk_table());
            body.figure(&Figure { legend, svg: bulk_svg(&self.bulk)?, ..Figure::default() });
            if let Some(ratios) = self.ratios() {
                body.table(tables::TITLE, &ratios);
            }
        }
        if !self.contention.is_empty() {
            body.table(contention::TITLE, &contention::table(&self.contention));
            body.note(contention::NOTE);
        }
        for row in &self.contention {
            body.figure(&Figure {
                caption: format!("{}: {}. The thick line is the newcomer's.", row.place, row.hosts),
                svg: contention::svg(row)?,
                ..Figure::default()
            });
        }
        for timeline in &self.timelines {
            body.heading(&format!("ATP 02, Figure 5: {}", timeline.scheme));
            let events = crate::report::number::escape(&timeline.to_text());
            body.html(&format!("<details><summary>Events</summary><pre>{events}</pre></details>"));
        }
        Ok(body.finish("remora lab atp"))
    }
}

impl AtpReport {
    /// Figure 6 for one class.
    fn bars(&self, body: &mut Body, class: &str) -> Result<(), String> {
        let rows: Vec<&Row> = self.rows.iter().filter(|r| r.class == class).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let mut schemes: Vec<&str> = Vec::new();
        for row in &rows {
            if !schemes.contains(&row.scheme) {
                schemes.push(row.scheme);
            }
        }
        body.figure(&Figure {
            caption: format!("Objects of {class} priority delivered in time; lines across are the oracle's."),
            svg: bars(&rows, &schemes)?,
            legend: LegendEntry::series(schemes),
            ..Figure::default()
        });
        Ok(())
    }
}

const SIZE: plot::Size = plot::Size { width: 760, height: 320 };

/// Names of the lines of [`curve_svg`].
pub(super) const CURVE: [&str; 3] = ["estimate", "used", "bandwidth"];

/// Estimate, use and bandwidth over time.
pub(super) fn curve_svg(curve: &Curve) -> Result<String, String> {
    let seconds = &curve.seconds;
    let line = |of: fn(&Instant) -> Option<f64>| -> Vec<(f64, f64)> {
        seconds.iter().filter_map(|s| Some((s.at, of(s)? / 1e3))).collect()
    };
    let lines = [line(|s| s.estimate), line(|s| Some(s.used)), line(|s| Some(s.bandwidth))];
    lines_over(Axis::linear("seconds", 0.0..seconds.last().map_or(1.0, |s| s.at)), &lines)
}

pub(super) fn bulk_svg(all: &[Bulk]) -> Result<String, String> {
    let point = |(size, rate): &(u32, f64)| (f64::from(*size / 1024).log2(), rate / 1024.0);
    let lines: Vec<Vec<(f64, f64)>> = all.iter().map(|b| b.points.iter().map(point).collect()).collect();
    lines_over(Axis::linear("object size, KB, as a power of 2", 0.0..10.0), &lines)
}

/// Lines of KB/s, the first on top.
fn lines_over(x: Axis<'_>, lines: &[Vec<(f64, f64)>]) -> Result<String, String> {
    let top = lines.iter().flatten().map(|(_, y)| *y).fold(1.0, f64::max) * 1.05;
    plot::svg(SIZE, |root| {
        let mut canvas = plot::axes(root, x, Axis::linear("KB/s", 0.0..top))?;
        for (n, line) in lines.iter().enumerate().rev() {
            plot::line(&mut canvas, line.clone(), plot::colour(n).stroke_width(2))?;
        }
        Ok(())
    })
}

/// The part of a class's objects that was delivered: a group of bars for each workload, a bar for each of `schemes`;
/// lines across are the oracle's.
pub(super) fn bars(rows: &[&Row], schemes: &[&str]) -> Result<String, String> {
    let mut workloads: Vec<String> = rows.iter().map(|r| r.workload.to_owned()).collect();
    workloads.dedup();
    plot::svg(SIZE, |root| {
        let range = -0.5..workloads.len() as f64 - 0.5;
        let (x, y) = (Axis { range, ..Axis::levels("", &workloads) }, Axis::linear("delivered", 0.0..1.02));
        let mut canvas = plot::axes(root, x, y)?;
        for row in rows {
            let Some(group) = workloads.iter().position(|w| w == row.workload) else { continue };
            let Some(n) = schemes.iter().position(|s| *s == row.scheme) else { continue };
            let width = 0.86 / schemes.len().max(1) as f64;
            let left = group as f64 - 0.43 + n as f64 * width;
            bar(&mut canvas, left..left + width * 0.9, row, plot::colour(n))?;
        }
        Ok(())
    })
}

fn bar(canvas: &mut Canvas<'_, '_>, x: std::ops::Range<f64>, row: &Row, colour: RGBColor) -> Drawn {
    let part = |of: Option<Summary>| of.map(|s| s.median / row.objects.max(1) as f64);
    if let Some(height) = part(row.delivered) {
        canvas.draw_series([Rectangle::new([(x.start, 0.0), (x.end, height)], colour.mix(0.8).filled())])?;
    }
    if let Some(height) = part(row.oracle) {
        plot::line(canvas, vec![(x.start, height), (x.end, height)], BLACK.stroke_width(2))?;
    }
    Ok(())
}
