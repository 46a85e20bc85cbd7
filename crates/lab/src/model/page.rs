//! The model's answer as a page that needs nothing from anywhere: the topology drawn, every
//! table, which input matters most, and curves along those that do.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

use remora_model::{Report, Topology};

use super::diagram::diagram;
use super::input::{Input, Unit};
use super::plot::curves;
use super::study::{Output, Sensitivities, Sensitivity, outputs, sensitivities, spaced, sweep};
use super::tables::{Tables, tables};
use crate::report::number::digits;
use crate::report::page::{Body, ReservedFile, escape};
use crate::report::table::Table;

/// Points of a curve.
const CURVE_POINTS: usize = 31;
/// Inputs that a page has curves for.
const CURVES: usize = 3;
/// Rows of the sensitivity table at most.
const ROWS_MAX: usize = 40;
/// Below this an input hardly matters, and has no row.
const HARDLY: f64 = 0.001;

/// A network and what it does when it changes.
#[derive(Clone, Debug)]
pub struct Study<'a> {
    /// The network.
    pub topology: &'a Topology,
    /// Its solution.
    pub report: &'a Report,
    /// Processors to use.
    pub threads: NonZeroUsize,
}

impl Study<'_> {
    /// The topology drawn, as SVG.
    pub fn drawing(&self) -> String {
        diagram(self.topology, self.report)
    }

    /// All tables as HTML, the reasons to doubt below.
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

    /// The curves along `input`, over its slider's range around `value`; an error is plotters' own
    /// words.
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

    /// Which inputs matter, most first.
    pub fn sensitivities(&self) -> (Vec<Output>, Sensitivities) {
        let outputs = outputs(self.topology);
        let found = sensitivities(self.topology, &outputs, self.threads);
        (outputs, found)
    }

    /// The same as an HTML table, with what is not in it below.
    pub fn sensitivity_html(outputs: &[Output], all: &Sensitivities) -> String {
        let mut html = sensitivity_table(outputs, &all.found).to_html();
        if all.left_out > 0 {
            let (looked, left) = (all.found.len(), all.left_out);
            html +=
                &format!("<p><small>Of {looked} numbers; {left} more of this network were not looked at.</small></p>");
        }
        html
    }

    /// The whole page. `name` is what the network is called, `source` its file.
    fn page(&self, name: &str, source: &str) -> Result<String, String> {
        let (outputs, all) = self.sensitivities();
        let mut body = Body::new(name);
        body.paragraph(&format!(
            "{} stations, by the analytic model of Remora {}. Figures marked [n] are outside of the range that their \
             formula was checked for; the reasons are below the tables.",
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

/// Elasticities as a table: inputs that hardly matter are left out.
fn sensitivity_table(outputs: &[Output], found: &[Sensitivity]) -> Table {
    let head = ["input".to_owned(), "value".to_owned()].into_iter().chain(outputs.iter().map(|o| o.name.clone()));
    let row = |s: &Sensitivity| {
        let share = |e: &Option<f64>| e.map_or("-".into(), elastic);
        [s.input.name.clone(), shown(&s.input, s.value)].into_iter().chain(s.elasticities.iter().map(share)).collect()
    };
    let rows = found.iter().filter(|s| s.most() >= HARDLY).take(ROWS_MAX).map(row);
    Table::new(1, head, rows)
}

/// An elasticity for people: one that is nearly none has no sign.
fn elastic(e: f64) -> String {
    if e.abs() < 0.0005 { "0.000".into() } else { format!("{e:+.3}") }
}

/// A value for people.
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

#[cfg(test)]
mod tests {
    use remora_model::Network;

    use super::super::examples;
    use super::*;

    #[test]
    fn nearly_no_elasticity_has_no_sign() {
        for (e, text) in [(0.0, "0.000"), (-0.0, "0.000"), (-0.0004, "0.000"), (-0.0006, "-0.001"), (1.0, "+1.000")] {
            assert_eq!(elastic(e), text);
        }
    }

    #[test]
    fn the_page_says_how_many_numbers_it_has_not_looked_at() {
        let said = |left_out| Study::sensitivity_html(&[], &Sensitivities { found: Vec::new(), left_out });
        assert!(said(7).contains("7 more of this network were not looked at"), "{}", said(7));
        assert!(!said(0).contains("not looked at"));
    }

    #[test]
    fn the_page_has_everything_and_asks_for_nothing() {
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
}
