//! Example 1 as a drawing, and the speeds as bars: SVG in black on nothing.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use remora_sim::drc::example::{Span, Timeline};

use super::outcome::{Report, Row, mean};
use super::{Group, Server};
use crate::report::page::in_ink;

const TIMELINE_SIZE: (u32, u32) = (760, 250);
const SPEEDS_SIZE: (u32, u32) = (760, 300);
const FONT: (&str, u32) = ("sans-serif", 15);
/// Colours of Okabe and Ito, which everybody can tell apart, on white and on black.
const CREATE: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
const WRITE: RGBColor = RGBColor(0x00, 0x9e, 0x73);
const BAR: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
/// Heights of the client, the server's network, and the daemons.
const CLIENT: f64 = 3.0;
const SERVER: f64 = 2.0;
const DAEMONS: [f64; 2] = [1.1, 0.3];
const HALF: f64 = 0.22;
/// Of the time that is drawn: what is shorter has no room for words.
const NARROW: f64 = 0.2;

type Fallible = Result<(), Box<dyn std::error::Error>>;
type Canvas<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// Example 1: the client above, the daemons below, messages between; an error is plotters' own
/// words.
pub(super) fn timeline(timeline: &Timeline) -> Result<String, String> {
    let mut out = String::new();
    draw_timeline(&mut out, timeline).map_err(|e| e.to_string())?;
    Ok(in_ink(&out))
}

fn draw_timeline(out: &mut String, timeline: &Timeline) -> Fallible {
    let root = SVGBackend::with_string(out, TIMELINE_SIZE).into_drawing_area();
    let end = timeline.end().as_secs_f64() * 1.04;
    let mut canvas = ChartBuilder::on(&root)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.02..end, -0.1..CLIENT + 0.5)?;
    canvas
        .configure_mesh()
        .disable_mesh()
        .disable_y_axis()
        .y_labels(0)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .x_label_formatter(&|x| format!("{x:.1}"))
        .x_desc("seconds")
        .draw()?;
    lanes(&mut canvas, end)?;
    for call in &timeline.calls {
        message(&mut canvas, call, CLIENT, SERVER)?;
    }
    for reply in &timeline.replies {
        message(&mut canvas, reply, SERVER, CLIENT)?;
    }
    for (spans, y) in timeline.daemons.iter().zip(DAEMONS) {
        for span in spans {
            work(&mut canvas, span, y)?;
        }
    }
    root.present()?;
    Ok(())
}

fn lanes(canvas: &mut Canvas<'_, '_>, end: f64) -> Fallible {
    let [first, second] = DAEMONS;
    for (y, name) in [(CLIENT, "client"), (SERVER, "server"), (first, "nfsd1"), (second, "nfsd2")] {
        canvas.draw_series([PathElement::new(vec![(-0.02, y), (end, y)], BLACK.mix(0.25).stroke_width(1))])?;
        canvas
            .draw_series([EmptyElement::at((-0.02, y)) + Text::new(name, (-62, -8), FONT.into_font().color(&BLACK))])?;
    }
    Ok(())
}

/// An arrow; what is sent says what it is where it begins.
fn message(canvas: &mut Canvas<'_, '_>, span: &Span, from: f64, to: f64) -> Fallible {
    let (start, end) = ((span.from.as_secs_f64(), from), (span.to.as_secs_f64(), to));
    let colour = colour(span);
    canvas.draw_series([PathElement::new(vec![start, end], colour.stroke_width(2))])?;
    let tip: Vec<(i32, i32)> = if to < from { vec![(0, 0), (-7, -7), (1, -9)] } else { vec![(0, 0), (-7, 7), (1, 9)] };
    canvas.draw_series([EmptyElement::at(end) + Polygon::new(tip, colour.filled())])?;
    if from > to {
        // c(1) and w(0) leave at nearly the same time.
        let aside = if span.label.starts_with('c') { -26 } else { 2 };
        let style = FONT.into_font().color(&colour);
        canvas.draw_series([EmptyElement::at(start) + Text::new(span.label.clone(), (aside, -20), style)])?;
    }
    Ok(())
}

/// What a daemon does; its effect is at the end.
fn work(canvas: &mut Canvas<'_, '_>, span: &Span, y: f64) -> Fallible {
    let (from, to) = (span.from.as_secs_f64(), span.to.as_secs_f64());
    let colour = colour(span);
    canvas.draw_series([Rectangle::new([(from, y - HALF), (to, y + HALF)], colour.mix(0.35).filled())])?;
    let edge = PathElement::new(vec![(to, y - HALF), (to, y + HALF)], colour.stroke_width(3));
    canvas.draw_series([edge])?;
    let effect = if span.label.starts_with('c') { "empties the file" } else { "writes" };
    let words = format!("{} {effect}", span.label);
    let style = FONT.into_font().color(&BLACK);
    // Words that have no room in it end before it.
    let (at, style) = if (to - from) < NARROW * (canvas.x_range().end - canvas.x_range().start) {
        ((-5, -8), style.pos(Pos::new(HPos::Right, VPos::Top)))
    } else {
        ((5, -8), style)
    };
    canvas.draw_series([EmptyElement::at((from, y)) + Text::new(words, at, style)])?;
    Ok(())
}

fn colour(span: &Span) -> RGBColor {
    if span.label.starts_with('c') { CREATE } else { WRITE }
}

/// The speeds of tables 2 and 3 as bars, the paper's as lines across them.
pub(super) fn speeds(report: &Report) -> Result<String, String> {
    let mut out = String::new();
    draw_speeds(&mut out, report).map_err(|e| e.to_string())?;
    Ok(in_ink(&out))
}

fn draw_speeds(out: &mut String, report: &Report) -> Fallible {
    let rows: Vec<&Row> = report.group(Group::Tables).collect();
    let top = rows.iter().flat_map(|r| [mean(r.speed), r.paper.map(|p| p.speed)]).flatten().fold(1.0, f64::max) * 1.15;
    // A gap between the servers.
    let at = |n: usize, row: &Row| n as f64 + if row.server == Server::Large { 0.6 } else { 0.0 };
    let root = SVGBackend::with_string(out, SPEEDS_SIZE).into_drawing_area();
    let mut canvas = ChartBuilder::on(&root)
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.6..rows.len() as f64 + 0.2, 0.0..top)?;
    canvas
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .y_label_formatter(&|y| format!("{y:.0}"))
        .y_desc("KB/s")
        .draw()?;
    for (n, row) in rows.iter().enumerate() {
        let x = at(n, row);
        if let Some(speed) = mean(row.speed) {
            canvas.draw_series([Rectangle::new([(x - 0.35, 0.0), (x + 0.35, speed)], BAR.mix(0.7).filled())])?;
        }
        if let Some(paper) = row.paper {
            let line = vec![(x - 0.42, paper.speed), (x + 0.42, paper.speed)];
            canvas.draw_series([PathElement::new(line, CREATE.stroke_width(3))])?;
        }
        // One below the other: side by side those of neighbours run into each other.
        for (words, below) in [(row.server.name(), 6), (row.cache.name(), 21)] {
            let style = FONT.into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
            canvas.draw_series([EmptyElement::at((x, 0.0)) + Text::new(words, (0, below), style)])?;
        }
    }
    root.present()?;
    Ok(())
}
