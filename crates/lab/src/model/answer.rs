//! The answer to a network: each figure by its formula within the band, else by simulation.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use remora_model::{Network, Report};
use remora_sim::network::answer::{Goal, LONGER, Replication, Trial};
use remora_sim::network::check::{Case, JudgedFigure, judge};

use crate::report::pool;

/// Events that a second of the budget buys. A processor of 2020 handles 5 to 15 million a second.
const EVENTS_PER_S: f64 = 4e6;
/// The half-width at which an answer ends, as a share of the figure.
const SETTLED: f64 = 0.025;
/// Events of a reference.
const REFERENCE_EVENTS: u64 = 24_000_000;
const REFERENCE_SETTLED: f64 = 0.02;
/// Seed of answers.
const ANSWER: u64 = 1;
/// Seed of references.
const REFERENCE: u64 = 2;

/// The limits of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Events at most.
    pub events: u64,
    /// Time after which it ends wherever it is. Only queues that still fill get more than a [`LONGER`]th of it.
    pub within: Option<Duration>,
    pub threads: NonZeroUsize,
}

impl Effort {
    /// The effort that `within` buys: a number of events, so that the same network has the same
    /// answer again, and the time itself on machines that are slower than that.
    pub fn within(within: Duration, threads: NonZeroUsize) -> Effort {
        let seconds = within.as_secs_f64() / LONGER as f64;
        Effort { events: (seconds * EVENTS_PER_S) as u64, within: Some(within), threads }
    }

    fn run(&self, trial: &mut Trial<'_>, half_width: f64) {
        let start = Instant::now();
        let is_over = |part: u64| {
            self.within.is_some_and(|within| start.elapsed().as_secs_f64() >= within.as_secs_f64() / part as f64)
        };
        let goal = Goal { events: self.events, half_width };
        trial.run(goal, &|| is_over(LONGER), |replications, advance| on_threads(replications, self.threads, advance));
        if !is_over(LONGER) {
            trial.run_longer(goal, &|| is_over(1), |all, advance| on_threads(all, self.threads, advance));
        }
    }
}

/// Advances all replications.
fn on_threads<'a>(
    replications: &mut [Replication<'a>],
    threads: NonZeroUsize,
    advance: &(dyn Fn(&mut Replication<'a>) + Sync),
) {
    let jobs: Vec<Mutex<&mut Replication<'a>>> = replications.iter_mut().map(Mutex::new).collect();
    let one = |i: usize| {
        // Each is locked once.
        if let Ok(mut replication) = jobs[i].lock() {
            advance(&mut replication);
        }
    };
    pool::map(jobs.len(), threads, one, || ());
}

/// The report of a network. Where the formulas are outside of their bands, the figures are simulated; a network too
/// large for that keeps the formulas' figures with their reasons.
pub fn answer(network: &Network, effort: &Effort) -> Report {
    let report = network.solve();
    if effort.events == 0 {
        return report;
    }
    let Ok(mut trial) = Trial::of(network, &report, ANSWER) else { return report.clone() };
    effort.run(&mut trial, SETTLED);
    trial.complete()
}

/// A random network, answered and judged.
#[derive(Clone, Debug)]
pub struct Judged {
    pub case: Case,
    pub figures: Vec<JudgedFigure>,
    /// Time of the answer.
    pub seconds: f64,
}

/// Answers and judges random networks number 0 to `count - 1` under `seed`, each on one thread. `done` is called after
/// each.
pub fn check(seed: u64, count: u64, within: Duration, threads: NonZeroUsize, done: impl Fn() + Sync) -> Vec<Judged> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    pool::map(count, threads, |number| judged(Case::number(seed, number as u64), within), done)
}

fn judged(case: Case, within: Duration) -> Judged {
    let Ok(network) = Network::new(case.topology.clone()) else {
        return Judged { case, figures: Vec::new(), seconds: 0.0 };
    };
    let start = Instant::now();
    // Without a limit of time, so that the verdict is the same again.
    let effort = Effort { within: None, ..Effort::within(within, NonZeroUsize::MIN) };
    let answered = answer(&network, &effort);
    let seconds = start.elapsed().as_secs_f64();
    let report = network.solve();
    let figures = Trial::whole(&network, &report, REFERENCE + case.number).map(|mut reference| {
        Effort { events: REFERENCE_EVENTS, ..effort }.run(&mut reference, REFERENCE_SETTLED);
        judge(&network, &answered, &reference.figures())
    });
    Judged { case, figures: figures.unwrap_or_default(), seconds }
}
