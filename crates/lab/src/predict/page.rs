//! The report as a page, with hits and waste drawn.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::method::Method;
use super::outcome::{PredictReport, Row, WASTE_GOAL};
use crate::report::page::{Body, Figure, Html, LegendEntry};
use crate::report::plot::{self, Axis, Drawn, FONT};

const SIZE: plot::Size = plot::Size { width: 760, height: 320 };
/// Part of a trace's width that its bars take.
const BARS_WIDTH: f64 = 0.84;

impl Html for PredictReport {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Prediction of opened files");
        body.paragraph(&format!("Made by {} (Remora {}).", self.command, self.version));
        for line in self.verdicts().into_iter().chain(self.troubles()) {
            body.note(&line);
        }
        body.heading(&self.title());
        let legend = || LegendEntry::series(Method::ALL.map(Method::name));
        let hits = self.bars("hits, %", 100.0, |row| Some(row.hit_percent))?;
        body.figure(&Figure { caption: "Hits".into(), legend: legend(), svg: hits, ..Figure::default() });
        let wasted = self.bars("wasted, %", 100.0, |row| row.wasted_percent)?;
        let caption = format!("Prefetched bytes that were not used; the goal is at most {WASTE_GOAL} %");
        body.figure(&Figure { caption, legend: legend(), svg: wasted, ..Figure::default() });
        body.table("By program", &self.table());
        body.table("Traces", &self.trace_table());
        Ok(body.finish("remora lab predict"))
    }
}

impl PredictReport {
    /// A bar for each method, side by side for each trace.
    fn bars(&self, title: &str, top: f64, value: impl Fn(&Row) -> Option<f64>) -> Result<String, String> {
        let totals: Vec<&Row> = self.totals().collect();
        let groups: Vec<&[&Row]> = totals.chunk_by(|a, b| a.trace == b.trace).collect();
        plot::svg(SIZE, |root| {
            let x = Axis::bare(-0.5..groups.len() as f64 - 0.5);
            let mut canvas = plot::axes(root, x, Axis::linear(title, 0.0..top))?;
            let width = BARS_WIDTH / Method::ALL.len() as f64;
            for (group, rows) in groups.iter().enumerate() {
                let left = group as f64 - BARS_WIDTH / 2.0;
                let place = |row: &Row| Method::ALL.iter().position(|method| *method == row.method).unwrap_or(0);
                let bars = rows.iter().filter_map(|row| Some((place(row), value(row)?)));
                canvas.draw_series(bars.map(|(n, height)| {
                    let start = left + n as f64 * width;
                    Rectangle::new([(start, 0.0), (start + 0.9 * width, height)], plot::colour(n).filled())
                }))?;
                let name = rows.first().map_or(String::new(), |row| row.trace.clone());
                label(&mut canvas, group as f64, name)?;
            }
            Ok(())
        })
    }
}

fn label(canvas: &mut plot::Canvas<'_, '_>, x: f64, name: String) -> Drawn {
    let style = FONT.into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    canvas.draw_series([EmptyElement::at((x, 0.0)) + Text::new(name, (0, 8), style)])?;
    Ok(())
}
