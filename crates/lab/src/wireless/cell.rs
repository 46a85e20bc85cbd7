//! Cells of an experiment, their measures and samples, and the runners that make samples.

use std::time::Duration;

use remora_sim::copy::Direction;
use serde::Serialize;

use super::job::{Job, way};
use crate::report::provenance::Source;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Seconds,
    /// Time from the end of an outage or hand-off until bytes flow.
    Resume,
    LatencyMedian,
    /// 95th percentile of that latency.
    Latency95,
    LatencyMax,
    /// Delivered bytes of IP packets over the channel's capacity without errors.
    Utilisation,
    /// Time that the best sender needs for the stream's bytes with the same bad periods, over the time taken.
    CapacityShare,
    /// Throughput of the destination with a good channel, over its fair share.
    GoodShare,
    /// Time of the slowest mobile.
    Slowest,
    /// Jain's index of the mobiles' rates: 1 if all are equal, 1/n if one has everything.
    Fairness,
    /// Bytes of the files over what the rate carries until the last copy ends.
    Goodput,
    /// Share of the time until the last copy ends in which a frame is on the medium, lost or not.
    Busy,
    /// Retransmissions of the first mobile's client.
    Retransmissions,
    /// Frames that found a buffer full: the first mobile's receive buffer or a device queue.
    Overflows,
    /// Longest time between two messages of the first mobile's client.
    Pause,
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
            Measure::GoodShare => "share of the good one",
            Measure::Slowest => "slowest s",
            Measure::Fairness => "fairness",
            Measure::Goodput => "utilisation",
            Measure::Busy => "medium busy",
            Measure::Retransmissions => "retransmissions",
            Measure::Overflows => "overflows",
            Measure::Pause => "longest pause s",
        }
    }

    pub fn digits(self) -> usize {
        match self {
            Measure::Retransmissions | Measure::Overflows => 0,
            Measure::Seconds | Measure::Slowest | Measure::Pause => 2,
            _ => 3,
        }
    }

    /// Whether a run can be cut off at the cell's limit.
    pub fn is_limited(self) -> bool {
        match self {
            Measure::Seconds
            | Measure::Resume
            | Measure::LatencyMedian
            | Measure::Latency95
            | Measure::LatencyMax
            | Measure::Slowest => true,
            Measure::Utilisation
            | Measure::CapacityShare
            | Measure::GoodShare
            | Measure::Fairness
            | Measure::Goodput
            | Measure::Busy
            | Measure::Retransmissions
            | Measure::Overflows
            | Measure::Pause => false,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sample {
    /// Infinite if the run was cut off.
    pub values: Vec<(Measure, f64)>,
    /// Seconds that the best sender needs with the same bad periods.
    pub floor_seconds: Option<f64>,
    /// All packets that the client sent; empty unless the experiment shows them.
    pub packets: Vec<Packet>,
    pub emulation: Option<Emulation>,
    /// Simulated time of the same run, in seconds.
    pub simulated: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Emulation {
    pub lateness_ms: f64,
    /// The run was repeated because the emulator was too late.
    pub repeated: bool,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Packet {
    pub seconds: f64,
    /// Number of the call, in order of first transmission.
    pub number: u32,
    pub again: bool,
}

impl Sample {
    pub fn value(&self, measure: Measure) -> Option<f64> {
        self.values.iter().find(|(m, _)| *m == measure).map(|(_, v)| *v)
    }
}

/// A paper's results for a cell, in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Paper {
    pub min: Option<f64>,
    pub mean: f64,
    pub max: Option<f64>,
    pub place: String,
}

#[derive(Clone, Debug)]
pub struct Cell {
    /// A level on each of the experiment's axes, in order.
    pub labels: Vec<Label>,
    pub job: Job,
    pub paper: Option<Paper>,
    /// Time limit of a run (of the run's own clock).
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

    /// Whether it can run this job; other cells are left out.
    fn takes(&self, _job: &Job) -> bool {
        true
    }

    /// Runs a job once. It is cut off after `limit` (of the run's own clock).
    fn run(&self, job: &Job, seed: u64, limit: Duration) -> Result<Sample, RunError>;
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    #[error("this runner does not support the job")]
    Unsupported,
    /// A failure that the channel does not explain.
    #[error("{0}")]
    Failed(String),
}
