//! A cell of an experiment's table: one setting, run with many seeds.

use std::time::Duration;

use remora_sim::copy::Direction;
use serde::Serialize;

use super::job::{Job, way};
use crate::report::provenance::Source;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Seconds,
    /// How long after the end of an outage or hand-off bytes flowed again.
    Resume,
    LatencyMedian,
    /// 95th percentile of that latency.
    Latency95,
    LatencyMax,
    /// Bytes of IP packets delivered, over what the rate could have carried without errors.
    Utilisation,
    /// How long the best sender would have needed, in the same weather, for the bytes of a stream
    /// that arrived, over the time it took.
    CapacityShare,
    /// What the destination with a good channel got, of its fair share.
    GoodShare,
}

impl Measure {
    pub fn heading(self) -> &'static str {
        match self {
            Measure::Seconds => "seconds",
            Measure::Resume => "s until bytes flow",
            Measure::LatencyMedian => "p50 s",
            Measure::Latency95 => "p95 s",
            Measure::LatencyMax => "max s",
            Measure::Utilisation => "utilisation",
            Measure::CapacityShare => "share of capacity",
            Measure::GoodShare => "good one's share",
        }
    }

    pub fn digits(self) -> usize {
        match self {
            Measure::Seconds => 2,
            _ => 3,
        }
    }

    /// Whether runs may be cut off by it, and then lie beyond the cell's limit.
    pub fn is_limited(self) -> bool {
        !matches!(self, Measure::Utilisation | Measure::CapacityShare | Measure::GoodShare)
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sample {
    /// What was measured; infinite if the run was cut off before.
    pub values: Vec<(Measure, f64)>,
    /// Seconds that the best sender would have needed in the same weather, if it makes sense.
    pub floor_seconds: Option<f64>,
    /// Every packet that the client sent, where the experiment is about them.
    pub packets: Vec<Packet>,
    /// How well the emulator did, where there was one.
    pub emulation: Option<Emulation>,
    /// What a real run took in the simulator, in seconds.
    pub simulated: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Emulation {
    pub lateness_ms: f64,
    /// Whether the run had to be made again because the emulator was too late.
    pub repeated: bool,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Packet {
    pub seconds: f64,
    /// Which: the calls are counted as they are sent for the first time.
    pub number: u32,
    pub again: bool,
}

impl Sample {
    pub fn value(&self, measure: Measure) -> Option<f64> {
        self.values.iter().find(|(m, _)| *m == measure).map(|(_, v)| *v)
    }
}

/// What a paper reports of a cell, in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Paper {
    pub min: Option<f64>,
    pub mean: f64,
    pub max: Option<f64>,
    pub place: String,
}

#[derive(Clone, Debug)]
pub struct Cell {
    /// Where it stands: a level on each of the experiment's axes, in the axes' order.
    pub labels: Vec<Label>,
    pub job: Job,
    pub paper: Option<Paper>,
    /// A run is cut off when it takes longer (of its own time).
    pub limit: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Label {
    /// The axis, as in "bad mean".
    pub axis: &'static str,
    /// The level, as in "80 ms".
    pub level: String,
}

impl Label {
    pub fn new(axis: &'static str, level: impl Into<String>) -> Label {
        Label { axis, level: level.into() }
    }

    pub(crate) fn direction(direction: Direction) -> Label {
        Label::new("direction", way(direction))
    }

    pub(crate) fn time(axis: &'static str, length: Duration) -> Label {
        let ms = length.as_millis();
        Label::new(
            axis,
            if ms >= 1000 && ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") },
        )
    }
}

impl Cell {
    pub fn level(&self, axis: &str) -> Option<&str> {
        level(&self.labels, axis)
    }
}

pub(crate) fn level<'a>(labels: &'a [Label], axis: &str) -> Option<&'a str> {
    labels.iter().find(|l| l.axis == axis).map(|l| l.level.as_str())
}

/// Runs jobs. Threads share a runner.
pub trait Runner: Sync {
    fn source(&self) -> Source;

    /// Whether it can run this job here; cells with others are left out.
    fn takes(&self, _job: &Job) -> bool {
        true
    }

    /// Runs a job once. It is cut off after `limit` (of the run's own time).
    fn run(&self, job: &Job, seed: u64, limit: Duration) -> Result<Sample, RunError>;
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot be run this way")]
    Unsupported,
    /// A failure that the channel does not explain.
    #[error("{0}")]
    Failed(String),
}
