//! How each experiment's figures come about: over which link, and from how many runs.

use remora_sim::atp::BULK_RATE;
use serde::Serialize;

use super::job::BULK_SEED;
use super::{Experiment, Options, real};

/// How an experiment is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Made {
    /// Which.
    pub experiment: &'static str,
    /// The link's bandwidth.
    pub link: String,
    /// The seed of a cell's first run.
    pub first_seed: u64,
    /// Runs of each cell, each with the next seed.
    pub runs: u64,
}

impl Made {
    /// For people.
    pub(super) fn words(&self) -> String {
        let Made { experiment, link, first_seed, runs } = self;
        let times = match runs {
            1 => format!("one run of each cell, seed {first_seed}"),
            n => format!("{n} seeds from {first_seed}"),
        };
        format!("{experiment}: {times}; the bandwidth is {link}.")
    }
}

/// All that the options ask for and that can be had; `trace` is what their link is called.
pub(super) fn all(options: &Options, trace: &str) -> Vec<Made> {
    let can_be_had = |e: &&Experiment| options.real.is_none() || real::EXPERIMENTS.contains(e);
    options.experiments.iter().filter(can_be_had).map(|e| of(*e, options, trace)).collect()
}

fn of(experiment: Experiment, options: &Options, trace: &str) -> Made {
    let (link, first_seed, runs) = match experiment {
        Experiment::Deadlines => (trace.to_owned(), options.first_seed, options.seeds),
        // A curve is of one run, and so is a timeline.
        Experiment::Estimate | Experiment::Timeline => (trace.to_owned(), options.first_seed, 1),
        Experiment::Bulk => (format!("{:.0} KB/s, always", BULK_RATE / 1024.0), BULK_SEED, 1),
    };
    Made { experiment: experiment.name(), link, first_seed, runs }
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::*;

    #[test]
    fn each_experiment_names_its_own_link_and_runs() {
        let options = Options {
            trace_name: Some("mine.csv".into()),
            first_seed: 99,
            seeds: 7,
            ..Options::simulated(&Experiment::ALL)
        };
        let words = |experiments: &[Experiment]| {
            let options = Options { experiments: experiments.to_vec(), ..options.clone() };
            Report::new(&options, std::iter::empty()).made_how()
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
}
