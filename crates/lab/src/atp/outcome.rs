//! The report: everything that is shown and that `--json` prints.

use remora_sim::atp::{BULK_RATE, Class, Fate, FinalStatus, LEAD, Object, Protocol, Run, Sends, Trace, Workload};
use serde::Serialize;

use super::contention::{self, ContentionRow};
use super::job::{BULK_SEED, Job, JobResult};
use super::options::{Experiment, Options, RealConditions};
use super::verdict::{Row, WorkloadVerdict};
use super::warning::{self, WarningRow};
use super::{options, verdict};
use crate::report::provenance::{FailedRun, Provenance, Source};
use crate::report::statistics::Summary;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Made {
    pub experiment: &'static str,
    pub link: String,
    pub first_seed: u64,
    /// Runs of each cell, each with the next seed.
    pub runs: u64,
}

impl Made {
    pub(super) fn words(&self) -> String {
        let Made { experiment, link, first_seed, runs } = self;
        let times = match runs {
            1 => format!("one run of each cell, seed {first_seed}"),
            n => format!("{n} seeds from {first_seed}"),
        };
        format!("{experiment}: {times}; the bandwidth is {link}.")
    }
}

/// The requested experiments that can run. `trace` is the link's name.
pub(super) fn all(options: &Options, trace: &str) -> Vec<Made> {
    let can_be_had = |e: &&Experiment| options.real.is_none() || options::EXPERIMENTS.contains(e);
    options.experiments.iter().filter(can_be_had).map(|e| of(*e, options, trace)).collect()
}

fn of(experiment: Experiment, options: &Options, trace: &str) -> Made {
    let (link, first_seed, runs) = match experiment {
        Experiment::Deadlines => (trace.to_owned(), options.first_seed, options.seeds),
        // Curves and timelines show one run.
        Experiment::Estimate | Experiment::Timeline => (trace.to_owned(), options.first_seed, 1),
        Experiment::Bulk => (steady(), BULK_SEED, 1),
        Experiment::Contention => (steady(), options.first_seed, options.seeds),
    };
    Made { experiment: experiment.name(), link, first_seed, runs }
}

/// The link of bulk transfers and contention.
fn steady() -> String {
    format!("{:.0} KB/s, always", BULK_RATE / 1024.0)
}

/// Seconds of the trace in Figure 5.
const TIMELINE: std::ops::Range<f64> = 136.0..152.0;

#[derive(Clone, Debug, Serialize)]
pub struct AtpReport {
    #[serde(flatten)]
    pub made_by: Provenance,
    /// `None` if simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real: Option<RealConditions>,
    pub trace: String,
    pub made: Vec<Made>,
    /// Table 2 and Figure 6: a row for each workload, scheme and class.
    pub rows: Vec<Row>,
    /// One verdict on `atp` for each workload.
    pub verdicts: Vec<WorkloadVerdict>,
    /// How early the sender learns of missed deadlines; empty on real hosts.
    pub warnings: Vec<WarningRow>,
    /// Figure 4: curves of the schemes that estimate, with both loads.
    pub curves: Vec<Curve>,
    /// Figure 5: for each scheme that estimates.
    pub timelines: Vec<Timeline>,
    pub bulk: Vec<Bulk>,
    pub contention: Vec<ContentionRow>,
    pub failures: Vec<Failure>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    pub scheme: &'static str,
    pub figure: &'static str,
    pub seconds: Vec<Instant>,
}

/// One second of a run. Rates in bytes per second.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Instant {
    pub at: f64,
    pub bandwidth: f64,
    pub used: f64,
    /// The sender's estimate at its end.
    pub estimate: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    pub scheme: &'static str,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub at: f64,
    pub what: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Bulk {
    pub scheme: String,
    /// Sizes in bytes, with bytes a second.
    pub points: Vec<(u32, f64)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub what: String,
    #[serde(flatten)]
    pub run: FailedRun,
}

impl AtpReport {
    pub(super) fn new(options: &Options, done: impl Iterator<Item = (Job, JobResult)>) -> AtpReport {
        let done: Vec<(Job, JobResult)> = done.collect();
        let rows = rows(options, &done);
        let reconstructed = || "ATP 02's, reconstructed from its text and figures".to_owned();
        let trace = options.trace_name.clone().unwrap_or_else(reconstructed);
        AtpReport {
            made_by: Provenance::new(Source::Simulated, &options.command, options.first_seed, options.seeds),
            real: None,
            made: all(options, &trace),
            trace,
            verdicts: verdict::judge(&rows),
            rows,
            warnings: if options.real.is_none() { warning::rows(options, &done) } else { Vec::new() },
            curves: curves(options, &done),
            timelines: timelines(options, &done),
            bulk: bulk(&done),
            contention: contention::rows(&done),
            failures: done.iter().filter_map(|(job, done)| failure(job, done)).collect(),
        }
    }

    /// Marks the report as made on real hosts.
    pub(super) fn made_real(self, conditions: RealConditions) -> AtpReport {
        let made_by = Provenance { source: Source::Real, ..self.made_by };
        AtpReport { made_by, real: Some(conditions), ..self }
    }

    pub fn failures(&self) -> usize {
        self.failures.len()
    }
}

fn failure(job: &Job, done: &JobResult) -> Option<Failure> {
    let JobResult::Failed(why) = done else { return None };
    let (what, seed) = match job {
        Job::Oracle(workload, seed) => (format!("{}, oracle", workload.name()), *seed),
        Job::Cell(workload, protocol, seed) => (format!("{}, {}", workload.name(), protocol.name()), *seed),
        Job::Saturated(protocol, seed) | Job::Mixed(protocol, seed) => (protocol.name().to_owned(), *seed),
        Job::Bulk(protocol, _, kb) => (format!("{}, bulk, {kb} KB", protocol.name()), BULK_SEED),
        Job::Contention(contest, seed) => (format!("{}, {}", contest.place.name(), contest.words()), *seed),
    };
    Some(Failure { what, run: FailedRun { seed, why: why.clone() } })
}

fn rows(options: &Options, done: &[(Job, JobResult)]) -> Vec<Row> {
    if !options.experiments.contains(&Experiment::Deadlines) {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for &workload in &options.workloads {
        for class in workload.classes() {
            let paper = |protocol| {
                verdict::high(workload, protocol).filter(|_| class == Class::High && options.is_the_papers())
            };
            rows.extend(options.protocols.iter().map(|&p| Row { paper: paper(p), ..row(workload, class, p, done) }));
        }
    }
    rows
}

fn row(workload: Workload, class: Class, protocol: Protocol, done: &[(Job, JobResult)]) -> Row {
    let mut counts: Vec<Counts> = Vec::new();
    for (job, done) in done {
        if let (Job::Cell(w, p, seed), JobResult::Fates(objects, fates)) = (job, done)
            && (*w, *p) == (workload, protocol)
        {
            counts.push(Counts::of(class, *seed, objects, fates));
        }
    }
    let oracle = |seed: u64| {
        done.iter().find_map(|(job, done)| match (job, done) {
            (Job::Oracle(w, s), JobResult::Oracle(objects, chosen)) if (*w, *s) == (workload, seed) => {
                Some(objects.iter().zip(chosen).filter(|(o, chosen)| o.class == class && **chosen).count())
            }
            _ => None,
        })
    };
    let summary = |of: fn(&Counts) -> usize| Summary::of(&counts.iter().map(|c| of(c) as f64).collect::<Vec<_>>());
    let best: Vec<f64> = counts.iter().filter_map(|c| oracle(c.seed)).map(|n| n as f64).collect();
    // Seed by seed, since an oracle may have failed.
    let of_best = |c: &Counts| Some(c.delivered as f64 / oracle(c.seed).filter(|best| *best > 0)? as f64);
    let ratios: Vec<f64> = counts.iter().filter_map(of_best).collect();
    Row {
        workload: workload.name(),
        class: class.name(),
        scheme: protocol.name(),
        objects: counts.first().map_or(0, |c| c.objects),
        oracle: Summary::of(&best),
        delivered: summary(|c| c.delivered),
        delivered_by_seed: counts.iter().map(|c| (c.seed, c.delivered)).collect(),
        told: summary(|c| c.told),
        rejected: summary(|c| c.rejected),
        late: summary(|c| c.objects.saturating_sub(c.delivered + c.rejected)),
        of_oracle: Summary::of(&ratios),
        paper: None,
    }
}

struct Counts {
    seed: u64,
    objects: usize,
    delivered: usize,
    told: usize,
    rejected: usize,
}

impl Counts {
    fn of(class: Class, seed: u64, objects: &[Object], fates: &[Fate]) -> Counts {
        let of_class = || objects.iter().zip(fates).filter(|(object, _)| object.class == class);
        let count = |is: fn(&Fate, &Object) -> bool| of_class().filter(|(object, fate)| is(fate, object)).count();
        Counts {
            seed,
            objects: of_class().count(),
            delivered: count(Fate::in_time),
            told: count(Fate::told_in_time),
            rejected: count(Fate::rejected),
        }
    }
}

fn curves(options: &Options, done: &[(Job, JobResult)]) -> Vec<Curve> {
    if !options.experiments.contains(&Experiment::Estimate) {
        return Vec::new();
    }
    let curve = |(job, done): &(Job, JobResult)| match (job, done) {
        (Job::Saturated(protocol, _), JobResult::Run(_, run)) => Some(curve("4(a)", *protocol, &options.trace, run)),
        (Job::Mixed(protocol, _), JobResult::Run(_, run)) => Some(curve("4(b)", *protocol, &options.trace, run)),
        _ => None,
    };
    done.iter().filter_map(curve).collect()
}

fn curve(figure: &'static str, protocol: Protocol, trace: &Trace, run: &Run) -> Curve {
    let second = |s: &remora_sim::atp::Second| Instant {
        at: in_trace(s.at),
        bandwidth: trace.rate(s.at - LEAD),
        used: s.used as f64,
        estimate: s.estimate,
    };
    Curve { scheme: protocol.name(), figure, seconds: run.seconds.iter().map(second).collect() }
}

fn timelines(options: &Options, done: &[(Job, JobResult)]) -> Vec<Timeline> {
    if !options.experiments.contains(&Experiment::Timeline) {
        return Vec::new();
    }
    let timeline = |(job, done): &(Job, JobResult)| match (job, done) {
        (Job::Mixed(protocol, _), JobResult::Run(objects, run)) => {
            Some(Timeline { scheme: protocol.name(), events: events(objects, run) })
        }
        _ => None,
    };
    done.iter().filter_map(timeline).collect()
}

fn events(objects: &[Object], run: &Run) -> Vec<Event> {
    let mut events = Vec::new();
    for (number, (object, fate)) in objects.iter().zip(&run.fates).enumerate() {
        let name = if object.class == Class::High { format!("small {number}") } else { format!("LARGE {number}") };
        let told = fate.told.and_then(|(at, told)| match told {
            FinalStatus::Delivered => None,
            FinalStatus::Rejected => Some((at, "given up")),
            FinalStatus::Late => Some((at, "past its deadline")),
        });
        let steps = [(fate.entered, "enters"), (fate.started, "is sent"), (fate.arrived, "is delivered")];
        let steps = steps.into_iter().filter_map(|(at, what)| Some((at?, what))).chain(told);
        events.extend(steps.map(|(at, what)| Event { at: in_trace(at), what: format!("{name} {what}") }));
    }
    let estimates = run.seconds.iter().filter_map(|s| Some((s.at, s.estimate?)));
    events.extend(estimates.map(|(at, rate)| Event { at: in_trace(at), what: format!("estimate {rate:.0} B/s") }));
    events.retain(|e| TIMELINE.contains(&e.at));
    events.sort_by(|a, b| a.at.total_cmp(&b.at));
    events
}

fn in_trace(at: remora_base::Time) -> f64 {
    at.as_secs_f64() - LEAD.as_secs_f64()
}

fn bulk(done: &[(Job, JobResult)]) -> Vec<Bulk> {
    let mut all: Vec<Bulk> = Vec::new();
    for (job, done) in done {
        let (Job::Bulk(protocol, sends, kb), JobResult::Rate(rate)) = (job, done) else { continue };
        let scheme = match (protocol, sends) {
            (Protocol::Tcp, _) => protocol.name().to_owned(),
            (_, Sends::Synchronous) => format!("{}-sync", protocol.name()),
            (_, Sends::Asynchronous) => format!("{}-async", protocol.name()),
        };
        match all.iter_mut().find(|b| b.scheme == scheme) {
            Some(bulk) => bulk.points.push((kb << 10, *rate)),
            None => all.push(Bulk { scheme, points: vec![(kb << 10, *rate)] }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use remora_base::Time;
    use remora_sim::atp::ROUND_TRIP;

    use super::*;
    use crate::atp::options::Setup;

    #[test]
    fn experiments_name_their_own_link_and_runs() {
        let options = Options {
            trace_name: Some("mine.csv".into()),
            first_seed: 99,
            seeds: 7,
            ..Options::simulated(&Experiment::ALL)
        };
        let words = |experiments: &[Experiment]| {
            let options = Options { experiments: experiments.to_vec(), ..options.clone() };
            AtpReport::new(&options, std::iter::empty()).made_how()
        };
        let bulk = "bulk: one run of each cell, seed 1; the bandwidth is 512 KB/s, always.";
        assert_eq!(words(&[Experiment::Bulk]), format!("Simulated, in virtual time. {bulk}"));
        let all = words(&Experiment::ALL);
        for piece in [
            "deadlines: 7 seeds from 99; the bandwidth is mine.csv.",
            "estimate: one run of each cell, seed 99; the bandwidth is mine.csv.",
            "timeline: one run",
            bulk,
        ] {
            assert!(all.contains(piece), "{piece}: {all}");
        }
    }

    #[test]
    fn paper_counts_are_shown_for_its_own_link_only() {
        let trace = Trace::paper();
        let setup = |round_trip, from, length| {
            Some(Setup { cells: NonZeroUsize::MIN, round_trip, from, length, lateness_max: Duration::ZERO })
        };
        let (start, end) = (Duration::ZERO, trace.length());
        let (near, second) = (ROUND_TRIP, Duration::from_secs(1));
        for (name, real, is_there) in [
            (None, None, true),
            (Some("mine.csv"), None, false),
            (None, setup(near, start, end), true),
            (None, setup(near, start, end - second), false),
            (None, setup(near, second, end), false),
            (None, setup(second, start, end), false),
        ] {
            let options = Options {
                workloads: vec![Workload::Equal],
                protocols: vec![Protocol::Atp],
                trace_name: name.map(str::to_owned),
                real,
                ..Options::simulated(&[Experiment::Deadlines])
            };
            let report = AtpReport::new(&options, std::iter::empty());
            let papers = |r: &Row| r.paper.map(|p| p.delivered);
            let high = report.rows.iter().find(|r| r.class == Class::High.name()).and_then(papers);
            assert_eq!(high, is_there.then_some(524), "{name:?} {real:?}");
            assert!(report.rows.iter().all(|r| r.class == Class::High.name() || r.paper.is_none()));
        }
    }

    #[test]
    fn seed_is_compared_with_its_own_oracle() {
        let object = Object { arrival: Time::ZERO, size: 1, class: Class::High, deadline: Duration::from_secs(1) };
        let fates = |arrived: usize| {
            let fate = |n| Fate { arrived: (n < arrived).then_some(Time::ZERO), ..Fate::default() };
            JobResult::Fates(vec![object; 4], (0..4).map(fate).collect())
        };
        let cell = |seed| Job::Cell(Workload::Equal, Protocol::Atp, seed);
        let done = [
            (Job::Oracle(Workload::Equal, 1), JobResult::Failed("too many choices".into())),
            (Job::Oracle(Workload::Equal, 2), JobResult::Oracle(vec![object; 4], vec![true; 4])),
            (cell(1), fates(4)),
            (cell(2), fates(1)),
        ];
        let row = row(Workload::Equal, Class::High, Protocol::Atp, &done);
        assert_eq!(row.of_oracle.map(|r| (r.runs, r.median)), Some((1, 0.25)));
    }
}
