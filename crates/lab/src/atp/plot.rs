//! Figures 4 and 6 as SVG, in black on nothing.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::outcome::{Bulk, Curve, Row};
use crate::report::page::in_ink;

const SIZE: (u32, u32) = (760, 320);
const FONT: (&str, u32) = ("sans-serif", 15);
/// Colours of Okabe and Ito, which everybody can tell apart, on white and on black.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x80, 0x80, 0x80),
];

type Fallible = Result<(), Box<dyn std::error::Error>>;
type Canvas<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The colour of line or bar `n`, for the drawing and for CSS.
pub(super) fn css(n: usize) -> String {
    let RGBColor(r, g, b) = colour(n);
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn colour(n: usize) -> RGBColor {
    COLOURS[n % COLOURS.len()]
}

/// The names of what [`curve`] draws, in the order of their colours.
pub(super) const CURVE: [&str; 3] = ["estimate", "used", "bandwidth"];

/// Estimate, use and bandwidth over time; an error is plotters' own words.
pub(super) fn curve(curve: &Curve) -> Result<String, String> {
    let seconds = &curve.seconds;
    let line = |of: fn(&super::outcome::Instant) -> Option<f64>| -> Vec<(f64, f64)> {
        seconds.iter().filter_map(|s| Some((s.at, of(s)? / 1e3))).collect()
    };
    let lines = [line(|s| s.estimate), line(|s| Some(s.used)), line(|s| Some(s.bandwidth))];
    let right = seconds.last().map_or(1.0, |s| s.at);
    drawn(|root| {
        let mut canvas = axes(root, 0.0..right, 0.0..top(lines.iter().flatten()), "seconds", "KB/s")?;
        // What is below first.
        for (n, line) in lines.iter().enumerate().rev() {
            canvas.draw_series([PathElement::new(line.clone(), colour(n).stroke_width(2))])?;
        }
        Ok(())
    })
}

/// Throughput by object size, on a logarithmic scale of sizes.
pub(super) fn bulk(all: &[Bulk]) -> Result<String, String> {
    let point = |(size, rate): &(u32, f64)| (f64::from(*size / 1024).log2(), rate / 1024.0);
    let lines: Vec<Vec<(f64, f64)>> = all.iter().map(|b| b.points.iter().map(point).collect()).collect();
    drawn(|root| {
        let x_title = "object size, KB, as a power of 2";
        let mut canvas = axes(root, 0.0..10.0, 0.0..top(lines.iter().flatten()), x_title, "KB/s")?;
        for (n, line) in lines.iter().enumerate() {
            canvas.draw_series([PathElement::new(line.clone(), colour(n).stroke_width(2))])?;
        }
        Ok(())
    })
}

/// Part of a class's objects that was delivered, a group of bars for each workload and a bar for
/// each of `schemes`; lines across are the oracle's.
pub(super) fn bars(rows: &[&Row], schemes: &[&str]) -> Result<String, String> {
    let mut workloads: Vec<&str> = rows.iter().map(|r| r.workload).collect();
    workloads.dedup();
    let width = 0.86 / schemes.len().max(1) as f64;
    drawn(|root| {
        let mut canvas = ChartBuilder::on(root)
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(64)
            .build_cartesian_2d(-0.5..workloads.len() as f64 - 0.5, 0.0..1.02)?;
        let mut mesh = canvas.configure_mesh();
        mesh.disable_x_mesh().x_labels(0).light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.15));
        mesh.label_style(FONT).axis_desc_style(FONT).y_desc("delivered").draw()?;
        for row in rows {
            let Some(group) = workloads.iter().position(|w| *w == row.workload) else { continue };
            let Some(n) = schemes.iter().position(|s| *s == row.scheme) else { continue };
            let part = |of: Option<crate::wireless::Summary>| of.map(|s| s.median / row.objects.max(1) as f64);
            let left = group as f64 - 0.43 + n as f64 * width;
            if let Some(height) = part(row.delivered) {
                let bar = [(left, 0.0), (left + width * 0.9, height)];
                canvas.draw_series([Rectangle::new(bar, colour(n).mix(0.8).filled())])?;
            }
            if let Some(height) = part(row.oracle) {
                let line = vec![(left, height), (left + width * 0.9, height)];
                canvas.draw_series([PathElement::new(line, BLACK.stroke_width(2))])?;
            }
        }
        for (group, name) in workloads.iter().enumerate() {
            let style = ("sans-serif", 13).into_font().color(&BLACK);
            let label = EmptyElement::at((group as f64 - 0.4, 0.0)) + Text::new((*name).to_owned(), (0, 6), style);
            canvas.draw_series([label])?;
        }
        Ok(())
    })
}

fn drawn(
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Fallible,
) -> Result<String, String> {
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
        draw(&root).map_err(|e| e.to_string())?;
        root.present().map_err(|e| e.to_string())?;
    }
    Ok(in_ink(&out))
}

fn axes<'a, 'b>(
    root: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
    x_title: &str,
    y_title: &str,
) -> Result<Canvas<'a, 'b>, Box<dyn std::error::Error>> {
    let mut canvas =
        ChartBuilder::on(root).margin(10).x_label_area_size(44).y_label_area_size(64).build_cartesian_2d(x, y)?;
    let mut mesh = canvas.configure_mesh();
    mesh.light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.15));
    mesh.label_style(FONT).axis_desc_style(FONT).x_desc(x_title).y_desc(y_title);
    mesh.x_label_formatter(&|x| format!("{x:.0}")).y_label_formatter(&|y| format!("{y:.0}")).draw()?;
    Ok(canvas)
}

fn top<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> f64 {
    points.map(|(_, y)| *y).fold(1.0, f64::max) * 1.05
}
