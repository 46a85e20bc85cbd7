//! Many solutions of a network by formulas: sweeps, sensitivities, and simulations beside the model.
//!
//! If a network has too many inputs, those that the outputs depend on come first, and media last: a network has
//! many alike.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;

use remora_model::{Gateway, Network, Reason, Report, Topology};
use remora_sim::network::{Options, Simulated, TooMuch, run};

use super::input::{Input, Unit, inputs};
use crate::report::pool;

#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Chosen inputs, in the order of the file's tables.
    pub inputs: Vec<Input>,
    pub left_out: usize,
}

/// Chooses at most `max` of `all` inputs.
pub fn choose(topology: &Topology, all: Vec<Input>, max: usize) -> Choice {
    let left_out = all.len().saturating_sub(max);
    if left_out == 0 {
        return Choice { inputs: all, left_out };
    }
    let near = Near::of(topology);
    let mut ranked: Vec<(usize, Input)> = all.into_iter().enumerate().collect();
    ranked.sort_by_cached_key(|(at, input)| (near.rank(topology, input), *at));
    ranked.truncate(max);
    ranked.sort_by_key(|(at, _)| *at);
    Choice { inputs: ranked.into_iter().map(|(_, input)| input).collect(), left_out }
}

/// The elements that the outputs depend on directly.
struct Near<'a> {
    flows: BTreeSet<usize>,
    groups: BTreeSet<&'a str>,
    media: BTreeSet<&'a str>,
}

impl<'a> Near<'a> {
    fn of(topology: &'a Topology) -> Near<'a> {
        let flows: BTreeSet<usize> = outputs(topology).iter().filter_map(Output::flow).collect();
        let ends = flows.iter().filter_map(|i| topology.flows.get(*i)).map(|f| [&f.from, &f.to]);
        let ends = ends.chain(topology.copies.iter().map(|c| [&c.from, &c.to]));
        let groups: BTreeSet<&str> = ends.flatten().map(String::as_str).collect();
        let of_these = topology.groups.iter().filter(|g| groups.contains(g.name.as_str()));
        let media = of_these.map(|g| g.medium.as_str()).collect();
        Near { flows, groups, media }
    }

    fn rank(&self, topology: &Topology, input: &Input) -> u8 {
        let (table, i, _) = input.place();
        match table {
            "copy" => 0,
            "flow" if self.flows.contains(&i) => 1,
            "gateway" if topology.gateways.get(i).is_some_and(|g| self.joined(g)) => 2,
            "group" if topology.groups.get(i).is_some_and(|g| self.groups.contains(g.name.as_str())) => 3,
            "medium" if topology.media.get(i).is_some_and(|m| self.media.contains(m.name.as_str())) => 4,
            "flow" => 5,
            "gateway" => 6,
            "group" => 7,
            _ => 8,
        }
    }

    fn joined(&self, gateway: &Gateway) -> bool {
        gateway.joins.iter().filter(|j| self.media.contains(j.as_str())).count() > 1
    }
}

/// Most inputs of a table of sensitivities.
pub const SENSITIVE_MAX: usize = 200;
/// Most outputs of a table of sensitivities or a curve.
pub const OUTPUTS_MAX: usize = 6;
pub const POINTS_MAX: usize = 10_000;
/// Relative change of an input, up and down.
const NUDGE: f64 = 0.01;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OutputKind {
    Copy(usize),
    Flow(usize),
}

/// A result of the model, in seconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// As in `copy desks > servers`.
    pub name: String,
    place: OutputKind,
}

/// Copy times, and delays of flows with packets; the first [`OUTPUTS_MAX`].
pub fn outputs(topology: &Topology) -> Vec<Output> {
    let mut all = Vec::new();
    for (i, copy) in topology.copies.iter().enumerate() {
        all.push(Output { name: format!("copy {} > {}", copy.from, copy.to), place: OutputKind::Copy(i) });
    }
    for (i, flow) in topology.flows.iter().enumerate().filter(|(_, f)| f.rate.get() > 0.0) {
        all.push(Output { name: format!("flow {} > {}", flow.from, flow.to), place: OutputKind::Flow(i) });
    }
    all.truncate(OUTPUTS_MAX);
    all
}

impl Output {
    /// Whether it is a copy's time; otherwise it is a flow's delay.
    pub fn is_copy(&self) -> bool {
        matches!(self.place, OutputKind::Copy(_))
    }

    /// Index of the flow.
    pub(super) fn flow(&self) -> Option<usize> {
        match self.place {
            OutputKind::Copy(_) => None,
            OutputKind::Flow(i) => Some(i),
        }
    }

    /// Its value in a report, in seconds; `None` where it has none.
    pub fn of(&self, report: &Report) -> Option<f64> {
        match self.place {
            OutputKind::Copy(i) => report.copies.get(i)?.outcome.value().map(|o| o.seconds),
            OutputKind::Flow(i) => report.flows.get(i)?.delay_s.value().copied(),
        }
    }

    pub fn outside<'a>(&self, report: &'a Report) -> &'a [Reason] {
        match self.place {
            OutputKind::Copy(i) => report.copies.get(i).map_or(&[], |c| c.outcome.outside()),
            OutputKind::Flow(i) => report.flows.get(i).map_or(&[], |f| f.delay_s.outside()),
        }
    }
}

/// Solves `topology` with `input` at `value`. An error says why the value is invalid.
pub fn at(topology: &Topology, input: &Input, value: f64) -> Result<Report, String> {
    let mut changed = topology.clone();
    input.set(&mut changed, value)?;
    Ok(Network::new(changed).map_err(|e| format!("{}: {}", input.name, e.why))?.solve())
}

#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    pub value: f64,
    /// The solution, or why the value is invalid.
    pub report: Result<Report, String>,
}

/// Solves `topology` by formulas alone, with `input` at each of `values` (the first [`POINTS_MAX`]). `done` is called after each.
pub fn sweep(
    topology: &Topology,
    input: &Input,
    values: &[f64],
    threads: NonZeroUsize,
    done: impl Fn() + Sync,
) -> Vec<Point> {
    let count = values.len().min(POINTS_MAX);
    let one = |i: usize| Point { value: values[i], report: at(topology, input, values[i]) };
    pool::map(count, threads, one, done)
}

/// `count` evenly spaced values from `low` to `high`, both included.
pub fn spaced(low: f64, high: f64, count: usize) -> Vec<f64> {
    let last = count.saturating_sub(1).max(1) as f64;
    (0..count).map(|i| low + (high - low) * i as f64 / last).collect()
}

#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivity {
    pub input: Input,
    pub value: f64,
    /// Elasticity of each output: its change in per cent for one per cent of the input. `None` if the output has no
    /// value.
    pub elasticities: Vec<Option<f64>>,
    /// Whether the formula of each output is outside its band.
    pub doubted: Vec<bool>,
}

impl Sensitivity {
    /// The largest absolute elasticity, by which the table is ordered.
    pub fn most(&self) -> f64 {
        self.elasticities.iter().flatten().fold(0.0, |most, e| e.abs().max(most))
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivities {
    /// Most important inputs first. Inputs that are 0 have no elasticity and are left out.
    pub found: Vec<Sensitivity>,
    /// Inputs beyond [`SENSITIVE_MAX`].
    pub left_out: usize,
}

/// Sensitivities by formulas alone.
pub fn sensitivities(topology: &Topology, outputs: &[Output], threads: NonZeroUsize) -> Sensitivities {
    let worth = |input: &Input| input.get(topology).filter(|v| *v > 0.0);
    let all = inputs(topology).into_iter().filter(|input| worth(input).is_some()).collect();
    let Choice { inputs: chosen, left_out } = choose(topology, all, SENSITIVE_MAX);
    let one = |i: usize| worth(&chosen[i]).map(|value| sensitivity(topology, outputs, &chosen[i], value));
    let mut found: Vec<Sensitivity> = pool::map(chosen.len(), threads, one, || ()).into_iter().flatten().collect();
    found.sort_by(|a, b| b.most().total_cmp(&a.most()));
    Sensitivities { found, left_out }
}

fn sensitivity(topology: &Topology, outputs: &[Output], input: &Input, value: f64) -> Sensitivity {
    let (below, above) = match input.unit() {
        // Integers move by at least one.
        Unit::Count | Unit::Bytes | Unit::BitsPerSecond => {
            ((value * (1.0 - NUDGE)).floor().max(1.0), (value * (1.0 + NUDGE)).ceil())
        }
        Unit::Number | Unit::Seconds => (value * (1.0 - NUDGE), value * (1.0 + NUDGE)),
    };
    // At an end of its range an input moves one way only.
    let end =
        |to: f64| at(topology, input, to).map(|r| (to, r)).or_else(|_| at(topology, input, value).map(|r| (value, r)));
    let elasticities = match (end(below), end(above)) {
        (Ok((x0, a)), Ok((x1, b))) if x1 > x0 => {
            outputs.iter().map(|o| elasticity(x1 / x0, o.of(&a), o.of(&b))).collect()
        }
        _ => vec![None; outputs.len()],
    };
    let report = at(topology, input, value);
    let doubted = outputs.iter().map(|o| report.as_ref().is_ok_and(|r| !o.outside(r).is_empty())).collect();
    Sensitivity { input: input.clone(), value, elasticities, doubted }
}

/// The slope between two points on logarithmic axes.
fn elasticity(factor: f64, y0: Option<f64>, y1: Option<f64>) -> Option<f64> {
    let (y0, y1) = (y0.filter(|y| *y > 0.0)?, y1.filter(|y| *y > 0.0)?);
    Some((y1 / y0).ln() / factor.ln())
}

/// Simulates the network with each seed. `done` is called after each run.
pub fn simulate(
    network: &Network,
    options: &Options,
    seeds: Range<u64>,
    threads: NonZeroUsize,
    done: impl Fn() + Sync,
) -> Result<Simulated, TooMuch> {
    let count = usize::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(usize::MAX);
    let runs = pool::map(count, threads, |n| run(network, options, seeds.start + n as u64), done);
    Ok(Simulated::of(&runs.into_iter().collect::<Result<Vec<_>, _>>()?))
}

#[cfg(test)]
mod tests {
    use remora_model::{Group, Medium};

    use super::*;
    use crate::model::examples;
    use crate::model::input::inputs;

    /// The office with `more` groups in front, each on its own medium.
    fn large(more: usize) -> Topology {
        let mut topology = examples::office();
        for i in 0..more {
            let medium = Medium { name: format!("floor {i}"), ..topology.media[topology.media.len() - 4].clone() };
            let group = Group { name: format!("desks {i}"), medium: medium.name.clone(), ..topology.groups[0].clone() };
            topology.media.insert(0, medium);
            topology.groups.push(group);
        }
        topology
    }

    #[test]
    fn choice_keeps_inputs_that_results_depend_on() {
        let topology = large(200);
        let all = inputs(&topology);
        let count = all.len();
        let Choice { inputs: got, left_out } = choose(&topology, all.clone(), 100);
        assert_eq!((got.len(), left_out), (100, count - 100));
        let office = inputs(&examples::office());
        for input in &office {
            assert!(got.iter().any(|i| i.name == input.name), "{} is missing", input.name);
        }
        let order: Vec<usize> = got.iter().filter_map(|i| all.iter().position(|a| a == i)).collect();
        assert!(order.is_sorted(), "the order is the file's");
        assert!(got.iter().all(|i| !i.name.starts_with("medium.floor ")), "groups come before media");
    }

    #[test]
    fn choice_keeps_all_inputs_if_they_fit() {
        let topology = examples::office();
        let all = inputs(&topology);
        let room = all.len();
        assert_eq!(choose(&topology, all.clone(), room), Choice { inputs: all, left_out: 0 });
    }

    const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    #[test]
    fn sweep_keeps_order_and_reports_invalid_values() {
        let topology = examples::office();
        let window = inputs(&topology).into_iter().find(|i| i.name == "copy.1.window").unwrap();
        let points = sweep(&topology, &window, &[1.0, 4.0, 1e9], TWO, || ());
        let seconds = |p: &Point| outputs(&topology)[0].of(p.report.as_ref().unwrap()).unwrap();
        assert!(seconds(&points[0]) > seconds(&points[1]));
        assert!(points[2].report.as_ref().unwrap_err().contains("copy.1.window"));
    }

    #[test]
    fn spaced_values_include_both_ends() {
        assert_eq!(spaced(0.0, 10.0, 3), [0.0, 5.0, 10.0]);
        assert_eq!(spaced(2.0, 10.0, 1), [2.0]);
        assert_eq!(spaced(2.0, 10.0, 0), [0.0; 0]);
    }

    #[test]
    fn sensitivities_are_ordered_and_exact_for_the_file() {
        let topology = examples::copy89(0.0);
        let outputs = outputs(&topology);
        let Sensitivities { found, left_out } = sensitivities(&topology, &outputs, TWO);
        assert_eq!(left_out, 0);
        let of = |name: &str| found.iter().find(|s| s.input.name == name).unwrap().elasticities[0].unwrap();
        assert!((of("copy.1.file") - 1.0).abs() < 1e-6, "{found:?}");
        // Nearly all of a block's time is the sender's software.
        assert!((0.9..1.0).contains(&of("copy.1.software")), "{}", of("copy.1.software"));
        assert!((-0.1..0.0).contains(&of("medium.Local_Ethernet.rate")));
        assert!(found.windows(2).all(|w| w[0].most() >= w[1].most()));
        assert!(found.iter().all(|s| s.input.name != "flow.1.rate"), "what is 0 has no elasticity");
    }
}
