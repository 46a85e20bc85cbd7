//! What a network does when one of its numbers changes: curves, and which number matters most.

use std::num::NonZeroUsize;

use remora_model::{Network, Reason, Report, Topology};

use super::choice::{Choice, choose};
use super::input::{Input, Unit, inputs};
use crate::report::pool;

/// Inputs that a table of sensitivities looks at, at most.
pub const SENSITIVE_MAX: usize = 200;
/// Results that a table of sensitivities or a curve has, at most.
pub const OUTPUTS_MAX: usize = 6;
/// Points of a sweep at most.
pub const POINTS_MAX: usize = 10_000;
/// How far an input is moved either way, as a share of it.
const NUDGE: f64 = 0.01;

/// A result that people ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The time of a copy.
    Copy(usize),
    /// The delay of a flow.
    Flow(usize),
}

/// A result by name, in seconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// As in `copy desks > servers`.
    pub name: String,
    place: Place,
}

/// The times of the copies and the delays of the flows that have packets, the first
/// [`OUTPUTS_MAX`].
pub fn outputs(topology: &Topology) -> Vec<Output> {
    let mut all = Vec::new();
    for (i, copy) in topology.copies.iter().enumerate() {
        all.push(Output { name: format!("copy {} > {}", copy.from, copy.to), place: Place::Copy(i) });
    }
    for (i, flow) in topology.flows.iter().enumerate().filter(|(_, f)| f.rate.get() > 0.0) {
        all.push(Output { name: format!("flow {} > {}", flow.from, flow.to), place: Place::Flow(i) });
    }
    all.truncate(OUTPUTS_MAX);
    all
}

impl Output {
    /// Whether it is a copy's time; a flow's delay otherwise.
    pub fn is_copy(&self) -> bool {
        matches!(self.place, Place::Copy(_))
    }

    /// Which flow it is the delay of, from 0.
    pub(super) fn flow(&self) -> Option<usize> {
        match self.place {
            Place::Copy(_) => None,
            Place::Flow(i) => Some(i),
        }
    }

    /// Its value in a report, in seconds; `None` where it has none.
    pub fn of(&self, report: &Report) -> Option<f64> {
        match self.place {
            Place::Copy(i) => report.copies.get(i)?.outcome.value().map(|o| o.seconds),
            Place::Flow(i) => report.flows.get(i)?.delay_s.value().copied(),
        }
    }

    /// Why to doubt that value.
    pub fn outside<'a>(&self, report: &'a Report) -> &'a [Reason] {
        match self.place {
            Place::Copy(i) => report.copies.get(i).map_or(&[], |c| c.outcome.outside()),
            Place::Flow(i) => report.flows.get(i).map_or(&[], |f| f.delay_s.outside()),
        }
    }
}

/// The report of `topology` with `input` at `value`; an error says why it makes no sense.
pub fn at(topology: &Topology, input: &Input, value: f64) -> Result<Report, String> {
    let mut changed = topology.clone();
    input.set(&mut changed, value)?;
    Ok(Network::new(changed).map_err(|e| format!("{}: {}", input.name, e.why))?.solve())
}

/// A point of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The input's value.
    pub value: f64,
    /// What comes of it, or why it makes no sense.
    pub report: Result<Report, String>,
}

/// `topology` with `input` at each of `values` (the first [`POINTS_MAX`]), on so many threads;
/// `done` is called after each.
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

/// So many values from `low` to `high`, evenly spaced, both included.
pub fn spaced(low: f64, high: f64, count: usize) -> Vec<f64> {
    let last = count.saturating_sub(1).max(1) as f64;
    (0..count).map(|i| low + (high - low) * i as f64 / last).collect()
}

/// How much an input matters.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivity {
    /// Which input.
    pub input: Input,
    /// Its value.
    pub value: f64,
    /// For each output its elasticity: by how many per cent it changes for one per cent of the
    /// input. `None` where the output has no value.
    pub elasticities: Vec<Option<f64>>,
}

impl Sensitivity {
    /// The largest elasticity without its sign: what the table is ordered by.
    pub fn most(&self) -> f64 {
        self.elasticities.iter().flatten().fold(0.0, |most, e| e.abs().max(most))
    }
}

/// How much each of a network's inputs matters.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivities {
    /// The inputs that matter most first. Those that are 0 have no elasticity and are not there.
    pub found: Vec<Sensitivity>,
    /// Inputs that were not looked at, since there are more than [`SENSITIVE_MAX`].
    pub left_out: usize,
}

/// Elasticities of all `outputs`.
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
        // Whole numbers move by one or more.
        Unit::Count | Unit::Bytes | Unit::BitsPerSecond => {
            ((value * (1.0 - NUDGE)).floor().max(1.0), (value * (1.0 + NUDGE)).ceil())
        }
        Unit::Number | Unit::Seconds => (value * (1.0 - NUDGE), value * (1.0 + NUDGE)),
    };
    // At the end of its range an input moves one way only.
    let end =
        |to: f64| at(topology, input, to).map(|r| (to, r)).or_else(|_| at(topology, input, value).map(|r| (value, r)));
    let elasticities = match (end(below), end(above)) {
        (Ok((x0, a)), Ok((x1, b))) if x1 > x0 => {
            outputs.iter().map(|o| elasticity((x0, o.of(&a)), (x1, o.of(&b)))).collect()
        }
        _ => vec![None; outputs.len()],
    };
    Sensitivity { input: input.clone(), value, elasticities }
}

/// The slope between two points on logarithmic paper.
fn elasticity((x0, y0): (f64, Option<f64>), (x1, y1): (f64, Option<f64>)) -> Option<f64> {
    let (y0, y1) = (y0.filter(|y| *y > 0.0)?, y1.filter(|y| *y > 0.0)?);
    Some((y1 / y0).ln() / (x1 / x0).ln())
}

#[cfg(test)]
mod tests {
    use super::super::examples;
    use super::*;

    const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    #[test]
    fn a_sweep_keeps_its_order_and_says_where_it_makes_no_sense() {
        let topology = examples::office();
        let window = inputs(&topology).into_iter().find(|i| i.name == "copy.1.window").unwrap();
        let points = sweep(&topology, &window, &[1.0, 4.0, 1e9], TWO, || ());
        let seconds = |p: &Point| outputs(&topology)[0].of(p.report.as_ref().unwrap()).unwrap();
        assert!(seconds(&points[0]) > seconds(&points[1]));
        assert!(points[2].report.as_ref().unwrap_err().contains("copy.1.window"));
    }

    #[test]
    fn values_are_spaced_from_end_to_end() {
        assert_eq!(spaced(0.0, 10.0, 3), [0.0, 5.0, 10.0]);
        assert_eq!(spaced(2.0, 10.0, 1), [2.0]);
        assert_eq!(spaced(2.0, 10.0, 0), [0.0; 0]);
    }

    #[test]
    fn the_file_matters_as_much_as_it_is_long_and_order_is_by_weight() {
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
