//! The model's solution as a page: diagram, tables, sensitivities, and curves along the main inputs.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

use plotters::prelude::*;
use remora_model::{Report, Topology};

use super::diagram::diagram;
use super::input::{Input, Unit};
use super::study::{Output, Point, Sensitivities, Sensitivity, outputs, sensitivities, spaced, sweep};
use super::tables::{Tables, tables};
use crate::report::number::digits;
use crate::report::number::escape;
use crate::report::page::{Body, Figure, LegendEntry, ReservedFile};
use crate::report::plot::{self, Axis};
use crate::report::table::Table;

const CURVE_POINTS: usize = 31;
const CURVES: usize = 3;
const ROWS_MAX: usize = 40;
/// Inputs with smaller elasticities have no row.
const HARDLY: f64 = 0.001;

/// A network, its solution and its sensitivities.
#[derive(Clone, Debug)]
pub struct Study<'a> {
    pub topology: &'a Topology,
    pub report: &'a Report,
    pub threads: NonZeroUsize,
}

impl Study<'_> {
    pub fn drawing(&self) -> String {
        diagram(self.topology, self.report)
    }

    /// All tables as HTML, followed by the reasons for doubt.
    pub fn tables_html(&self) -> String {
        let Tables { verdict, tables, doubts } = tables(self.report);
        let mut html = format!("<p>{}</p>", escape(&verdict));
        html.extend(tables.iter().map(Table::to_html));
        if !doubts.is_empty() {
            let items: String =
                doubts.iter().enumerate().map(|(i, d)| format!("<p>[{}] {}</p>", i + 1, escape(d))).collect();
            html += &format!("<div class=\"doubts\">{items}</div>");
        }
        html
    }

    /// Curves along `input`, over its slider's range around `value`. An error is plotters' message.
    pub fn curve_html(&self, input: &Input, value: f64) -> Result<String, String> {
        let slider = input.slider(value);
        let mut values = spaced(slider.low, slider.high, CURVE_POINTS);
        if input.unit() == Unit::Count {
            values.iter_mut().for_each(|v| *v = v.round());
            values.dedup();
        }
        let points = sweep(self.topology, input, &values, self.threads, || ());
        curves(input, &points, &outputs(self.topology), input.get(self.topology).unwrap_or(value))
    }

    pub fn sensitivities(&self) -> (Vec<Output>, Sensitivities) {
        let outputs = outputs(self.topology);
        let found = sensitivities(self.topology, &outputs, self.threads);
        (outputs, found)
    }

    /// Sensitivities as an HTML table, with the number of inputs left out.
    pub fn sensitivity_html(outputs: &[Output], all: &Sensitivities) -> String {
        let mut html = sensitivity_table(outputs, &all.found).to_html();
        if all.found.iter().any(|s| s.doubted.contains(&true)) {
            html += "<p><small>By formulas; in brackets where they are outside of the range that they were checked \
                     for.</small></p>";
        }
        if all.left_out > 0 {
            let (looked, left) = (all.found.len(), all.left_out);
            html +=
                &format!("<p><small>Of {looked} numbers; {left} more of this network were not looked at.</small></p>");
        }
        html
    }

    /// The whole page. `source` is the network's file.
    fn page(&self, name: &str, source: &str) -> Result<String, String> {
        let (outputs, all) = self.sensitivities();
        let mut body = Body::new(name);
        body.paragraph(&format!(
            "{} stations, by the network model of Remora {}. A figure is simulated where its formula is outside of the \
             range that it was checked for; the reasons [n] are below the tables. Curves are by formulas alone.",
            self.report.stations,
            env!("CARGO_PKG_VERSION"),
        ));
        body.html(&format!("<figure>{}</figure>{}", self.drawing(), self.tables_html()));
        if !outputs.is_empty() {
            body.heading("What matters most");
            body.paragraph("By how many per cent each result changes when an input grows by one per cent.");
            body.html(&Study::sensitivity_html(&outputs, &all));
        }
        for most in all.found.iter().filter(|s| s.most() >= HARDLY).take(CURVES) {
            body.html(&format!("<h3>{}</h3>{}", escape(&most.input.name), self.curve_html(&most.input, most.value)?));
        }
        body.html(&format!("<details><summary>the file</summary><pre>{}</pre></details>", escape(source)));
        Ok(body.finish(&format!("remora model {name}")))
    }
}

/// Elasticities as a table, without negligible inputs.
fn sensitivity_table(outputs: &[Output], found: &[Sensitivity]) -> Table {
    let head = ["input".to_owned(), "value".to_owned()].into_iter().chain(outputs.iter().map(|o| o.name.clone()));
    let row = |s: &Sensitivity| {
        let share = |(e, doubted): (&Option<f64>, &bool)| match e {
            Some(e) if *doubted => format!("({})", elastic(*e)),
            Some(e) => elastic(*e),
            None => "-".into(),
        };
        let shares = s.elasticities.iter().zip(&s.doubted).map(share);
        [s.input.name.clone(), shown(&s.input, s.value)].into_iter().chain(shares).collect()
    };
    let rows = found.iter().filter(|s| s.most() >= HARDLY).take(ROWS_MAX).map(row);
    Table::new(1, head, rows)
}

/// An elasticity as text; without a sign near zero.
fn elastic(e: f64) -> String {
    if e.abs() < 0.0005 { "0.000".into() } else { format!("{e:+.3}") }
}

fn shown(input: &Input, value: f64) -> String {
    match input.unit() {
        Unit::Number => digits(value),
        Unit::Count => format!("{value}"),
        Unit::Bytes => format!("{value} B"),
        Unit::Seconds => format!("{} ms", digits(value * 1e3)),
        Unit::BitsPerSecond => format!("{} Mbit/s", digits(value / 1e6)),
    }
}

/// Writes the page of a network to `path`, whole or not at all.
pub fn write_page(path: &Path, study: &Study<'_>, name: &str, source: &str) -> io::Result<()> {
    let file = ReservedFile::reserve(path)?;
    file.write(&study.page(name, source).map_err(io::Error::other)?)
}

const SIZE: plot::Size = plot::Size { width: 700, height: 300 };
/// Opacity of a line where it is doubted.
const PALE: f64 = 0.35;
/// Delays diverge near saturation: the scale ends at this multiple of the smallest value.
const SCALE_MAX: f64 = 30.0;

struct CurveLine {
    name: String,
    points: Vec<CurvePoint>,
}

#[derive(Clone, Copy)]
struct CurvePoint {
    x: f64,
    y: Option<f64>,
    /// The value is outside of the range that the model was checked for.
    doubted: bool,
}

/// Figures as HTML, one for copies and one for flows. A line marks `now`. An error is plotters' message.
pub fn curves(input: &Input, points: &[Point], outputs: &[Output], now: f64) -> Result<String, String> {
    let (scale, unit) = axis(input.unit(), points);
    let x_title = if unit.is_empty() { input.name.clone() } else { format!("{} ({unit})", input.name) };
    let mut html = String::new();
    for (is_copy, y_title, y_scale) in [(true, "copy time (s)", 1.0), (false, "delay (ms)", 1e3)] {
        let line = |output: &Output| CurveLine {
            name: output.name.clone(),
            points: points.iter().map(|p| CurvePoint::of(p, output, scale, y_scale)).collect(),
        };
        let lines: Vec<CurveLine> = outputs.iter().filter(|o| o.is_copy() == is_copy).map(line).collect();
        if !lines.is_empty() {
            html += &figure(&lines, [&x_title, y_title], now * scale)?;
        }
    }
    Ok(html)
}

/// Scale and unit of the horizontal axis.
fn axis(unit: Unit, points: &[Point]) -> (f64, &'static str) {
    let most = points.iter().fold(0.0, |most: f64, p| p.value.max(most));
    match unit {
        Unit::Number | Unit::Count => (1.0, ""),
        Unit::Bytes if most >= 1e6 => (1e-6, "MB"),
        Unit::Bytes => (1.0, "bytes"),
        Unit::Seconds if most >= 1.0 => (1.0, "s"),
        Unit::Seconds if most >= 1e-3 => (1e3, "ms"),
        Unit::Seconds => (1e6, "us"),
        Unit::BitsPerSecond => (1e-6, "Mbit/s"),
    }
}

fn figure(lines: &[CurveLine], titles: [&str; 2], now: f64) -> Result<String, String> {
    let mut legend = LegendEntry::series(lines.iter().map(|l| l.name.as_str()));
    if lines.iter().any(|l| l.points.iter().any(|p| p.doubted && p.y.is_some())) {
        legend.push(LegendEntry::plain('░', "pale: outside of the range that the formulas were checked for"));
    }
    Ok(Figure { legend, svg: svg(lines, titles, now)?, ..Figure::default() }.to_html())
}

fn svg(lines: &[CurveLine], [x_title, y_title]: [&str; 2], now: f64) -> Result<String, String> {
    let xs = || lines.iter().flat_map(|l| l.points.iter().map(|p| p.x));
    let ys = || lines.iter().flat_map(|l| l.points.iter().filter_map(|p| p.y));
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    let (low, high) = if low < high { (low, high) } else { (0.0, 1.0) };
    let (least, most) = (ys().fold(f64::INFINITY, f64::min), ys().fold(0.0, f64::max));
    let top = if least.is_finite() { most.min(least.max(most / 1e3) * SCALE_MAX) * 1.05 } else { 1.0 };
    let top = if top > 0.0 { top } else { 1.0 };
    plot::svg(SIZE, |root| {
        let mut canvas = plot::axes(root, Axis::linear(x_title, low..high), Axis::linear(y_title, 0.0..top))?;
        if (low..=high).contains(&now) {
            plot::line(&mut canvas, vec![(now, 0.0), (now, top)], BLACK.mix(0.35).stroke_width(1))?;
        }
        for (n, line) in lines.iter().enumerate() {
            for run in line.points.split(|p| p.y.is_none_or(|y| y > top)) {
                for (doubted, part) in parts(run) {
                    let ink = plot::colour(n).mix(if doubted { PALE } else { 1.0 });
                    plot::line(&mut canvas, part, ink.stroke_width(2))?;
                }
            }
        }
        Ok(())
    })
}

impl CurvePoint {
    fn of(point: &Point, output: &Output, x_scale: f64, y_scale: f64) -> CurvePoint {
        let report = point.report.as_ref().ok();
        CurvePoint {
            x: point.value * x_scale,
            y: report.and_then(|r| output.of(r)).map(|y| y * y_scale),
            doubted: report.is_some_and(|r| !output.outside(r).is_empty()),
        }
    }
}

/// Splits a run of points into doubted and undoubted parts. A segment is doubted if either end is.
fn parts(run: &[CurvePoint]) -> Vec<(bool, Vec<(f64, f64)>)> {
    let place = |p: &CurvePoint| Some((p.x, p.y?));
    if let [only] = run {
        return vec![(only.doubted, place(only).into_iter().collect())];
    }
    let mut parts: Vec<(bool, Vec<(f64, f64)>)> = Vec::new();
    for pair in run.windows(2) {
        let doubted = pair.iter().any(|p| p.doubted);
        let end = pair.last().and_then(place);
        match parts.last_mut() {
            Some((same, part)) if *same == doubted => part.extend(end),
            _ => parts.push((doubted, pair.iter().filter_map(place).collect())),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use remora_model::Network;

    use super::*;
    use crate::model::{examples, input, study};

    #[test]
    fn elasticity_near_zero_has_no_sign() {
        for (e, text) in [(0.0, "0.000"), (-0.0, "0.000"), (-0.0004, "0.000"), (-0.0006, "-0.001"), (1.0, "+1.000")] {
            assert_eq!(elastic(e), text);
        }
    }

    #[test]
    fn page_counts_inputs_left_out() {
        let said = |left_out| Study::sensitivity_html(&[], &Sensitivities { found: Vec::new(), left_out });
        assert!(said(7).contains("7 more of this network were not looked at"), "{}", said(7));
        assert!(!said(0).contains("not looked at"));
    }

    #[test]
    fn page_has_all_parts_and_no_external_resource() {
        let topology = examples::office();
        let report = Network::new(topology.clone()).unwrap().solve();
        let study = Study { topology: &topology, report: &report, threads: NonZeroUsize::MIN };
        let page = study.page("of<fice", "name = \"<b>\"").unwrap();
        for words in ["of&lt;fice", "109 stations", "class=\"topology\"", "access &lt;point&gt;", "What matters most"] {
            assert!(page.contains(words), "{words}");
        }
        assert!(page.contains("copy.1.file") && page.contains("<polyline") && page.contains("&lt;b&gt;"));
        for request in ["http://", "https://", "src=", "<link", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(request);
            assert!(!found, "{request}");
        }
    }

    #[test]
    fn curves_have_a_line_for_each_output() {
        let topology = examples::office();
        let rate = input::inputs(&topology).into_iter().find(|i| i.name == "flow.1.rate").unwrap();
        let points = study::sweep(&topology, &rate, &study::spaced(0.0, 80.0, 9), NonZeroUsize::MIN, || ());
        let html = curves(&rate, &points, &study::outputs(&topology), 8.0).unwrap();
        assert_eq!(html.matches("<figure>").count(), 2);
        for words in
            ["copy servers &gt; desks", "flow desks &gt; servers", "flow.1.rate", "copy time (s)", "delay (ms)"]
        {
            assert!(html.contains(words), "{words}: {html}");
        }
        assert!(html.matches("<polyline").count() >= 5 && !html.contains("style="), "{html}");
    }

    #[test]
    fn doubted_points_are_a_part_of_their_own() {
        let run: Vec<CurvePoint> = [false, false, true, false, false, false]
            .into_iter()
            .enumerate()
            .map(|(i, doubted)| CurvePoint { x: i as f64, y: Some(0.0), doubted })
            .collect();
        let ends = |part: &(bool, Vec<(f64, f64)>)| (part.0, part.1[0].0, part.1[part.1.len() - 1].0);
        assert_eq!(
            parts(&run).iter().map(ends).collect::<Vec<_>>(),
            [(false, 0.0, 1.0), (true, 1.0, 3.0), (false, 3.0, 5.0)]
        );
        assert_eq!(parts(&run[2..3]), [(true, vec![(2.0, 0.0)])]);
        assert_eq!(parts(&[]), []);
    }

    #[test]
    fn network_without_values_is_an_empty_figure() {
        let line = CurveLine {
            name: "x".into(),
            points: [1.0, 2.0].map(|x| CurvePoint { x, y: None, doubted: true }).to_vec(),
        };
        assert!(figure(&[line], ["a", "b"], 1.0).unwrap().contains("<svg"));
    }
}
