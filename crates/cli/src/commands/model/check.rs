//! `remora model --check`: the answers to random networks, held against longer simulations.

use std::time::Duration;

use remora_lab::Table;
use remora_lab::model::{Judged, check};
use remora_model::{NEAR, Origin};
use remora_sim::network::check::{Case, JudgedFigure, PRECISE, ROUGH, Verdict};
use serde::Serialize;
use serde_json::json;

use crate::commands::model::environment::{threads, width};
use crate::commands::model::network_writer;
use crate::commands::model::simulate::bar;
use crate::commands::model::tables::fitted;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Of the figures whose reference is precise, the share that must be near it.
const NEAR_SHARE: f64 = 0.99;

/// Answers `count` random networks, drawn from `seed`; fails if too many answers are wrong.
pub(crate) fn run(count: u64, seed: u64, within: Duration, json: bool) -> Result {
    let bar = bar(count);
    let judged = check(seed, count, within, threads(), || bar.inc(1));
    bar.finish_and_clear();
    let kinds = kinds(&judged);
    let all = kind("all", &judged.iter().collect::<Vec<_>>());
    if json {
        let networks: Vec<_> = judged.iter().map(|j| network(j, seed)).collect();
        stdio::print_json(&json!({ "seed": seed, "all": all, "kinds": kinds, "networks": networks }))?;
    } else {
        stdio::print(&text(&kinds, &all, &judged))?;
    }
    match all.fault() {
        None => Ok(()),
        Some(fault) => Err(Error::refused("the model", fault)),
    }
}

fn network(judged: &Judged, seed: u64) -> serde_json::Value {
    let wrong = judged.figures.iter().any(|f| f.verdict != Verdict::Right);
    json!({
        "number": judged.case.number,
        "seed": seed,
        "kind": judged.case.kind(),
        "seconds": judged.seconds,
        "figures": judged.figures,
        "toml": wrong.then(|| network_writer::toml(&judged.case.topology)),
    })
}

/// The answers to networks of one kind. Shares are of 1.
#[derive(Serialize)]
struct Kind {
    kind: String,
    networks: usize,
    figures: usize,
    formula: f64,
    simulated: f64,
    saturated: f64,
    unanswered: usize,
    /// Figures whose reference is precise.
    precise: usize,
    /// Of these, the difference of answer and reference.
    median: Option<f64>,
    p99: Option<f64>,
    worst: Option<f64>,
    /// Of these, those that are off by more than 10 %.
    off: usize,
    /// Figures whose reference is not precise, and that are off by more than 20 % and outside its interval.
    far_off: usize,
    /// Of the simulated figures, the share whose difference both intervals explain: 0.95 is honest.
    covered: Option<f64>,
    /// Median time of an answer.
    median_s: f64,
}

impl Kind {
    /// Why the answers are not good enough.
    fn fault(&self) -> Option<String> {
        let near = self.precise as f64 * (1.0 - NEAR_SHARE);
        if self.unanswered > 0 {
            Some(format!("{} figures have no answer", self.unanswered))
        } else if self.off as f64 > near {
            Some(format!("{} of {} figures are off by more than {:.0} %", self.off, self.precise, NEAR * 100.0))
        } else if self.far_off > 0 {
            let (rough, precise) = (ROUGH * 100.0, PRECISE * 100.0);
            Some(format!(
                "{} figures with a reference beyond +-{precise:.0} % are off by more than {rough:.0} %",
                self.far_off
            ))
        } else {
            None
        }
    }
}

/// The kinds in the order of the draws.
fn kinds(judged: &[Judged]) -> Vec<Kind> {
    let names = Case::kinds().into_iter().map(|(submodel, copies)| {
        let of: Vec<&Judged> =
            judged.iter().filter(|j| (j.case.submodel, j.case.copies) == (submodel, copies)).collect();
        (of.first().map(|j| j.case.kind()), of)
    });
    names.filter_map(|(name, of)| Some(kind(&name?, &of))).collect()
}

fn kind(name: &str, of: &[&Judged]) -> Kind {
    let figures: Vec<&JudgedFigure> = of.iter().flat_map(|j| &j.figures).collect();
    let share = |part: usize, all: usize| part as f64 / all.max(1) as f64;
    let by = |how: Origin| figures.iter().filter(|f| f.how == how && f.verdict != Verdict::Unanswered).count();
    let verdicts = |verdict: Verdict| figures.iter().filter(|f| f.verdict == verdict).count();
    let precise: Vec<f64> = figures.iter().filter(|f| f.is_precise()).filter_map(|f| f.off.map(f64::abs)).collect();
    let simulated: Vec<&&JudgedFigure> =
        figures.iter().filter(|f| f.how == Origin::Simulated && f.half_width.is_some()).collect();
    let covered = simulated.iter().filter(|f| f.is_covered()).count();
    Kind {
        kind: name.to_owned(),
        networks: of.len(),
        figures: figures.len(),
        formula: share(by(Origin::Formula), figures.len()),
        simulated: share(by(Origin::Simulated), figures.len()),
        saturated: share(by(Origin::Saturated), figures.len()),
        unanswered: verdicts(Verdict::Unanswered),
        precise: precise.len(),
        median: quantile(&precise, 0.5),
        p99: quantile(&precise, 0.99),
        worst: quantile(&precise, 1.0),
        off: verdicts(Verdict::Off),
        far_off: verdicts(Verdict::FarOff),
        covered: (!simulated.is_empty()).then(|| share(covered, simulated.len())),
        median_s: quantile(&of.iter().map(|j| j.seconds).collect::<Vec<_>>(), 0.5).unwrap_or(0.0),
    }
}

fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1))).copied()
}

fn text(kinds: &[Kind], all: &Kind, judged: &[Judged]) -> String {
    let shown = |share: Option<f64>| share.map_or("-".into(), |s| format!("{:.1}", s * 100.0));
    let row = |k: &Kind| {
        let shares = [k.formula, k.simulated, k.saturated].map(|share| format!("{:.0}", share * 100.0));
        let [formula, simulated, saturated] = shares;
        vec![
            k.kind.clone(),
            k.networks.to_string(),
            k.figures.to_string(),
            formula,
            simulated,
            saturated,
            k.unanswered.to_string(),
            k.precise.to_string(),
            shown(k.median),
            shown(k.p99),
            shown(k.worst),
            k.off.to_string(),
            k.far_off.to_string(),
            shown(k.covered),
            format!("{:.2}", k.median_s),
        ]
    };
    let head = [
        "networks",
        "n",
        "figures",
        "formula %",
        "simul. %",
        "satur. %",
        "none",
        "precise",
        "off: med. %",
        "p99 %",
        "worst %",
        ">10 %",
        ">20 %",
        "covered %",
        "s",
    ];
    let rows = kinds.iter().chain([all]).map(row).collect();
    let head = head.map(str::to_owned).to_vec();
    let mut text = fitted(Table { left: 1, head, rows }, width().max(WIDTH));
    for network in judged.iter().filter(|j| j.figures.iter().any(|f| f.verdict != Verdict::Right)) {
        text += &wrong(network);
    }
    text
}

/// The table keeps its columns on narrow terminals, too.
const WIDTH: usize = 160;

/// A network with a wrong answer, as a file.
fn wrong(judged: &Judged) -> String {
    let mut text = format!("\n# network {}: {}\n", judged.case.number, judged.case.kind());
    for figure in judged.figures.iter().filter(|f| f.verdict != Verdict::Right) {
        let what = format!("{:?}", figure.what).to_lowercase();
        let number = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.4e}"));
        text += &format!(
            "#   {what} {}: {}: {} {} +- {}, reference{} {} +- {}\n",
            figure.name,
            figure.verdict,
            figure.how,
            number(figure.value),
            number(figure.half_width),
            if figure.reference_saturated { " saturated" } else { "" },
            number(figure.reference),
            number(figure.reference_half_width),
        );
    }
    text + &network_writer::toml(&judged.case.topology)
}
