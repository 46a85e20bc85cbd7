//! The report as a page, with speeds and Example 1 drawn.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use remora_sim::drc::example::{Span, Timeline};

use super::cell::Server;
use super::outcome::{DrcReport, Group, Row, mean};
use crate::report::page::{Body, Figure, Html};
use crate::report::plot::{self, Axis, Canvas, Drawn, FONT, GREEN, SKY, VERMILION};

impl Html for DrcReport {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("What a duplicate request cache is for");
        body.note(&self.made_how());
        body.provenance(&self.made);
        for line in self.troubles() {
            body.note(&line);
        }
        for group in Group::ALL.into_iter().filter(|group| self.group(*group).next().is_some()) {
            body.table(group.title(), &self.table(group));
            if group == Group::Tables {
                let caption = "Bars are simulated or measured, lines across them the paper's.".to_owned();
                body.figure(&Figure { caption, svg: speeds(self)?, ..Figure::default() });
                body.note(&self.nearness());
            }
        }
        body.heading("Example 1: a lost write");
        body.paragraph(
            "The client creates a file, c(0), and writes to it, w(0). The create is slow, so the client retransmits it, \
             c(1), just before the reply arrives.",
        );
        for example in &self.examples {
            let caption = format!("{}. {}", example.title(), example.verdict());
            body.figure(&Figure { caption, svg: timeline(&example.timeline)?, ..Figure::default() });
        }
        Ok(body.finish("remora lab drc"))
    }
}

const TIMELINE_SIZE: plot::Size = plot::Size { width: 760, height: 250 };
const SPEEDS_SIZE: plot::Size = plot::Size { width: 760, height: 300 };
/// Vertical positions of the client, the server's network and the daemons.
const CLIENT: f64 = 3.0;
const SERVER: f64 = 2.0;
const DAEMONS: [f64; 2] = [1.1, 0.3];
const HALF: f64 = 0.22;
/// Spans below this share of the axis are too short for a label inside.
const NARROW: f64 = 0.2;

/// Example 1: the client above, the daemons below, messages between them.
pub(super) fn timeline(timeline: &Timeline) -> Result<String, String> {
    let end = timeline.end().as_secs_f64() * 1.04;
    plot::svg(TIMELINE_SIZE, |root| {
        let x = Axis { range: -0.02..end, ..Axis::linear("seconds", 0.0..end) };
        let mut canvas = plot::axes(root, x, Axis::bare(-0.1..CLIENT + 0.5))?;
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
        Ok(())
    })
}

fn lanes(canvas: &mut Canvas<'_, '_>, end: f64) -> Drawn {
    let [first, second] = DAEMONS;
    for (y, name) in [(CLIENT, "client"), (SERVER, "server"), (first, "nfsd1"), (second, "nfsd2")] {
        canvas.draw_series([PathElement::new(vec![(-0.02, y), (end, y)], BLACK.mix(0.25).stroke_width(1))])?;
        canvas
            .draw_series([EmptyElement::at((-0.02, y)) + Text::new(name, (-62, -8), FONT.into_font().color(&BLACK))])?;
    }
    Ok(())
}

/// An arrow; calls have a label at their start.
fn message(canvas: &mut Canvas<'_, '_>, span: &Span, from: f64, to: f64) -> Drawn {
    let (start, end) = ((span.from.as_secs_f64(), from), (span.to.as_secs_f64(), to));
    let colour = colour(span);
    canvas.draw_series([PathElement::new(vec![start, end], colour.stroke_width(2))])?;
    let tip: Vec<(i32, i32)> = if to < from { vec![(0, 0), (-7, -7), (1, -9)] } else { vec![(0, 0), (-7, 7), (1, 9)] };
    canvas.draw_series([EmptyElement::at(end) + Polygon::new(tip, colour.filled())])?;
    if from > to {
        // c(1) and w(0) start at nearly the same time.
        let aside = if span.label.starts_with('c') { -26 } else { 2 };
        let style = FONT.into_font().color(&colour);
        canvas.draw_series([EmptyElement::at(start) + Text::new(span.label.clone(), (aside, -20), style)])?;
    }
    Ok(())
}

/// An operation of a daemon; it takes effect at its end.
fn work(canvas: &mut Canvas<'_, '_>, span: &Span, y: f64) -> Drawn {
    let (from, to) = (span.from.as_secs_f64(), span.to.as_secs_f64());
    let colour = colour(span);
    canvas.draw_series([Rectangle::new([(from, y - HALF), (to, y + HALF)], colour.mix(0.35).filled())])?;
    let edge = PathElement::new(vec![(to, y - HALF), (to, y + HALF)], colour.stroke_width(3));
    canvas.draw_series([edge])?;
    let effect = if span.label.starts_with('c') { "empties the file" } else { "writes" };
    let words = format!("{} {effect}", span.label);
    let style = FONT.into_font().color(&BLACK);
    // A label that does not fit ends before the span.
    let (at, style) = if (to - from) < NARROW * (canvas.x_range().end - canvas.x_range().start) {
        ((-5, -8), style.pos(Pos::new(HPos::Right, VPos::Top)))
    } else {
        ((5, -8), style)
    };
    canvas.draw_series([EmptyElement::at((from, y)) + Text::new(words, at, style)])?;
    Ok(())
}

fn colour(span: &Span) -> RGBColor {
    if span.label.starts_with('c') { VERMILION } else { GREEN }
}

/// The speeds of tables 2 and 3 as bars, the paper's as lines across them.
pub(super) fn speeds(report: &DrcReport) -> Result<String, String> {
    let rows: Vec<&Row> = report.group(Group::Tables).collect();
    let speeds = rows.iter().flat_map(|r| [mean(r.speed), r.paper.map(|p| p.speed)]);
    let top = speeds.flatten().fold(1.0, f64::max) * 1.15;
    plot::svg(SPEEDS_SIZE, |root| {
        let x = Axis::bare(-0.6..rows.len() as f64 + 0.2);
        let mut canvas = plot::axes(root, x, Axis::linear("KB/s", 0.0..top))?;
        for (n, row) in rows.iter().enumerate() {
            // A gap between the servers.
            let x = n as f64 + if row.server == Server::Large { 0.6 } else { 0.0 };
            if let Some(speed) = mean(row.speed) {
                canvas.draw_series([Rectangle::new([(x - 0.35, 0.0), (x + 0.35, speed)], SKY.mix(0.7).filled())])?;
            }
            if let Some(paper) = row.paper {
                let line = vec![(x - 0.42, paper.speed), (x + 0.42, paper.speed)];
                plot::line(&mut canvas, line, VERMILION.stroke_width(3))?;
            }
            // On two lines: side by side, neighbours' names overlap.
            for (words, below) in [(row.server.name(), 6), (row.cache.name(), 21)] {
                let style = FONT.into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
                canvas.draw_series([EmptyElement::at((x, 0.0)) + Text::new(words, (0, below), style)])?;
            }
        }
        Ok(())
    })
}
