//! A figure as SVG: in black on nothing, so that a page can show it in its own ink.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::element::PathElement;
use plotters::prelude::*;

use super::cell::Packet;
use crate::report::page::in_ink;

/// Of the picture, in units that are pixels on a wide screen.
const SIZE: (u32, u32) = (760, 400);
const FONT: (&str, u32) = ("sans-serif", 15);
/// How far lines stand apart at one level, so that their intervals can be told apart.
const ASIDE: f64 = 0.07;
/// Half the width of an interval's ends.
const CAP: f64 = 0.03;

/// Colours of Okabe and Ito, and grey, that can be told apart by everybody, on white and on black.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0x00, 0x72, 0xb2),
];
const SIGNS: [char; 7] = ['●', '▲', '■', '◆', '✚', '▼', '✖'];

type Fallible<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Canvas<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// What a line looks like: one of seven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(usize);

impl Mark {
    /// One after the other, again and again.
    pub(crate) fn all() -> impl Iterator<Item = Mark> {
        (0..COLOURS.len()).cycle().map(Mark)
    }

    fn rgb(self) -> RGBColor {
        COLOURS[self.0 % COLOURS.len()]
    }

    /// Its colour, for CSS.
    pub(crate) fn colour(self) -> String {
        let RGBColor(r, g, b) = self.rgb();
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    /// Its sign, for text.
    pub(crate) fn sign(self) -> char {
        SIGNS[self.0 % SIGNS.len()]
    }

    /// Its sign around `at`, some pixels large.
    fn outline(self) -> Vec<(i32, i32)> {
        match self.0 % SIGNS.len() {
            0 => vec![(-4, -2), (-2, -4), (2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2)],
            1 => vec![(0, -6), (5, 4), (-5, 4)],
            2 => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
            3 => vec![(0, -6), (6, 0), (0, 6), (-6, 0)],
            5 => vec![(0, 6), (5, -4), (-5, -4)],
            sign => {
                let quarter = if sign == 4 { [(-2, -6), (2, -6), (2, -2)] } else { [(0, -3), (3, -6), (6, -3)] };
                let turn = |(x, y): (i32, i32), times| (0..times).fold((x, y), |(x, y), _| (-y, x));
                (0..4).flat_map(|times| quarter.map(|p| turn(p, times))).collect()
            }
        }
    }
}

/// A point with its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Which level.
    pub(crate) x: usize,
    /// The median.
    pub(crate) y: f64,
    /// Its interval.
    pub(crate) interval: Option<(f64, f64)>,
    /// It is really above that.
    pub(crate) is_beyond: bool,
    /// So is the interval's upper end.
    pub(crate) is_open: bool,
}

impl Point {
    /// A median, and whether it is only known to be above that; ends that are infinite were cut off at `limit`.
    pub(crate) fn new(x: usize, (y, is_beyond): (f64, bool), interval: Option<(f64, f64)>, limit: f64) -> Point {
        let is_open = interval.is_some_and(|(_, high)| high.is_infinite());
        let ended = |end: f64| if end.is_finite() { end } else { limit };
        Point { x, y, interval: interval.map(|(low, high)| (ended(low), ended(high))), is_beyond, is_open }
    }
}

/// A line, and what the paper has for it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its points by level.
    pub(crate) points: Vec<Point>,
    /// The paper's means by level.
    pub(crate) paper: Vec<(usize, f64)>,
}

/// Lines over levels that stand side by side.
pub(crate) struct Chart<'a> {
    /// What the levels are of.
    pub(crate) x_title: &'a str,
    /// The levels.
    pub(crate) x_levels: &'a [String],
    /// What is shown upwards.
    pub(crate) y_title: &'a str,
    /// On a logarithmic scale.
    pub(crate) logarithmic: bool,
    /// The lines.
    pub(crate) lines: &'a [Line],
}

/// One run's packets.
pub(crate) struct Run<'a> {
    /// In the order in which they were sent.
    pub(crate) packets: &'a [Packet],
}

impl Chart<'_> {
    /// The picture; an error is plotters' own words.
    pub(crate) fn svg(&self) -> Result<String, String> {
        let mut out = String::new();
        self.draw(&mut out).map_err(|e| e.to_string())?;
        Ok(in_ink(&out))
    }

    fn draw(&self, out: &mut String) -> Fallible {
        let root = SVGBackend::with_string(out, SIZE).into_drawing_area();
        let (y_range, y_ticks) = self.scale();
        let last = self.x_levels.len().saturating_sub(1) as f64;
        let x_ticks = (0..self.x_levels.len()).map(|n| n as f64).collect();
        let mut canvas = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(axis(-0.4..last + 0.4, x_ticks), axis(y_range, y_ticks))?;
        let level = |x: &f64| self.x_levels.get(x.round() as usize).cloned().unwrap_or_default();
        let height = |y: &f64| tick_text(if self.logarithmic { 10f64.powf(*y) } else { *y });
        mesh(&mut canvas, self.x_title, self.y_title, &level, &height)?;
        for (n, (line, mark)) in self.lines.iter().zip(Mark::all()).enumerate() {
            let aside = (n as f64 - (self.lines.len() as f64 - 1.0) / 2.0) * ASIDE;
            self.line(&mut canvas, line, mark, aside)?;
        }
        root.present()?;
        Ok(())
    }

    fn line(&self, canvas: &mut Canvas<'_, '_>, line: &Line, mark: Mark, aside: f64) -> Fallible {
        let colour = mark.rgb();
        let at = |x: usize, y: f64| (x as f64 + aside, self.height(y));
        // Where a median is not known, nothing leads to or from its place: that is where runs were cut off.
        for known in line.points.split(|p| p.is_beyond).filter(|known| known.len() > 1) {
            canvas.draw_series(LineSeries::new(known.iter().map(|p| at(p.x, p.y)), colour.stroke_width(2)))?;
        }
        for point in &line.points {
            if let Some((low, high)) = point.interval {
                let (x, low) = at(point.x, low);
                let high = self.height(high);
                let caps = if point.is_open { vec![low] } else { vec![low, high] };
                let ends = caps.into_iter().map(|y| vec![(x - CAP, y), (x + CAP, y)]);
                let strokes = ends.chain([vec![(x, low), (x, high)]]);
                canvas.draw_series(strokes.map(|s| PathElement::new(s, colour.mix(0.8).stroke_width(1))))?;
            }
            sign(canvas, at(point.x, point.y), mark, point.is_beyond)?;
            // The interval's arrow says it of the median, too.
            let open = point.interval.filter(|_| point.is_open).map(|(_, high)| high);
            if let Some(end) = open.or(point.is_beyond.then_some(point.y)) {
                let (above, style) = (at(point.x, end), FONT.into_font().color(&BLACK));
                canvas.draw_series([EmptyElement::at(above) + Text::new("↑", (-4, -20), style)])?;
            }
        }
        let paper = line.paper.iter().map(|(x, y)| Circle::new(at(*x, *y), 6, colour.stroke_width(2)));
        canvas.draw_series(paper)?;
        Ok(())
    }

    /// A value on the vertical axis.
    fn height(&self, y: f64) -> f64 {
        if self.logarithmic { y.max(1e-9).log10() } else { y }
    }

    /// The range of the vertical axis and its ticks, as heights.
    fn scale(&self) -> (Range<f64>, Vec<f64>) {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let ends = points().flat_map(|p| p.interval.map_or([p.y; 2], |(low, high)| [low, high]));
        let values: Vec<f64> = ends
            .chain(points().map(|p| p.y))
            .chain(self.lines.iter().flat_map(|l| &l.paper).map(|(_, y)| *y))
            .collect();
        let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        if !self.logarithmic {
            let ticks = linear_ticks(high);
            return (0.0..high * 1.06, ticks);
        }
        let low = values.iter().copied().fold(high, f64::min).max(1e-9);
        let (low, high) = (low * 0.93, high * 1.12);
        let ticks = logarithmic_ticks(low, high).into_iter().map(f64::log10).collect();
        (low.log10()..high.log10(), ticks)
    }
}

/// The packets' numbers over time, of some runs; crosses are packets sent again.
pub(crate) fn packets(runs: &[Run<'_>]) -> Result<String, String> {
    let mut out = String::new();
    draw_packets(&mut out, runs).map_err(|e| e.to_string())?;
    Ok(in_ink(&out))
}

fn draw_packets(out: &mut String, runs: &[Run<'_>]) -> Fallible {
    let root = SVGBackend::with_string(out, SIZE).into_drawing_area();
    let all = || runs.iter().flat_map(|r| r.packets);
    let end = all().map(|p| p.seconds).fold(1.0, f64::max);
    let top = all().map(|p| f64::from(p.number)).fold(1.0, f64::max);
    let mut canvas = ChartBuilder::on(&root)
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(axis(0.0..end * 1.02, linear_ticks(end)), axis(0.0..top * 1.05, linear_ticks(top)))?;
    mesh(&mut canvas, "seconds", "packet number", &|x| tick_text(*x), &|y| tick_text(*y))?;
    for (run, mark) in runs.iter().zip(Mark::all()) {
        let colour = mark.rgb();
        let at = |p: &Packet| (p.seconds, f64::from(p.number));
        canvas.draw_series(run.packets.iter().filter(|p| !p.again).map(|p| Circle::new(at(p), 2, colour.filled())))?;
        let again = run.packets.iter().filter(|p| p.again);
        canvas.draw_series(again.map(|p| Cross::new(at(p), 4, colour.stroke_width(2))))?;
    }
    root.present()?;
    Ok(())
}

/// An axis whose ticks are given.
struct Axis {
    range: RangedCoordf64,
    ticks: Vec<f64>,
}

fn axis(range: Range<f64>, ticks: Vec<f64>) -> Axis {
    Axis { range: range.into(), ticks }
}

impl Ranged for Axis {
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

fn mesh(
    canvas: &mut Canvas<'_, '_>,
    x_title: &str,
    y_title: &str,
    x_text: &dyn Fn(&f64) -> String,
    y_text: &dyn Fn(&f64) -> String,
) -> Fallible {
    canvas
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .x_label_formatter(&|x| x_text(x))
        .y_label_formatter(&|y| y_text(y))
        .x_desc(x_title)
        .y_desc(y_title)
        .draw()?;
    Ok(())
}

/// A line's sign: open where the value is beyond it.
fn sign(canvas: &mut Canvas<'_, '_>, at: (f64, f64), mark: Mark, is_open: bool) -> Fallible {
    let mut outline = mark.outline();
    if is_open {
        outline.extend(outline.first().copied());
        canvas.draw_series([EmptyElement::at(at) + PathElement::new(outline, mark.rgb().stroke_width(2))])?;
    } else {
        canvas.draw_series([EmptyElement::at(at) + Polygon::new(outline, mark.rgb().filled())])?;
    }
    Ok(())
}

/// Round numbers from zero to `high`, seven at most.
fn linear_ticks(high: f64) -> Vec<f64> {
    let decade = 10f64.powf((high / 7.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|f| f * decade).into_iter().find(|s| high / s <= 7.0).unwrap_or(high);
    (0..=7).map(|n| f64::from(n) * step).take_while(|t| *t <= high * 1.05).collect()
}

/// Round numbers from `low` to `high`: of the coarsest kind of which there are four.
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

/// A tick's number, without needless digits.
fn tick_text(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(linear_ticks(68.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]);
        assert_eq!(linear_ticks(0.9).len(), 5);
        assert_eq!(logarithmic_ticks(0.9, 120.0), [1.0, 3.0, 10.0, 30.0, 100.0]);
        assert_eq!(logarithmic_ticks(0.95, 1.21), [1.0, 1.05, 1.1, 1.15, 1.2]);
        for (value, text) in [(0.0, "0"), (10f64.powf(1.1f64.log10()), "1.1"), (300.0, "300"), (0.05, "0.05")] {
            assert_eq!(tick_text(value), text);
        }
    }

    /// One that is cut off must not look like one that was measured.
    #[test]
    fn an_interval_that_was_cut_off_ends_in_an_arrow() {
        let drawn = |high| {
            let points = vec![Point::new(0, (10.0, false), Some((5.0, high)), 300.0)];
            let lines = [Line { points, paper: Vec::new() }];
            let chart =
                Chart { x_title: "x", x_levels: &["a".to_owned()], y_title: "y", logarithmic: false, lines: &lines };
            chart.svg().unwrap()
        };
        let (measured, cut) = (drawn(300.0), drawn(f64::INFINITY));
        assert!(!measured.contains('↑') && cut.contains('↑'));
        assert_eq!(measured.matches("<polyline").count(), cut.matches("<polyline").count() + 1, "a cap less");
    }

    /// The runs of a cell need not have one limit.
    #[test]
    fn only_what_was_cut_off_lies_at_the_limit() {
        let interval = |low, high| Point::new(0, (20.0, false), Some((low, high)), 3.0).interval;
        assert_eq!(interval(5.0, 30.0), Some((5.0, 30.0)));
        assert_eq!(interval(2.0, f64::INFINITY), Some((2.0, 3.0)));
    }

    #[test]
    fn a_median_that_is_not_known_is_open_and_apart() {
        let drawn = |beyond| {
            let point = |x| Point::new(x, (10.0, x == 2 && beyond), None, 300.0);
            let lines = [Line { points: (0..4).map(point).collect(), paper: Vec::new() }];
            let x_levels = ["a", "b", "c", "d"].map(str::to_owned);
            Chart { x_title: "x", x_levels: &x_levels, y_title: "y", logarithmic: false, lines: &lines }.svg().unwrap()
        };
        let places = |svg: &str| {
            let colour = format!("stroke=\"{}\"", Mark::all().next().unwrap().colour().to_uppercase());
            let lines = svg.split("<polyline").skip(1).filter(|l| l.to_uppercase().contains(&colour.to_uppercase()));
            lines
                .map(|l| l.split("points=\"").nth(1).unwrap().split('"').next().unwrap().split_whitespace().count())
                .collect::<Vec<_>>()
        };
        let signs = |svg: &str| svg.matches("<polygon").count();
        let (known, beyond) = (drawn(false), drawn(true));
        assert_eq!((places(&known), signs(&known)), (vec![4], 4));
        // The line to the second point, and the open sign; the fourth stands alone.
        assert_eq!((places(&beyond), signs(&beyond)), (vec![2, 9], 3), "{beyond}");
    }

    #[test]
    fn a_chart_of_anything_can_be_drawn() {
        let point = |x, y, interval, is_beyond| Point::new(x, (y, is_beyond), interval, 300.0);
        let lines = [
            Line {
                points: vec![point(0, 1.0, None, false), point(1, 300.0, Some((2.0, 300.0)), true)],
                paper: vec![(0, 3.0)],
            },
            Line { points: Vec::new(), paper: Vec::new() },
        ];
        let x_levels = ["a".to_owned(), "b < c".to_owned()];
        for logarithmic in [false, true] {
            for lines in [&lines[..], &[]] {
                let chart = Chart { x_title: "x", x_levels: &x_levels, y_title: "y", logarithmic, lines };
                let svg = chart.svg().unwrap();
                assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!(!svg.contains("#000000"), "ink that a dark page would not show");
            }
        }
        assert!(packets(&[Run { packets: &[] }]).unwrap().starts_with("<svg"));
    }
}
