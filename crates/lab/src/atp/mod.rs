//! The experiments of ATP 02, section 4: objects with deadlines over a link with varying bandwidth.
//!
//! Read `options` (experiments and settings), `job` (the runs in virtual time) and [`real`] (the same over real
//! sockets), then `outcome` (the report), `verdict` (is `atp` better than its rivals?), `evidence`
//! (what the comparison with the paper shows), `warning`, `tables` and `page`.
//! `contention` has several hosts on one bottleneck. [`nfs`] compares NFS over ATP with NFS over TCP; [`loopback`] measures throughput. [`run`] runs everything.

mod contention;
mod contest;
mod evidence;
mod job;
pub mod loopback;
pub mod nfs;
mod options;
mod outcome;
mod page;
pub mod real;
mod tables;
mod verdict;
mod warning;

use job::Job;

use super::report::pool;
use super::report::progress::bar;

pub use contention::{ContentionRow, Share};
pub use options::{Experiment, Options, SEEDS_MAX};
pub use outcome::{AtpReport, Made};
pub use remora_sim::atp::{Protocol, Trace, TraceError, Workload};
pub use verdict::{Rival, WorkloadVerdict};
pub use warning::WarningRow;

/// Runs all cells on one pool.
pub fn run(options: &Options) -> AtpReport {
    if let Some(setup) = &options.real {
        let bar = bar(real::jobs(options).len() as u64, "runs", options.bar);
        let (done, conditions) = real::run(options, setup, || bar.inc(1));
        bar.finish_and_clear();
        return AtpReport::new(options, done.into_iter()).made_real(conditions);
    }
    let jobs = job::all(options);
    let bar = bar(jobs.len() as u64, "runs", options.bar);
    let work = |n: usize| jobs.get(n).map(|job: &Job| job.run(&options.trace));
    let done: Vec<_> = pool::map(jobs.len(), options.threads, work, || bar.inc(1)).into_iter().flatten().collect();
    bar.finish_and_clear();
    AtpReport::new(options, jobs.into_iter().zip(done))
}
