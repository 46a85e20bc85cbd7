//! `remora model --simulate`: the formulas' figures beside those of a simulation of the same network.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remora_lab::Table;
use remora_lab::model::{digits, simulate};
use remora_sim::network::{Comparison, ComparisonLine, Options, Subject, TooMuch};
use serde_json::json;

use crate::commands::model::environment::{threads, width};
use crate::commands::model::network_file;
use crate::commands::model::tables::fitted;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// The seeds of the simulated runs: `first` and the `seeds - 1` after it.
#[derive(Clone, Copy)]
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) seeds: u64,
}

/// Prints the model's figures beside those of a simulation of the network in `path`.
pub(crate) fn run(path: &Path, seeds: Seeds, seconds: f64, json: bool) -> Result {
    let Seeds { first, seeds } = seeds;
    let (topology, network) = network_file::read(path)?;
    if first.checked_add(seeds - 1).is_none() {
        return Err(Error::Usage(format!("--seed {first}: fewer than {seeds} seeds remain")));
    }
    let bar = bar(seeds);
    let simulated =
        simulate(&network, &Options { seconds }, first..first.saturating_add(seeds), threads(), || bar.inc(1));
    bar.finish_and_clear();
    let simulated = simulated.map_err(|e| too_much(&path.display().to_string(), &e))?;
    let report = network.solve();
    let comparison = Comparison::of(&topology, &report, &simulated);
    if json {
        return stdio::print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "file": path.display().to_string(),
            "first_seed": first,
            "seeds": seeds,
            "seconds": seconds,
            "comparison": comparison,
            "simulated": simulated,
            "model": report,
        }));
    }
    stdio::print(&text(&comparison))
}

fn too_much(what: &str, why: &TooMuch) -> Error {
    Error::Usage(format!("{what}: {why}"))
}

pub(crate) fn bar(runs: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left");
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}

fn percent(share: f64) -> String {
    format!("{:+.1}", share * 100.0)
}

/// What a line says beside its figures.
fn remark(line: &ComparisonLine) -> String {
    let near = if line.near() || line.off.is_none() { "" } else { "off" };
    let outside = if line.outside.is_empty() { "" } else { "outside band" };
    [near, outside].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ")
}

fn text(comparison: &Comparison) -> String {
    let seconds = |value: Option<f64>, scale: f64| value.map_or("-".into(), |v| digits(v * scale));
    let rows = comparison.lines.iter().map(|line| {
        let what = format!("{:?}", line.what).to_lowercase();
        let (unit, scale) = if line.what == Subject::Copy { ("s", 1.0) } else { ("ms", 1e3) };
        vec![
            format!("{what} {}", line.name),
            unit.to_owned(),
            seconds(line.model_s, scale),
            seconds(line.simulated_s, scale),
            seconds(line.within_s, scale),
            line.off.map_or("-".into(), percent),
            remark(line),
            seconds(line.p95_s, scale),
        ]
    });
    let head = ["", "unit", "model", "simulated", "+-", "model %", "", "p95"].map(str::to_owned).to_vec();
    fitted(Table { left: 2, head, rows: rows.collect() }, width())
}
