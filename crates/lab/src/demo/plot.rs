//! Bytes over time, on top of the weather, as SVG.

use plotters::prelude::*;
use remora_base::Time;
use remora_channel::{Config, ErrorProcess};

use super::{LegResult, Outcome, Way};

const SIZE: (u32, u32) = (960, 400);
const COLOURS: [RGBColor; 3] = [RGBColor(204, 121, 0), RGBColor(0, 114, 178), RGBColor(0, 140, 90)];
const BAD: RGBColor = RGBColor(244, 214, 214);

/// The plot of one way; an error is plotters' own words.
pub(super) fn svg(outcome: &Outcome, link: &Config, way: Way) -> Result<String, String> {
    let mut out = String::new();
    draw(&mut out, outcome, link, way).map_err(|e| e.to_string())?;
    Ok(out)
}

fn draw(out: &mut String, outcome: &Outcome, link: &Config, way: Way) -> Result<(), Box<dyn std::error::Error>> {
    let legs: Vec<&LegResult> = outcome.legs.iter().filter(|l| l.way == way).collect();
    let end = legs.iter().map(|l| l.seconds).fold(1.0, f64::max) * 1.02;
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let top = kib(outcome.bytes.max(1)) * 1.05;

    let root = SVGBackend::with_string(out, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    if let Some(first) = legs.first() {
        chart.draw_series(
            bad_periods(link, outcome.seed, first.began, end)
                .into_iter()
                .map(|(from, to)| Rectangle::new([(from, 0.0), (to, top)], BAD.filled())),
        )?;
        if let Some(floor) = first.floor_seconds {
            chart
                .draw_series(LineSeries::new([(floor, 0.0), (floor, top)], BLACK.mix(0.6)))?
                .label("the channel's floor")
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.mix(0.6)));
        }
    }
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 14))
        .x_label_formatter(&|t| format!("{t:.0}"))
        .y_label_formatter(&|kib| format!("{kib:.0}"))
        .x_desc("seconds")
        .y_desc("KiB across")
        .draw()?;
    for (leg, colour) in legs.iter().zip(COLOURS) {
        let points = std::iter::once((0.0, 0.0)).chain(leg.curve.iter().map(|(t, b)| (*t, kib(*b))));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(leg.racer)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(("sans-serif", 14))
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

/// The bad periods in view, in seconds since `began`.
fn bad_periods(link: &Config, seed: u64, began: Time, seconds: f64) -> Vec<(f64, f64)> {
    let Ok(mut weather) = ErrorProcess::new(link, seed) else { return Vec::new() };
    let until = began + std::time::Duration::from_secs_f64(seconds);
    let view = |t: Time| t.since(began).as_secs_f64().min(seconds);
    weather.bad_periods(began, until).map(|p| (view(p.start), view(p.end))).collect()
}
