//! `remora model --simulate`: the model's figures beside those of a simulation of the same network,
//! and `--check`: the same for topologies drawn at random.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remora_lab::Table;
use remora_lab::model::{digits, grid, grid_size, simulate};
use remora_sim::network::check::Verdict;
use remora_sim::network::{Comparison, ComparisonLine, NEAR, Options, Subject, TooMuch};
use serde::Serialize;
use serde_json::json;

use crate::commands::model::environment::{threads, width};
use crate::commands::model::tables::fitted;
use crate::commands::model::{network_file, network_writer};
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

/// `each` random topologies of every kind, drawn from `seed`; fails if the model is off where it says that
/// it holds.
pub(crate) fn check(each: u64, seed: u64, json: bool) -> Result {
    let bar = bar(grid_size(each));
    let verdicts = grid(seed, each, threads(), || bar.inc(1));
    bar.finish_and_clear();
    let verdicts = verdicts.map_err(|e| too_much("the grid", &e))?;
    let kinds = kinds(&verdicts);
    if json {
        let beyond = failed(&verdicts)
            .map(|v| json!({ "case": v.case, "seconds": v.seconds, "toml": network_writer::toml(&v.topology) }));
        let beyond: Vec<_> = beyond.collect();
        stdio::print_json(&json!({ "seed": seed, "kinds": kinds, "cases": verdicts, "beyond": beyond }))?
    } else {
        stdio::print(&grid_text(&kinds, &verdicts))?
    }
    match kinds.iter().map(|k| k.beyond).sum() {
        0 => Ok(()),
        n => Err(Error::refused("the model", beyond_text(n))),
    }
}

fn beyond_text(figures: usize) -> String {
    format!("{figures} figures differ by more than {:.0} % within the model's range", NEAR * 100.0)
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

/// How the model did with one kind of network. Shares are of 1; of figures without a value none is known.
#[derive(Serialize)]
struct Kind<'a> {
    kind: &'a str,
    /// Of the networks drawn, the share that the model says it holds for.
    in_band: f64,
    /// Figures that were compared.
    figures: usize,
    /// How far off the model is.
    median: Option<f64>,
    p90: Option<f64>,
    worst: Option<f64>,
    /// The widest 95 % confidence of the simulations.
    chance: Option<f64>,
    /// Figures that are off by more than [`NEAR`].
    beyond: usize,
}

/// The kinds in the order of the grid.
fn kinds(verdicts: &[Verdict]) -> Vec<Kind<'_>> {
    let mut names: Vec<&str> = Vec::new();
    for verdict in verdicts {
        if !names.contains(&verdict.kind.as_str()) {
            names.push(&verdict.kind);
        }
    }
    names.into_iter().map(|name| kind(name, verdicts)).collect()
}

fn kind<'a>(name: &'a str, verdicts: &[Verdict]) -> Kind<'a> {
    let of: Vec<&Verdict> = verdicts.iter().filter(|v| v.kind == name).collect();
    let lines = || of.iter().flat_map(|v| &v.comparison.lines);
    let drawn: u64 = of.iter().map(|v| v.draws).sum();
    let mut offs: Vec<f64> = lines().filter_map(|l| l.off.map(f64::abs)).collect();
    offs.sort_by(f64::total_cmp);
    let at = |share: f64| offs.get(((offs.len() as f64 * share) as usize).min(offs.len().saturating_sub(1))).copied();
    let chances = lines().filter_map(|l| Some(l.within_s? / l.simulated_s?));
    Kind {
        kind: name,
        in_band: of.len() as f64 / drawn.max(1) as f64,
        figures: lines().count(),
        median: at(0.5),
        p90: at(0.9),
        worst: at(1.0),
        chance: chances.max_by(f64::total_cmp),
        beyond: lines().filter(|l| !l.near()).count(),
    }
}

fn grid_text(kinds: &[Kind<'_>], verdicts: &[Verdict]) -> String {
    let shown = |share: Option<f64>| share.map_or("-".into(), |s| format!("{:.1}", s * 100.0));
    let row = |k: &Kind<'_>| {
        vec![
            k.kind.to_owned(),
            format!("{:.0}", k.in_band * 100.0),
            k.figures.to_string(),
            shown(k.median),
            shown(k.p90),
            shown(k.worst),
            shown(k.chance),
            k.beyond.to_string(),
        ]
    };
    let head = ["networks", "in band %", "figures", "off: median %", "p90 %", "worst %", "chance +- %", "beyond 10 %"];
    let head = head.map(str::to_owned).to_vec();
    let mut text = fitted(Table { left: 1, head, rows: kinds.iter().map(row).collect() }, width());
    for verdict in failed(verdicts) {
        text += &format!("\n# {}\n", verdict.case);
        for line in verdict.comparison.lines.iter().filter(|l| !l.near()) {
            text += &format!("#   {}: {} %\n", line.name, line.off.map_or("-".into(), percent));
        }
        text += &format!("# remora model FILE --simulate --seconds {:.0}\n\n", verdict.seconds.max(1.0));
        text += &network_writer::toml(&verdict.topology);
    }
    text
}

/// Those that the model is off by more than [`NEAR`].
fn failed(verdicts: &[Verdict]) -> impl Iterator<Item = &Verdict> {
    verdicts.iter().filter(|v| v.beyond())
}
