//! Settings of the ATP laboratory, and the conditions of real runs.

use std::num::NonZeroUsize;
use std::time::Duration;

use remora_sim::atp::{Protocol, Trace, Workload};
use serde::Serialize;

pub const SEEDS_MAX: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Experiment {
    /// Workloads with deadlines and priorities: Table 2 and Figure 6(b) to (d).
    Deadlines,
    /// Bandwidth estimate of the sender: Figure 4.
    Estimate,
    /// Events during a loss of bandwidth: Figure 5.
    Timeline,
    /// Bulk transfers by object size: Figure 6(a).
    Bulk,
    /// Several hosts on one bottleneck or in one cell, and TCP.
    Contention,
}

impl Experiment {
    pub const ALL: [Experiment; 5] =
        [Experiment::Deadlines, Experiment::Estimate, Experiment::Timeline, Experiment::Bulk, Experiment::Contention];

    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Deadlines => "deadlines",
            Experiment::Estimate => "estimate",
            Experiment::Timeline => "timeline",
            Experiment::Bulk => "bulk",
            Experiment::Contention => "contention",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub experiments: Vec<Experiment>,
    pub workloads: Vec<Workload>,
    pub protocols: Vec<Protocol>,
    pub trace: Trace,
    /// Name of the trace; `None` for the trace of ATP 02.
    pub trace_name: Option<String>,
    /// First seed. Bulk transfers have their own.
    pub first_seed: u64,
    /// Seeds for each cell with deadlines and each contest, 1 to [`SEEDS_MAX`].
    pub seeds: u64,
    /// Results do not depend on it.
    pub threads: NonZeroUsize,
    pub real: Option<Setup>,
    /// Show a progress bar on a terminal.
    pub bar: bool,
    /// Command line for the report.
    pub command: String,
}

impl Options {
    /// All workloads and protocols over the link of ATP 02, one seed.
    #[cfg(test)]
    pub(super) fn simulated(experiments: &[Experiment]) -> Options {
        Options {
            experiments: experiments.to_vec(),
            workloads: Workload::ALL.to_vec(),
            protocols: Protocol::ALL.to_vec(),
            trace: Trace::paper(),
            trace_name: None,
            first_seed: 1,
            seeds: 1,
            threads: NonZeroUsize::MIN,
            real: None,
            bar: false,
            command: String::new(),
        }
    }

    /// Whether the link, its round-trip time and the duration are those of ATP 02, so that its counts are comparable.
    pub(super) fn is_the_papers(&self) -> bool {
        let is_like_it = |s: &Setup| {
            s.from.is_zero() && s.length == self.trace.length() && s.round_trip == remora_sim::atp::ROUND_TRIP
        };
        self.trace_name.is_none() && self.real.as_ref().is_none_or(is_like_it)
    }
}

/// Experiments that can run in real time.
pub const EXPERIMENTS: [Experiment; 2] = [Experiment::Deadlines, Experiment::Bulk];

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub cells: NonZeroUsize,
    pub round_trip: Duration,
    pub from: Duration,
    pub length: Duration,
    /// Largest lateness of a frame in a valid cell.
    pub lateness_max: Duration,
}

/// What real figures depend on beside the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RealConditions {
    pub congestion: &'static str,
    pub round_trip_ms: f64,
    pub from_s: f64,
    pub length_s: f64,
    /// Largest lateness of a frame in a valid cell, in milliseconds.
    pub lateness_ms_max: f64,
    /// Cells repeated because the emulator was too late.
    pub repeated: usize,
}

impl RealConditions {
    /// How the figures were made.
    pub(super) fn words(&self, made_of: &str, has_deadlines: bool) -> String {
        let mut words = format!(
            "Real hosts: network namespaces joined by an emulated link, round-trip time {} ms, TCP with {}. {}",
            self.round_trip_ms, self.congestion, made_of,
        );
        if has_deadlines {
            words +=
                &format!(" Objects with deadlines arrive from second {} of it for {} s.", self.from_s, self.length_s);
        }
        let (latest, repeated) = (self.lateness_ms_max, self.repeated);
        words + &format!(" The latest frame was {latest:.1} ms late; {repeated} invalid cells were repeated.")
    }
}
