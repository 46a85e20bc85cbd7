use std::num::NonZeroUsize;
use std::time::Duration;

use remora_sim::atp::{Protocol, Trace, Workload};
use serde::Serialize;

/// The most seeds a cell may be run with.
pub const SEEDS_MAX: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Experiment {
    /// Workloads with deadlines and priorities: Table 2 and Figure 6(b) to (d).
    Deadlines,
    /// What the sender takes the bandwidth for: Figure 4.
    Estimate,
    /// What happens while the bandwidth goes away: Figure 5.
    Timeline,
    /// Bulk transfers by object size: Figure 6(a).
    Bulk,
}

impl Experiment {
    pub const ALL: [Experiment; 4] =
        [Experiment::Deadlines, Experiment::Estimate, Experiment::Timeline, Experiment::Bulk];

    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Deadlines => "deadlines",
            Experiment::Estimate => "estimate",
            Experiment::Timeline => "timeline",
            Experiment::Bulk => "bulk",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub experiments: Vec<Experiment>,
    pub workloads: Vec<Workload>,
    pub protocols: Vec<Protocol>,
    pub trace: Trace,
    /// What the link is called; `None` for the paper's.
    pub trace_name: Option<String>,
    /// The first seed; bulk transfers have one of their own.
    pub first_seed: u64,
    /// How many seeds for each cell with deadlines (1 to [`SEEDS_MAX`]).
    pub seeds: u64,
    /// On so many threads; the results do not depend on it.
    pub threads: NonZeroUsize,
    pub real: Option<Setup>,
    /// Whether to show a progress bar (on a terminal only).
    pub bar: bool,
    /// The command that gives this again, for the report.
    pub command: String,
}

impl Options {
    /// Every workload with every protocol over the paper's link, one seed.
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

    /// Whether objects come over the paper's link, as near as there and for as long, so that its counts
    /// can stand beside ours.
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
    /// How late a frame may be handed over in a cell that counts.
    pub lateness_max: Duration,
}

/// What real figures depend on beside the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Conditions {
    pub congestion: &'static str,
    pub round_trip_ms: f64,
    pub from_s: f64,
    pub length_s: f64,
    /// The latest a frame was handed over in a cell that counts, in milliseconds.
    pub lateness_ms_max: f64,
    /// Cells that were made again, because the emulator had not kept its promises.
    pub repeated: usize,
}

impl Conditions {
    /// How the figures came about, in a sentence or two.
    pub(super) fn words(&self, made_of: &str, has_deadlines: bool) -> String {
        let mut words = format!(
            "On real hosts: network namespaces joined by an emulated link, {} ms there and back, TCP with {}. {}",
            self.round_trip_ms, self.congestion, made_of,
        );
        if has_deadlines {
            words += &format!(" Objects with deadlines come from {} s of it for {} s.", self.from_s, self.length_s);
        }
        let (latest, repeated) = (self.lateness_ms_max, self.repeated);
        words + &format!(" The latest frame was {latest:.1} ms late; {repeated} cells were not valid and made again.")
    }
}
