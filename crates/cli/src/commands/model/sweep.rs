//! `remora model --sweep`: one number of a network at many values, on all processors.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget};
use remora_base::Rate;
use remora_lab::Table;
use remora_lab::model::{Doubts, Input, Output, POINTS_MAX, Point, Unit, digits, inputs, outputs, spaced, sweep};
use remora_model::Topology;
use serde_json::json;

use crate::commands::model::environment::{threads, width};
use crate::commands::model::network_file;
use crate::commands::model::tables::{fitted, reasons};
use crate::config::units;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) fn run(path: &Path, range: &str, json: bool) -> Result {
    let (topology, _) = network_file::read(path)?;
    let (input, count, values) = read(&topology, range).map_err(|why| Error::Usage(format!("--sweep: {why}")))?;
    if values.len() < count {
        let key = &input.name;
        stdio::eprint(format_args!("{key} is an integer: {} of {count} values remain", values.len()));
    }
    let bar = ProgressBar::with_draw_target(Some(values.len() as u64), ProgressDrawTarget::stderr());
    let points = sweep(&topology, &input, &values, threads(), || bar.inc(1));
    bar.finish_and_clear();
    if json { stdio::print_json(&object(&input, &points)) } else { stdio::print(&table(&topology, &input, &points)) }
}

/// Parses RANGE: the number to vary, the count of values, and the values. The error names the expected form.
fn read(topology: &Topology, range: &str) -> Result<(Input, usize, Vec<f64>), String> {
    let form = || format!("'{range}': expected KEY=FROM..TO/N, as in flow.1.rate=0..100/21");
    let (name, rest) = range.rsplit_once('=').ok_or_else(form)?;
    let (ends, count) = rest.rsplit_once('/').ok_or_else(form)?;
    let (low, high) = ends.split_once("..").ok_or_else(form)?;
    let all = inputs(topology);
    let unknown = || {
        let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).take(100).collect();
        format!("'{name}' is not a key of this network; its keys are {}", names.join(", "))
    };
    let input = all.iter().find(|i| i.name == name).cloned().ok_or_else(unknown)?;
    let count = count.parse::<usize>().ok().filter(|n| (1..=POINTS_MAX).contains(n));
    let count = count.ok_or_else(|| format!("'{range}': expected 1 to {POINTS_MAX} values"))?;
    let (low, high) = (number(input.unit(), low)?, number(input.unit(), high)?);
    let mut values = spaced(low, high, count);
    if input.is_whole() {
        values.iter_mut().for_each(|v| *v = v.round());
        values.dedup();
    }
    Ok((input, count, values))
}

/// A number as files have it.
fn number(unit: Unit, text: &str) -> Result<f64, String> {
    match unit {
        Unit::Number | Unit::Count => {
            let value = text.trim().parse().ok().filter(|v: &f64| v.is_finite());
            value.ok_or_else(|| format!("'{text}' is not a number"))
        }
        Unit::Bytes => units::bytes(text).map(|b| b as f64),
        Unit::Seconds => units::duration(text).map(|d| d.as_secs_f64()),
        Unit::BitsPerSecond => text.parse::<Rate>().map(|r| r.bits() as f64),
    }
}

/// One object: the input, its values in the units of reports, and each value's report.
fn object(input: &Input, points: &[Point]) -> serde_json::Value {
    let unit = match input.unit() {
        Unit::Number | Unit::Count => "1",
        Unit::Bytes => "bytes",
        Unit::Seconds => "s",
        Unit::BitsPerSecond => "bit/s",
    };
    let point = |p: &Point| match &p.report {
        Ok(report) => json!({ "value": p.value, "report": report }),
        Err(why) => json!({ "value": p.value, "error": why }),
    };
    json!({ "input": input.name, "unit": unit, "points": points.iter().map(point).collect::<Vec<_>>() })
}

fn table(topology: &Topology, input: &Input, points: &[Point]) -> String {
    let outputs = outputs(topology);
    let title = |o: &Output| format!("{} {}", o.name, if o.is_copy() { "s" } else { "ms" });
    let head = [input.name.clone()].into_iter().chain(outputs.iter().map(title)).collect();
    let mut doubts = Doubts::default();
    let mut row = |p: &Point| -> Vec<String> {
        let cell = |o: &Output| match &p.report {
            Ok(report) => {
                let value = o.of(report).map_or("no end".into(), |v| digits(if o.is_copy() { v } else { v * 1e3 }));
                format!("{} {value}", doubts.marks(o.outside(report))).trim_start().to_owned()
            }
            Err(_) => "-".into(),
        };
        [value(input.unit(), p.value)].into_iter().chain(outputs.iter().map(cell)).collect()
    };
    let rows = points.iter().map(&mut row).collect();
    let mut text = fitted(Table { left: 1, head, rows }, width());
    text += &reasons(doubts.reasons());
    if let Some(why) = points.iter().find_map(|p| p.report.as_ref().err()) {
        text += &format!("\n  -: {why}\n");
    }
    text
}

fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Number => digits(value),
        Unit::Count | Unit::Bytes => format!("{value}"),
        Unit::Seconds => format!("{}ms", digits(value * 1e3)),
        Unit::BitsPerSecond => format!("{}Mbit", digits(value / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::model::example;

    #[test]
    fn figures_outside_the_models_range_are_marked() {
        let busy = example::OFFICE.replace("rate = 2\n", "rate = 400\n");
        let (topology, _) = network_file::parse(&busy).unwrap();
        let (input, _, values) = read(&topology, "flow.3.rate=300..400/2").unwrap();
        let points = sweep(&topology, &input, &values, std::num::NonZeroUsize::MIN, || ());
        let doubted = points
            .iter()
            .flat_map(|p| p.report.as_ref().unwrap().flows.get(2))
            .any(|flow| !flow.delay_s.outside().is_empty());
        let text = table(&topology, &input, &points);
        assert!(doubted && text.contains("[1] ") && text.contains("\n  [1] "), "{text}");
    }

    #[test]
    fn ranges_are_in_the_units_of_the_file() {
        let (topology, _) = network_file::parse(example::OFFICE).unwrap();
        for (range, values) in [
            ("flow.1.rate=0..10/3", &[0.0, 5.0, 10.0][..]),
            ("copy.1.window=1..3/9", &[1.0, 2.0, 3.0]),
            ("copy.1.disk=1ms..3ms/2", &[1e-3, 3e-3]),
            ("medium.floor.rate=10Mbit..100Mbit/2", &[1e7, 1e8]),
            ("gateway.access point.cost=0..1ms/2", &[0.0, 1e-3]),
            ("copy.1.file=1M..1M/1", &[1048576.0]),
        ] {
            assert_eq!(read(&topology, range).unwrap().2, values, "{range}");
        }
        for (range, words) in [
            ("flow.1.rate", "KEY=FROM..TO/N"),
            ("flow.9.rate=0..1/2", "flow.1.rate"),
            ("flow.1.rate=0..1/0", "1 to 10000"),
            ("flow.1.rate=0..x/2", "'x' is not a number"),
            ("copy.1.disk=1..2m3/2", "length of time"),
        ] {
            let why = read(&topology, range).unwrap_err();
            assert!(why.contains(words), "{range}: {why}");
        }
    }
}
