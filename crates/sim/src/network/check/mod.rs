//! Validation of the answers of `remora model`: topologies drawn at random from all that a user
//! could enter, each answered by formulas or simulation, and held against a longer simulation of
//! the whole network with other random numbers.

mod draw;

use std::fmt;

use remora_base::Rng;
use remora_model::{Estimate, NEAR, Network, Origin, Report, Topology};
use serde::Serialize;

use super::Subject;
use super::answer::{Figure, Figures};

pub use draw::Submodel;

/// The reference is precise if its half-width is at most this share of it.
pub const PRECISE: f64 = 0.03;
/// Where the reference is not precise, an answer is right within this share of it.
pub const ROUGH: f64 = 0.2;
/// Draws until a topology is valid.
const DRAWS: u64 = 100;

/// A random topology.
#[derive(Clone, Debug)]
pub struct Case {
    pub submodel: Submodel,
    /// Whether it has a file copy.
    pub copies: bool,
    pub number: u64,
    pub topology: Topology,
}

impl Case {
    /// The kinds of cases: each submodel with flows alone, and with copies.
    pub fn kinds() -> Vec<(Submodel, bool)> {
        Submodel::ALL.iter().flat_map(|submodel| [(*submodel, false), (*submodel, true)]).collect()
    }

    /// Case `number` under `seed`. The kinds take turns.
    pub fn number(seed: u64, number: u64) -> Case {
        let kinds = Case::kinds();
        let (submodel, copies) = kinds[(number % kinds.len() as u64) as usize];
        Case::draw(submodel, copies, seed, number)
    }

    /// Case `number` of one kind under `seed`: the first draw that is a valid network.
    pub fn draw(submodel: Submodel, copies: bool, seed: u64, number: u64) -> Case {
        let mut rng = Rng::stream(seed, &format!("{submodel:?} {copies} {number}"));
        let mut topology = draw::topology(submodel, copies, &mut rng);
        for _ in 0..DRAWS {
            if Network::new(topology.clone()).is_ok_and(|network| network.stations() > 0) {
                break;
            }
            topology = draw::topology(submodel, copies, &mut rng);
        }
        Case { submodel, copies, number, topology }
    }

    /// Its kind: submodel, flows or copy.
    pub fn kind(&self) -> String {
        format!("{}, {}", self.submodel, if self.copies { "copies" } else { "delay" })
    }
}

/// The verdict on one figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Right,
    /// Off by more than 10 %, where the reference is precise.
    Off,
    /// Off by more than 20 % and outside the reference's interval, where that is not precise.
    FarOff,
    /// There is no answer.
    Unanswered,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Right => "right",
            Verdict::Off => "off",
            Verdict::FarOff => "far off",
            Verdict::Unanswered => "unanswered",
        })
    }
}

/// A figure and its reference: seconds, or packets a second where a queue grows without limit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct JudgedFigure {
    pub what: Subject,
    pub name: String,
    pub how: Origin,
    pub value: Option<f64>,
    pub half_width: Option<f64>,
    pub reference: Option<f64>,
    pub reference_half_width: Option<f64>,
    pub reference_saturated: bool,
    /// Answer over reference, minus 1.
    pub off: Option<f64>,
    pub verdict: Verdict,
}

impl JudgedFigure {
    /// Whether the reference's half-width is at most [`PRECISE`].
    pub fn is_precise(&self) -> bool {
        let relative = self.reference_half_width.zip(self.reference).map(|(half, mean)| half / mean);
        relative.is_some_and(|relative| relative <= PRECISE)
    }

    /// Whether the intervals of answer and reference explain the difference.
    pub fn is_covered(&self) -> bool {
        let halves = self.half_width.zip(self.reference_half_width);
        let difference = self.value.zip(self.reference).map(|(value, reference)| (value - reference).abs());
        halves.zip(difference).is_some_and(|((a, b), difference)| difference <= a.hypot(b))
    }
}

/// The answer for one figure.
struct Answer {
    what: Subject,
    name: String,
    how: Origin,
    is_answered: bool,
    value: Option<f64>,
    half_width: Option<f64>,
    /// Packets a second.
    carried: Option<f64>,
}

impl Answer {
    fn of(what: Subject, name: String, estimate: &Estimate<f64>, carried: Option<f64>) -> Answer {
        Answer {
            what,
            name,
            how: estimate.how(),
            is_answered: estimate.is_answered(),
            value: estimate.value().copied(),
            half_width: estimate.half_width_s(),
            carried,
        }
    }

    /// The answer beside its reference; `scale` turns the reference's seconds into the answer's.
    fn judge(self, reference: &Figure, scale: f64) -> JudgedFigure {
        let saturated = self.how == Origin::Saturated;
        let reference_saturated = matches!(reference, Figure::Saturated(_));
        let (mean, half_width) = match reference {
            Figure::Steady(interval) => (Some(interval.mean * scale), interval.half_width.map(|half| half * scale)),
            Figure::Saturated(carried) => (Some(carried.mean), carried.half_width),
            Figure::Unknown => (None, None),
        };
        let value = if saturated { self.carried } else { self.value };
        let mut judged = JudgedFigure {
            what: self.what,
            name: self.name,
            how: self.how,
            value,
            half_width: self.half_width,
            reference: mean,
            reference_half_width: half_width,
            reference_saturated,
            off: value.zip(mean).map(|(value, mean)| value / mean - 1.0),
            verdict: Verdict::Right,
        };
        let off = judged.off.map_or(f64::INFINITY, f64::abs);
        let inside = value.zip(mean).zip(half_width).is_some_and(|((value, mean), half)| (value - mean).abs() <= half);
        judged.verdict = match () {
            () if !self.is_answered => Verdict::Unanswered,
            () if saturated != reference_saturated => Verdict::Off,
            // A copy that has no end carries nothing in the end.
            () if saturated && self.what == Subject::Copy => Verdict::Right,
            () if judged.is_precise() && off > NEAR => Verdict::Off,
            () if !judged.is_precise() && off > ROUGH && !inside => Verdict::FarOff,
            () => Verdict::Right,
        };
        judged
    }
}

/// Holds every figure of an answered report against the reference's.
pub fn judge(network: &Network, answered: &Report, reference: &Figures<'_>) -> Vec<JudgedFigure> {
    let mut judged = Vec::new();
    for (i, medium) in answered.media.iter().enumerate() {
        if let Some(delay) = medium.delay_s.as_ref().filter(|_| medium.offered_packets_per_s > 0.0) {
            let answer = Answer::of(Subject::Medium, medium.name.clone(), delay, medium.carried_packets_per_s);
            judged.push(answer.judge(&reference.medium(i), 1.0));
        }
    }
    for (i, gateway) in answered.gateways.iter().enumerate().filter(|(_, g)| g.packets_per_s > 0.0) {
        let carried = gateway.carried_packets_per_s;
        let answer = Answer::of(Subject::Gateway, gateway.name.clone(), &gateway.delay_s, carried);
        judged.push(answer.judge(&reference.gateway(i), 1.0));
    }
    for (i, flow) in answered.flows.iter().enumerate().filter(|(_, f)| f.packets_per_s > 0.0) {
        let (name, carried) = (format!("{} > {}", flow.from, flow.to), flow.carried_packets_per_s);
        judged.push(Answer::of(Subject::Flow, name, &flow.delay_s, carried).judge(&reference.flow(i), 1.0));
    }
    for ((i, copy), about) in answered.copies.iter().enumerate().zip(&network.topology().copies) {
        let blocks = (about.file_bytes as f64 / about.block_bytes as f64).max(f64::from(about.under_way()));
        let outcome = &copy.outcome;
        let answer = Answer {
            what: Subject::Copy,
            name: format!("{} > {}", copy.from, copy.to),
            how: outcome.how(),
            is_answered: outcome.is_answered(),
            value: outcome.value().map(|outcome| outcome.seconds),
            half_width: outcome.half_width_s(),
            carried: None,
        };
        judged.push(answer.judge(&reference.copy(i), blocks));
    }
    judged
}
