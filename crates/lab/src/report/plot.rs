//! SVG drawings: colours, axes and the canvas that all plots share.
//!
//! Plots are drawn in black on nothing; black becomes the page's text colour, so that they suit a dark page.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

pub(crate) const FONT: (&str, u32) = ("sans-serif", 15);

// The colours of Okabe and Ito, which colour-blind readers can tell apart on white and on black.
pub(crate) const VERMILION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
pub(crate) const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
pub(crate) const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
pub(crate) const PINK: RGBColor = RGBColor(0xcc, 0x79, 0xa7);
pub(crate) const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
pub(crate) const GREY: RGBColor = RGBColor(0x80, 0x80, 0x80);
const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const YELLOW: RGBColor = RGBColor(0xf0, 0xe4, 0x42);
const SERIES: [RGBColor; 8] = [VERMILION, ORANGE, GREEN, PINK, SKY, GREY, BLUE, YELLOW];

pub(crate) type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;
pub(crate) type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Canvas<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ticks, Ticks>>;

/// Colour of series `n`.
pub(crate) fn colour(n: usize) -> RGBColor {
    SERIES[n % SERIES.len()]
}

pub(crate) fn css(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The size of a drawing, in pixels.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// A drawing of `size` units, which are pixels on a wide screen. An error is plotters' message.
pub(crate) fn svg(size: Size, draw: impl FnOnce(&Root<'_>) -> Drawn) -> Result<String, String> {
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, (size.width, size.height)).into_drawing_area();
        draw(&root).map_err(|e| e.to_string())?;
        root.present().map_err(|e| e.to_string())?;
    }
    Ok(out.replace("\"#000000\"", "\"currentColor\""))
}

/// An axis: its range, its ticks and their labels.
pub(crate) struct Axis<'a> {
    pub(crate) title: &'a str,
    pub(crate) range: Range<f64>,
    pub(crate) ticks: Vec<f64>,
    pub(crate) label: Box<dyn Fn(f64) -> String + 'a>,
}

impl<'a> Axis<'a> {
    /// At most eight round numbers over `range`.
    pub(crate) fn linear(title: &'a str, range: Range<f64>) -> Axis<'a> {
        Axis { title, ticks: linear_ticks(&range), range, label: Box::new(tick_text) }
    }

    /// Round numbers over a range of logarithms to base 10.
    pub(crate) fn logarithmic(title: &'a str, range: Range<f64>) -> Axis<'a> {
        let ticks = logarithmic_ticks(10f64.powf(range.start), 10f64.powf(range.end));
        let ticks = ticks.into_iter().map(f64::log10).collect();
        Axis { title, range, ticks, label: Box::new(|height| tick_text(10f64.powf(height))) }
    }

    /// One tick for each name, at 0, 1, 2 and so on.
    pub(crate) fn levels(title: &'a str, names: &'a [String]) -> Axis<'a> {
        let label = move |x: f64| names.get(x.round() as usize).cloned().unwrap_or_default();
        let ticks = (0..names.len()).map(|n| n as f64).collect();
        Axis { title, range: -0.4..names.len().saturating_sub(1) as f64 + 0.4, ticks, label: Box::new(label) }
    }

    pub(crate) fn bare(range: Range<f64>) -> Axis<'static> {
        Axis { title: "", range, ticks: Vec::new(), label: Box::new(|_| String::new()) }
    }
}

/// Draws two axes, with lines across at the ticks of `y`, and returns the area between them.
pub(crate) fn axes<'a, 'b>(root: &'a Root<'b>, x: Axis<'_>, y: Axis<'_>) -> Drawn<Canvas<'a, 'b>> {
    let ticks = |axis: &Axis<'_>| Ticks { range: axis.range.clone().into(), ticks: axis.ticks.clone() };
    let mut builder = ChartBuilder::on(root);
    builder.margin(10).x_label_area_size(44).y_label_area_size(64);
    let mut canvas = builder.build_cartesian_2d(ticks(&x), ticks(&y))?;
    canvas
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .x_label_formatter(&|at| (x.label)(*at))
        .y_label_formatter(&|at| (y.label)(*at))
        .x_desc(x.title)
        .y_desc(y.title)
        .draw()?;
    Ok(canvas)
}

/// A line through `points`.
pub(crate) fn line(canvas: &mut Canvas<'_, '_>, points: Vec<(f64, f64)>, style: impl Into<ShapeStyle>) -> Drawn {
    canvas.draw_series([PathElement::new(points, style)])?;
    Ok(())
}

/// A coordinate whose ticks are given.
pub(crate) struct Ticks {
    range: RangedCoordf64,
    ticks: Vec<f64>,
}

impl Ranged for Ticks {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.range()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten, eight at most.
fn linear_ticks(range: &Range<f64>) -> Vec<f64> {
    let width = range.end - range.start;
    let decade = 10f64.powf((width / 7.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|f| f * decade).into_iter().find(|s| width / s <= 7.0).unwrap_or(width);
    let first = (range.start / step - 1e-9).ceil();
    (0..=7).map(|n| (first + f64::from(n)) * step).take_while(|t| *t <= range.end + 1e-9 * width).collect()
}

/// Round numbers from `low` to `high`: the coarsest kind that gives four.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<f64> {
    const KINDS: [&[f64]; 5] = [
        &[1.0],
        &[1.0, 3.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        &[1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    ];
    let of = |kind: &[f64]| -> Vec<f64> {
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = decades.flat_map(|d| kind.iter().map(move |k| k * 10f64.powi(d)));
        all.filter(|t| (low..=high).contains(t)).collect()
    };
    KINDS.into_iter().map(of).find(|ticks| ticks.len() >= 4).unwrap_or_else(|| of(KINDS[4]))
}

fn tick_text(value: f64) -> String {
    super::number::trimmed(&format!("{:.3}", value + 0.0)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_any_range_are_round_and_few() {
        assert_eq!(linear_ticks(&(0.0..71.4)), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(linear_ticks(&(0.0..0.945)).len(), 5);
        assert_eq!(linear_ticks(&(95.0..130.0)), [95.0, 100.0, 105.0, 110.0, 115.0, 120.0, 125.0, 130.0]);
        assert_eq!(logarithmic_ticks(0.9, 120.0), [1.0, 3.0, 10.0, 30.0, 100.0]);
        assert_eq!(logarithmic_ticks(0.95, 1.21), [1.0, 1.05, 1.1, 1.15, 1.2]);
        for (value, text) in [(0.0, "0"), (10f64.powf(1.1f64.log10()), "1.1"), (300.0, "300"), (0.05, "0.05")] {
            assert_eq!(tick_text(value), text);
        }
    }
}
