//! The experiments of ATP 02, section 4: what gets through in time when the bandwidth comes and
//! goes.
//!
//! [`run`] gives a [`Report`]: the seven workloads over the paper's trace with every scheme,
//! beside the paper's own figures and a clairvoyant oracle (Table 2, Figure 6); the bandwidth
//! estimate over time (Figure 4); a timeline (Figure 5); bulk transfers (Figure 6a). Everything is
//! [`remora_sim::atp`]'s, in virtual time, or [`real`].

mod job;
pub mod loopback;
pub mod nfs;
mod options;
mod outcome;
mod page;
pub mod real;
mod tables;
mod verdict;

use job::Job;

use super::report::pool;
use super::report::progress::bar;

pub use options::{Experiment, Options, SEEDS_MAX};
pub use outcome::{Made, Report};
pub use remora_sim::atp::{Protocol, Trace, TraceError, Workload};
pub use verdict::{Rival, Verdict};

/// Runs all cells on one pool.
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
