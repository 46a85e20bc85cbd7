//! `remora model --simulate`: the model's figures beside those of a simulation of the same network,
//! and `--check`: the same for topologies drawn at random.

use std::collections::BTreeMap;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remora_lab::Table;
use remora_lab::model::digits;
use remora_lab::simulate::{grid, grid_size, simulate};
use remora_sim::network::check::Verdict;
use remora_sim::network::{Comparison, Line, NEAR, Options, TooMuch, What};
use serde_json::json;

use super::tables::fitted;
use super::{file, threads, width};
use crate::exit::{Error, Result};
use crate::out;

/// The grid of `--check` is drawn from this seed.
const GRID_SEED: u64 = 7;

pub(super) fn run(path: &Path, seeds: u64, seconds: f64, json: bool) -> Result {
    let (topology, network) = file::read(path)?;
    let bar = bar(seeds);
    let simulated = simulate(&network, &Options { seconds }, seeds, threads(), || bar.inc(1));
    bar.finish_and_clear();
    let simulated = simulated.map_err(|e| too_much(&path.display().to_string(), &e))?;
    let report = network.solve();
    let comparison = Comparison::of(&topology, &report, &simulated);
    if json {
        return out::json(&json!({ "comparison": comparison, "simulated": simulated, "model": report }));
    }
    out::text(&text(&comparison))
}

/// `each` random topologies of every kind; fails if the model is off where it says that it holds.
pub(super) fn check(each: u64, json: bool) -> Result {
    let bar = bar(grid_size(each));
    let verdicts = grid(GRID_SEED, each, threads(), || bar.inc(1));
    bar.finish_and_clear();
    let verdicts = verdicts.map_err(|e| too_much("the grid", &e))?;
    let wrong = verdicts.iter().flat_map(|v| &v.comparison.lines).filter(|l| !l.near()).count();
    if json {
        out::json(&verdicts)?
    } else {
        out::text(&grid_text(&verdicts))?
    }
    match wrong {
        0 => Ok(()),
        n => Err(Error::refused("the model", format!("{n} figures are off by more than {:.0} %", NEAR * 100.0))),
    }
}

fn too_much(what: &str, why: &TooMuch) -> Error {
    Error::Usage(format!("{what}: {why}"))
}

fn bar(runs: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left");
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}

fn percent(share: f64) -> String {
    format!("{:+.1}", share * 100.0)
}

/// What a line says beside its figures.
fn remark(line: &Line) -> String {
    let near = if line.near() || line.off.is_none() { "" } else { "off" };
    let outside = if line.outside.is_empty() { "" } else { "outside band" };
    [near, outside].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ")
}

fn text(comparison: &Comparison) -> String {
    let seconds = |value: Option<f64>, scale: f64| value.map_or("-".into(), |v| digits(v * scale));
    let rows = comparison.lines.iter().map(|line| {
        let what = format!("{:?}", line.what).to_lowercase();
        let (unit, scale) = if line.what == What::Copy { ("s", 1.0) } else { ("ms", 1e3) };
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

fn grid_text(verdicts: &[Verdict]) -> String {
    let mut kinds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for verdict in verdicts {
        let kind = verdict.case.rsplit_once(' ').map_or(verdict.case.as_str(), |(kind, _)| kind);
        let offs = verdict.comparison.lines.iter().map(|l| l.off.map_or(f64::INFINITY, f64::abs));
        kinds.entry(kind).or_default().extend(offs);
    }
    let rows = kinds.into_iter().map(|(kind, mut offs)| {
        offs.sort_by(f64::total_cmp);
        let at = |share: f64| offs.get(((offs.len() as f64 * share) as usize).min(offs.len().saturating_sub(1)));
        let shown = |off: Option<&f64>| off.map_or("-".into(), |o| format!("{:.1}", o * 100.0));
        let beyond = offs.iter().filter(|o| **o > NEAR).count();
        vec![
            kind.to_owned(),
            offs.len().to_string(),
            shown(at(0.5)),
            shown(at(0.9)),
            shown(offs.last()),
            beyond.to_string(),
        ]
    });
    let head = ["submodel", "figures", "median %", "p90 %", "worst %", "beyond 10 %"].map(str::to_owned).to_vec();
    let mut text = fitted(Table { left: 1, head, rows: rows.collect() }, width());
    for verdict in verdicts {
        for line in verdict.comparison.lines.iter().filter(|l| !l.near()) {
            text += &format!("  {}, {}: {} %\n", verdict.case, line.name, line.off.map_or("-".into(), percent));
        }
    }
    text
}
