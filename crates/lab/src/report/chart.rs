//! Lines over levels that stand side by side, each point with its confidence interval.

use std::ops::Range;

use plotters::element::PathElement;
use plotters::prelude::*;

use super::plot::{self, Axis, Canvas, Drawn, FONT};

const SIZE: plot::Size = plot::Size { width: 760, height: 400 };
/// Distance between lines at one level, so that their intervals can be told apart.
const LINE_OFFSET: f64 = 0.07;
/// Half the width of an interval's caps.
const CAP: f64 = 0.03;

const SIGNS: [char; 7] = ['●', '▲', '■', '◆', '✚', '▼', '✖'];

/// Colour and sign of a line: one of seven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(usize);

impl Mark {
    pub(crate) fn all() -> impl Iterator<Item = Mark> {
        (0..SIGNS.len()).cycle().map(Mark)
    }

    pub(crate) fn colour(self) -> RGBColor {
        plot::colour(self.0)
    }

    pub(crate) fn sign(self) -> char {
        SIGNS[self.0 % SIGNS.len()]
    }

    /// The sign's outline around its point, in pixels.
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

/// A median with its interval at one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelPoint {
    pub(crate) level: usize,
    pub(crate) median: f64,
    pub(crate) interval: Option<(f64, f64)>,
    /// The median is only known to be above `median`.
    pub(crate) is_beyond: bool,
    /// Where runs were cut off: infinite ends of the interval are drawn there.
    pub(crate) limit: f64,
}

impl LevelPoint {
    /// The interval as it is drawn.
    fn ends(&self) -> Option<(f64, f64)> {
        let ended = |end: f64| if end.is_finite() { end } else { self.limit };
        self.interval.map(|(low, high)| (ended(low), ended(high)))
    }

    fn is_open(&self) -> bool {
        self.interval.is_some_and(|(_, high)| high.is_infinite())
    }
}

/// A line: measured points, and a paper's or a prediction's values as circles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) points: Vec<LevelPoint>,
    pub(crate) circles: Vec<(usize, f64)>,
}

pub(crate) struct LevelChart<'a> {
    pub(crate) x_title: &'a str,
    pub(crate) x_levels: &'a [String],
    pub(crate) y_title: &'a str,
    pub(crate) logarithmic: bool,
    pub(crate) lines: &'a [Series],
}

impl LevelChart<'_> {
    /// The chart as SVG; an error is plotters' message.
    pub(crate) fn svg(&self) -> Result<String, String> {
        plot::svg(SIZE, |root| {
            let range = self.range();
            let axis = if self.logarithmic { Axis::logarithmic } else { Axis::linear };
            let mut canvas = plot::axes(root, Axis::levels(self.x_title, self.x_levels), axis(self.y_title, range))?;
            for (n, (line, mark)) in self.lines.iter().zip(Mark::all()).enumerate() {
                let offset = (n as f64 - (self.lines.len() as f64 - 1.0) / 2.0) * LINE_OFFSET;
                self.line(&mut canvas, line, mark, offset)?;
            }
            Ok(())
        })
    }

    fn line(&self, canvas: &mut Canvas<'_, '_>, line: &Series, mark: Mark, offset: f64) -> Drawn {
        let colour = mark.colour();
        let at = |level: usize, y: f64| (level as f64 + offset, self.height(y));
        // No line leads to or from a median that is not known.
        for known in line.points.split(|p| p.is_beyond).filter(|known| known.len() > 1) {
            plot::line(canvas, known.iter().map(|p| at(p.level, p.median)).collect(), colour.stroke_width(2))?;
        }
        for point in &line.points {
            if let Some((low, high)) = point.ends() {
                let (x, low) = at(point.level, low);
                let high = self.height(high);
                let caps = if point.is_open() { vec![low] } else { vec![low, high] };
                let ends = caps.into_iter().map(|y| vec![(x - CAP, y), (x + CAP, y)]);
                let strokes = ends.chain([vec![(x, low), (x, high)]]);
                canvas.draw_series(strokes.map(|s| PathElement::new(s, colour.mix(0.8).stroke_width(1))))?;
            }
            let (x, y) = at(point.level, point.median);
            sign(canvas, x, y, mark, point.is_beyond)?;
            let open = point.ends().filter(|_| point.is_open()).map(|(_, high)| high);
            if let Some(end) = open.or(point.is_beyond.then_some(point.median)) {
                let (above, style) = (at(point.level, end), FONT.into_font().color(&BLACK));
                canvas.draw_series([EmptyElement::at(above) + Text::new("↑", (-4, -20), style)])?;
            }
        }
        let circles = line.circles.iter().map(|(level, y)| Circle::new(at(*level, *y), 6, colour.stroke_width(2)));
        canvas.draw_series(circles)?;
        Ok(())
    }

    /// A value's place on the vertical axis.
    fn height(&self, y: f64) -> f64 {
        if self.logarithmic { y.max(1e-9).log10() } else { y }
    }

    fn range(&self) -> Range<f64> {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let ends = points().flat_map(|p| p.ends().map_or([p.median; 2], |(low, high)| [low, high]));
        let values: Vec<f64> = ends
            .chain(points().map(|p| p.median))
            .chain(self.lines.iter().flat_map(|l| &l.circles).map(|(_, y)| *y))
            .collect();
        let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        if !self.logarithmic {
            return 0.0..high * 1.06;
        }
        let low = values.iter().copied().fold(high, f64::min).max(1e-9);
        (low * 0.93).log10()..(high * 1.12).log10()
    }
}

/// A line's sign; open where the median is beyond it.
fn sign(canvas: &mut Canvas<'_, '_>, x: f64, y: f64, mark: Mark, is_open: bool) -> Drawn {
    let mut outline = mark.outline();
    if is_open {
        outline.extend(outline.first().copied());
        canvas.draw_series([EmptyElement::at((x, y)) + PathElement::new(outline, mark.colour().stroke_width(2))])?;
    } else {
        canvas.draw_series([EmptyElement::at((x, y)) + Polygon::new(outline, mark.colour().filled())])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plot;

    fn point(level: usize, median: f64, interval: Option<(f64, f64)>, is_beyond: bool) -> LevelPoint {
        LevelPoint { level, median, interval, is_beyond, limit: 300.0 }
    }

    #[test]
    fn interval_that_was_cut_off_ends_in_an_arrow() {
        let drawn = |high| {
            let points = vec![point(0, 10.0, Some((5.0, high)), false)];
            let lines = [Series { points, circles: Vec::new() }];
            let chart = LevelChart {
                x_title: "x",
                x_levels: &["a".to_owned()],
                y_title: "y",
                logarithmic: false,
                lines: &lines,
            };
            chart.svg().unwrap()
        };
        let (measured, cut) = (drawn(300.0), drawn(f64::INFINITY));
        assert!(!measured.contains('↑') && cut.contains('↑'));
        assert_eq!(measured.matches("<polyline").count(), cut.matches("<polyline").count() + 1, "a cap less");
    }

    #[test]
    fn only_infinite_ends_of_an_interval_lie_at_the_limit() {
        let interval = |low, high| LevelPoint { limit: 3.0, ..point(0, 20.0, Some((low, high)), false) }.ends();
        assert_eq!(interval(5.0, 30.0), Some((5.0, 30.0)));
        assert_eq!(interval(2.0, f64::INFINITY), Some((2.0, 3.0)));
    }

    #[test]
    fn unknown_median_is_open_and_apart() {
        let drawn = |beyond| {
            let point = |x| point(x, 10.0, None, x == 2 && beyond);
            let lines = [Series { points: (0..4).map(point).collect(), circles: Vec::new() }];
            let x_levels = ["a", "b", "c", "d"].map(str::to_owned);
            LevelChart { x_title: "x", x_levels: &x_levels, y_title: "y", logarithmic: false, lines: &lines }
                .svg()
                .unwrap()
        };
        let places = |svg: &str| {
            let colour = format!("stroke=\"{}\"", plot::css(plot::colour(0)).to_uppercase());
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
    fn chart_of_anything_has_no_black_and_no_nan() {
        let lines = [
            Series {
                points: vec![point(0, 1.0, None, false), point(1, 300.0, Some((2.0, 300.0)), true)],
                circles: vec![(0, 3.0)],
            },
            Series { points: Vec::new(), circles: Vec::new() },
        ];
        let x_levels = ["a".to_owned(), "b < c".to_owned()];
        for logarithmic in [false, true] {
            for lines in [&lines[..], &[]] {
                let chart = LevelChart { x_title: "x", x_levels: &x_levels, y_title: "y", logarithmic, lines };
                let svg = chart.svg().unwrap();
                assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!(!svg.contains("#000000"), "ink that a dark page would not show");
            }
        }
    }
}
