//! The runs of the laboratory as independent jobs.

use std::time::Instant;

use remora_sim::atp::contention::{self, ContentionRun};
use remora_sim::atp::{self, Fate, Object, Protocol, Run, Sends, Trace, Workload};

use super::contest::{Contest, contests};
use super::options::{Experiment, Options};

/// Sizes of bulk objects, in KB (ATP 02, Figure 6a).
const BULK_KB: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The seed of bulk transfers, which draw nothing.
pub(super) const BULK_SEED: u64 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Job {
    Oracle(Workload, u64),
    Cell(Workload, Protocol, u64),
    /// A scheme's with the saturating load of Figure 4(a).
    Saturated(Protocol, u64),
    /// A scheme's with the workload of Figures 4(b) and 5.
    Mixed(Protocol, u64),
    /// A bulk transfer with objects of so many KB.
    Bulk(Protocol, Sends, u32),
    Contention(Contest, u64),
}

#[derive(Clone, Debug)]
pub(super) enum JobResult {
    Oracle(Vec<Object>, Vec<bool>),
    Fates(Vec<Object>, Vec<Fate>),
    Run(Vec<Object>, Run),
    /// Bytes per second.
    Rate(f64),
    Contention(ContentionRun),
    Failed(String),
}

impl Job {
    pub(super) fn run(&self, trace: &Trace) -> JobResult {
        self.attempt(trace).unwrap_or_else(JobResult::Failed)
    }

    fn attempt(&self, trace: &Trace) -> Result<JobResult, String> {
        // Origin of virtual time; its value has no effect.
        let epoch = Instant::now();
        match *self {
            Job::Oracle(workload, seed) => {
                let objects = atp::objects(workload, seed);
                let best = atp::optimum(&trace.delayed(atp::LEAD), &objects).map_err(|e| e.to_string())?;
                Ok(JobResult::Oracle(objects, best.chosen))
            }
            Job::Cell(workload, protocol, seed) => {
                let objects = atp::objects(workload, seed);
                let run = atp::run(protocol, trace, &objects, epoch, seed).map_err(|e| e.to_string())?;
                Ok(JobResult::Fates(objects, run.fates))
            }
            Job::Saturated(protocol, seed) => whole(protocol, trace, atp::saturating(), seed),
            Job::Mixed(protocol, seed) => whole(protocol, trace, atp::objects(Workload::Unequal2, seed), seed),
            Job::Bulk(protocol, sends, kb) => {
                atp::bulk(protocol, kb << 10, sends, epoch, BULK_SEED).map(JobResult::Rate).map_err(|e| e.to_string())
            }
            Job::Contention(Contest { place, hosts }, seed) => {
                let run = contention::contend(place, hosts, epoch, seed).map_err(|e| e.to_string())?;
                Ok(JobResult::Contention(run))
            }
        }
    }
}

fn whole(protocol: Protocol, trace: &Trace, objects: Vec<Object>, seed: u64) -> Result<JobResult, String> {
    let run = atp::run(protocol, trace, &objects, Instant::now(), seed).map_err(|e| e.to_string())?;
    Ok(JobResult::Run(objects, run))
}

pub(super) fn all(options: &Options) -> Vec<Job> {
    let mut jobs = Vec::new();
    for experiment in &options.experiments {
        match experiment {
            Experiment::Deadlines => jobs.extend(deadlines(options)),
            Experiment::Estimate => jobs.extend(estimators(options).map(|p| Job::Saturated(p, options.first_seed))),
            Experiment::Timeline => {}
            Experiment::Bulk => jobs.extend(bulk(options)),
            Experiment::Contention => {
                jobs.extend(
                    contests().flat_map(|contest| seeds(options).map(move |seed| Job::Contention(contest, seed))),
                );
            }
        }
    }
    // Figures 4(b) and 5 show the same run.
    if options.experiments.iter().any(|e| matches!(e, Experiment::Estimate | Experiment::Timeline)) {
        jobs.extend(estimators(options).map(|p| Job::Mixed(p, options.first_seed)));
    }
    jobs
}

fn seeds(options: &Options) -> impl Iterator<Item = u64> + use<> {
    let first = options.first_seed;
    (0..options.seeds).map(move |n| first.wrapping_add(n))
}

fn deadlines(options: &Options) -> Vec<Job> {
    let seeds = || seeds(options);
    let mut jobs = Vec::new();
    for workload in &options.workloads {
        jobs.extend(seeds().map(|seed| Job::Oracle(*workload, seed)));
        for protocol in &options.protocols {
            jobs.extend(seeds().map(|seed| Job::Cell(*workload, *protocol, seed)));
        }
    }
    jobs
}

fn estimators(options: &Options) -> impl Iterator<Item = Protocol> {
    options.protocols.iter().copied().filter(|p| p.estimates())
}

fn bulk(options: &Options) -> Vec<Job> {
    let mut jobs = Vec::new();
    for protocol in &options.protocols {
        let ways: &[Sends] = match protocol {
            Protocol::Tcp => &[Sends::Asynchronous],
            p if p.estimates() => &[Sends::Synchronous, Sends::Asynchronous],
            _ => &[],
        };
        for sends in ways {
            jobs.extend(BULK_KB.map(|kb| Job::Bulk(*protocol, *sends, kb)));
        }
    }
    jobs
}
