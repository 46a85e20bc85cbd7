//! The HTTP requests that the page of `remora model serve` sends. Each carries the text of the network file and the
//! values that the user changed.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use remora_lab::model::{Choice, Effort, Input, Output, Study, Unit, answer as answer_within, choose, inputs, outputs};
use remora_model::{Network, Report, Topology};
use serde::{Deserialize, Serialize};

use crate::commands::model::environment::threads;
use crate::commands::model::network_file;
use crate::commands::model::serve::file_edit;

/// Sliders that a page has at most.
const SLIDERS_MAX: usize = 400;

/// What the page begins with.
#[derive(Clone, Serialize)]
pub(crate) struct Start {
    /// The file's name.
    pub(crate) name: String,
    /// The text of the network file.
    pub(crate) text: String,
}

/// A request: the network and its changed values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// The text of the network file.
    text: String,
    /// Values in place of the file's, by the names of inputs.
    #[serde(default)]
    set: BTreeMap<String, f64>,
    /// The input to draw curves along; without it the one that matters most.
    along: Option<String>,
}

/// Why there is no answer.
#[derive(Serialize)]
pub(crate) struct Refusal {
    error: String,
    /// In the file, from 1.
    line: Option<usize>,
}

impl Refusal {
    pub(crate) fn new(error: impl Into<String>) -> Refusal {
        Refusal { error: error.into(), line: None }
    }

    pub(crate) fn into_response(self, status: StatusCode) -> Response {
        (status, Json(self)).into_response()
    }
}

type Result<T> = std::result::Result<T, Refusal>;

/// The range and value of a slider.
#[derive(Serialize)]
struct Slider {
    name: String,
    /// Whose it is, for people.
    of: String,
    unit: &'static str,
    value: f64,
    low: f64,
    high: f64,
    step: f64,
}

/// A result in short.
#[derive(Serialize)]
struct Headline {
    name: String,
    seconds: Option<f64>,
}

/// The network as it is.
#[derive(Serialize)]
pub(crate) struct Solved {
    sliders: Vec<Slider>,
    /// Numbers that have no slider, since there are too many.
    left_out: usize,
    drawing: String,
    tables: String,
    headlines: Vec<Headline>,
}

/// The network with all figures.
#[derive(Serialize)]
pub(crate) struct Answered {
    drawing: String,
    tables: String,
    headlines: Vec<Headline>,
}

/// The network as it changes.
#[derive(Serialize)]
pub(crate) struct Studied {
    along: Option<String>,
    curves: String,
    sensitivity: String,
    /// Numbers that `sensitivity` does not look at.
    left_out: usize,
}

/// The file with the changes in it.
#[derive(Serialize)]
pub(crate) struct Saved {
    text: String,
}

/// A question's network, and the file's own.
struct Asked {
    file: Topology,
    topology: Topology,
    inputs: Vec<Input>,
    report: Report,
}

impl Question {
    fn network(&self) -> Result<(Topology, Topology, Vec<Input>, Network)> {
        let (file, network) =
            network_file::parse(&self.text).map_err(|(line, error)| Refusal { error, line: Some(line) })?;
        let inputs = inputs(&file);
        let mut topology = file.clone();
        for (name, value) in &self.set {
            let input = inputs.iter().find(|i| i.name == *name);
            let input = input.ok_or_else(|| Refusal::new(format!("{name}: this network has no such key")))?;
            if input.is_whole() && value.fract() != 0.0 {
                return Err(Refusal::new(format!("{name}: {value} is not an integer")));
            }
            input.set(&mut topology, *value).map_err(Refusal::new)?;
        }
        let network = if self.set.is_empty() {
            network
        } else {
            Network::new(topology.clone()).map_err(|e| Refusal::new(e.to_string()))?
        };
        Ok((file, topology, inputs, network))
    }

    fn solved(&self) -> Result<Asked> {
        let (file, topology, inputs, network) = self.network()?;
        Ok(Asked { file, topology, inputs, report: network.solve() })
    }
}

impl Asked {
    fn headlines(&self) -> Vec<Headline> {
        let headline = |o: &Output| Headline { name: o.name.clone(), seconds: o.of(&self.report) };
        outputs(&self.topology).iter().map(headline).collect()
    }

    fn study(&self) -> Study<'_> {
        Study { topology: &self.topology, report: &self.report, threads: threads() }
    }
}

/// Time for the simulation of an answer, at most.
const WITHIN: Duration = Duration::from_secs(8);

/// Drawing, tables and headlines, simulated where formulas do not hold.
pub(crate) fn answer(question: &Question) -> Result<Answered> {
    let (file, topology, inputs, network) = question.network()?;
    let report = answer_within(&network, &Effort::within(WITHIN, threads()));
    let asked = Asked { file, topology, inputs, report };
    let (drawing, tables) = (asked.study().drawing(), asked.study().tables_html());
    Ok(Answered { drawing, tables, headlines: asked.headlines() })
}

/// Sliders, drawing, tables and headlines, by formulas alone.
pub(crate) fn solve(question: &Question) -> Result<Solved> {
    let asked = question.solved()?;
    let Choice { inputs, left_out } = choose(&asked.file, asked.inputs.clone(), SLIDERS_MAX);
    let sliders = inputs.iter().filter_map(|input| slider(&asked, input)).collect();
    let (drawing, tables) = (asked.study().drawing(), asked.study().tables_html());
    Ok(Solved { sliders, left_out, drawing, tables, headlines: asked.headlines() })
}

fn slider(asked: &Asked, input: &Input) -> Option<Slider> {
    let unit = match input.unit() {
        Unit::Number => "number",
        Unit::Count => "count",
        Unit::Bytes => "bytes",
        Unit::Seconds => "seconds",
        Unit::BitsPerSecond => "bits",
    };
    // A slider's way follows from the file, so that it stays where it is when it is moved.
    let way = input.slider(input.get(&asked.file)?);
    let value = input.get(&asked.topology)?;
    let (low, high) = (way.low.min(value), way.high.max(value));
    Some(Slider { name: input.name.clone(), of: whose(&asked.file, input), unit, value, low, high, step: way.step })
}

/// What an input belongs to, for people.
fn whose(topology: &Topology, input: &Input) -> String {
    let (table, index, _) = input.place();
    let name = match table {
        "medium" => topology.media.get(index).map(|m| m.name.clone()),
        "group" => topology.groups.get(index).map(|g| g.name.clone()),
        "gateway" => topology.gateways.get(index).map(|g| g.name.clone()),
        "flow" => topology.flows.get(index).map(|f| format!("{} > {}", f.from, f.to)),
        _ => topology.copies.get(index).map(|c| format!("{} > {}", c.from, c.to)),
    };
    format!("{table} {}", name.unwrap_or_default())
}

/// Curves and sensitivities.
pub(crate) fn study(question: &Question) -> Result<Studied> {
    let asked = question.solved()?;
    let study = asked.study();
    let (outputs, all) = study.sensitivities();
    let named = |name: &String| asked.inputs.iter().find(|i| i.name == *name);
    let along = question.along.as_ref().and_then(named).or(all.found.first().map(|s| &s.input));
    let curves = match along.and_then(|input| Some((input, input.get(&asked.file)?))) {
        Some((input, value)) => study.curve_html(input, value).map_err(Refusal::new)?,
        None => String::new(),
    };
    let sensitivity = Study::sensitivity_html(&outputs, &all);
    Ok(Studied { along: along.map(|i| i.name.clone()), curves, sensitivity, left_out: all.left_out })
}

/// The file with the changes in it, its comments kept.
pub(crate) fn save(question: &Question) -> Result<Saved> {
    let (_, topology, inputs, _) = question.network()?;
    let changed: Vec<(&Input, f64)> = inputs
        .iter()
        .filter(|i| question.set.contains_key(&i.name))
        .filter_map(|input| Some((input, input.get(&topology)?)))
        .collect();
    file_edit::changed(&question.text, &changed).map(|text| Saved { text }).map_err(Refusal::new)
}
