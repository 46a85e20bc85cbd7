//! The experiments of ATP 02, section 4: what gets through in time when the bandwidth comes and
//! goes.
//!
//! [`run`] gives a [`Report`]: the seven workloads over the paper's trace with every scheme,
//! beside the paper's own figures and a clairvoyant oracle (Table 2, Figure 6); the bandwidth
//! estimate over time (Figure 4); a timeline (Figure 5); bulk transfers (Figure 6a). Everything is
//! [`remora_sim::atp`]'s, in virtual time, or [`real`].

mod job;
pub mod loopback;
mod made;
mod outcome;
mod page;
mod paper;
mod plot;
mod ratios;
pub mod real;
mod tables;
mod verdict;

use std::num::NonZeroUsize;

pub use remora_sim::atp::Trace;

pub use remora_sim::atp::{Protocol, TraceError, Workload};

use crate::report::pool;
use crate::report::progress::bar;
use job::Job;

pub use made::Made;
pub use outcome::Report;
pub use verdict::{Rival, Verdict};

/// The most seeds a cell may be run with.
pub const SEEDS_MAX: u64 = 1000;

/// A part of the laboratory.
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
    /// All.
    pub const ALL: [Experiment; 4] =
        [Experiment::Deadlines, Experiment::Estimate, Experiment::Timeline, Experiment::Bulk];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Deadlines => "deadlines",
            Experiment::Estimate => "estimate",
            Experiment::Timeline => "timeline",
            Experiment::Bulk => "bulk",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which parts.
    pub experiments: Vec<Experiment>,
    /// Which workloads.
    pub workloads: Vec<Workload>,
    /// Which protocols.
    pub protocols: Vec<Protocol>,
    /// The link.
    pub trace: Trace,
    /// What the link is called; `None` for the paper's.
    pub trace_name: Option<String>,
    /// The first seed; bulk transfers have one of their own.
    pub first_seed: u64,
    /// How many seeds for each cell with deadlines (1 to [`SEEDS_MAX`]).
    pub seeds: u64,
    /// On so many threads; the results do not depend on it.
    pub threads: NonZeroUsize,
    /// On real hosts instead of in virtual time.
    pub real: Option<real::Setup>,
    /// Whether to show a progress bar (on a terminal only).
    pub bar: bool,
    /// The command that gives this again, for the report.
    pub command: String,
}

impl Options {
    /// Every workload with every protocol over the paper's link, one seed.
    #[cfg(test)]
    fn simulated(experiments: &[Experiment]) -> Options {
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
    fn is_the_papers(&self) -> bool {
        let is_like_it = |s: &real::Setup| {
            s.from.is_zero() && s.length == self.trace.length() && s.round_trip == remora_sim::atp::ROUND_TRIP
        };
        self.trace_name.is_none() && self.real.as_ref().is_none_or(is_like_it)
    }
}

/// Runs everything. All runs are independent: one pool takes them all.
pub fn run(options: &Options) -> Report {
    if let Some(setup) = &options.real {
        let bar = bar(real::jobs(options).len() as u64, "runs", options.bar);
        let (done, conditions) = real::run(options, setup, || bar.inc(1));
        bar.finish_and_clear();
        return Report::new(options, done.into_iter()).made_real(conditions);
    }
    let jobs = job::all(options);
    let bar = bar(jobs.len() as u64, "runs", options.bar);
    let work = |n: usize| jobs.get(n).map(|job: &Job| job.run(&options.trace));
    let done: Vec<_> = pool::map(jobs.len(), options.threads, work, || bar.inc(1)).into_iter().flatten().collect();
    bar.finish_and_clear();
    Report::new(options, jobs.into_iter().zip(done))
}
