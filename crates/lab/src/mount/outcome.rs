//! The report: every run, medians over the seeds, and verdicts.

use serde::Serialize;

use super::bars::{self, Verdict};
use super::cell::{self, MountCell, WorkRun};
use super::options::{MountSystem, Options};
use super::work::Work;
use crate::report::provenance::{Provenance, Source};

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MountPeer {
    pub system: MountSystem,
    pub version: Option<String>,
    /// Why it was not run.
    pub missing: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MountFailure {
    pub system: MountSystem,
    pub work: Work,
    pub seed: u64,
    pub why: String,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MountReport {
    #[serde(flatten)]
    pub made: Provenance,
    /// False after an interruption.
    pub complete: bool,
    pub rate_bits_per_s: u64,
    /// Propagation delay, one way.
    pub delay_ms: f64,
    /// Steps that take longer are cut off.
    pub limit_seconds: f64,
    pub took_s: f64,
    pub lateness_ms_bound: f64,
    pub lateness_ms: f64,
    pub peers: Vec<MountPeer>,
    pub cells: Vec<MountCell>,
    pub verdicts: Vec<Verdict>,
    /// Runs that are not valid, and why.
    pub invalid: Vec<MountFailure>,
    pub failures: Vec<MountFailure>,
}

impl MountReport {
    pub(super) fn new(options: &Options, peers: Vec<MountPeer>, runs: &[WorkRun], complete: bool, took_s: f64) -> Self {
        let rate = options.link.rate.bits();
        let cells = cell::all(&options.systems, runs, rate as f64);
        let named = |why: fn(&WorkRun) -> Option<String>| {
            let failure = |run: &WorkRun| {
                let WorkRun { system, work, seed, .. } = *run;
                Some(MountFailure { system, work, seed, why: why(run)? })
            };
            runs.iter().filter_map(failure).collect::<Vec<_>>()
        };
        let lateness = runs.iter().filter_map(|run| run.result.as_ref().ok()).map(|sample| sample.lateness_ms);
        let limit_seconds = options.limit.as_secs_f64();
        MountReport {
            made: Provenance::new(Source::Real, &options.command, options.first_seed, options.seeds),
            complete,
            rate_bits_per_s: rate,
            delay_ms: options.link.delay.as_secs_f64() * 1e3,
            limit_seconds,
            took_s,
            lateness_ms_bound: options.lateness_max.as_secs_f64() * 1e3,
            lateness_ms: lateness.fold(0.0, f64::max),
            peers,
            verdicts: bars::verdicts(&cells, limit_seconds),
            cells,
            invalid: named(|run| run.result.as_ref().ok()?.fault.clone()),
            failures: named(|run| run.result.as_ref().err().cloned()),
        }
    }

    pub fn failures(&self) -> usize {
        self.failures.len()
    }

    /// Verdicts that are not met.
    pub fn unmet(&self) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.met != bars::Met::Met).count()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::mount::cell::tests::run;
    use crate::mount::work::Measure;

    pub(crate) fn report(runs: &[WorkRun]) -> MountReport {
        let options = Options {
            link: Options::usual_link(),
            systems: MountSystem::ALL.to_vec(),
            works: Work::ALL.to_vec(),
            long: false,
            first_seed: 1,
            seeds: 2,
            limit: std::time::Duration::from_secs(300),
            jobs: std::num::NonZeroUsize::MIN,
            lateness_max: std::time::Duration::from_millis(5),
            binary: "remora".into(),
            kernel: None,
            bar: false,
            command: "remora lab mount".into(),
        };
        let missing = |system| MountPeer { system, version: None, missing: Some("install it".into()) };
        MountReport::new(&options, vec![missing(MountSystem::Linux)], runs, true, 1.0)
    }

    #[test]
    fn cell_pools_the_seeds_and_counts_invalid_runs() {
        let save = |seed, seconds| run(MountSystem::Udp, Work::Save, seed, &[(Measure::Save, seconds)]);
        let mut late = save(2, 0.6);
        late.result.as_mut().unwrap().fault = Some("a frame was late".into());
        let failed = WorkRun { result: Err("sshd is not installed".into()), ..save(3, 0.0) };
        let report = report(&[late, save(1, 0.4), failed]);
        let [cell] = &report.cells[..] else { panic!("{:?}", report.cells) };
        assert_eq!((cell.seconds.median, cell.invalid, cell.runs[0].seed), (0.5, 1, 1));
        assert_eq!((report.failures(), report.failures[0].seed, report.invalid[0].seed), (1, 3, 2));
    }
}
