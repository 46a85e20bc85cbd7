//! The replications of a network, advanced in rounds of twice the length.

use std::collections::BTreeMap;

use remora_model::{Network, Report};

use super::super::run::TooMuch;
use super::super::selection::{Selection, Wanted};
use super::completion::{complete, is_settled};
use super::figures::{Figures, Reports};
use super::replication::{REPLICATIONS, Replication, Seed};

/// Rounds: the first one takes a sixteenth of the events, each of the others as many as all before.
const ROUNDS: u32 = 5;

/// A trial whose queues still fill may use this multiple of its events and of its time.
pub const LONGER: u64 = 4;

/// The end of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// Events at most.
    pub events: u64,
    /// Half-width of the intervals, as a share of the figures.
    pub half_width: f64,
}

/// The part of a network that wanted figures depend on, in several replications.
pub struct Trial<'a> {
    network: &'a Network,
    reports: Reports<'a>,
    wanted: Wanted,
    /// The simulated rates of flows that are raised.
    raised: BTreeMap<usize, f64>,
    replications: Vec<Replication<'a>>,
}

impl<'a> Trial<'a> {
    /// A trial for what `report`, by formulas, does not answer.
    pub fn of(network: &'a Network, report: &'a Report, seed: u64) -> Result<Trial<'a>, TooMuch> {
        let wanted = Wanted::of(report);
        let selection = Selection::of(network, &wanted).with_rare_flows(network, report, &wanted);
        Trial::new(network, report, wanted, selection, seed)
    }

    /// A trial for every figure, of the whole network.
    pub fn whole(network: &'a Network, report: &'a Report, seed: u64) -> Result<Trial<'a>, TooMuch> {
        Trial::new(network, report, Wanted::all(network), Selection::all(network), seed)
    }

    fn new(
        network: &'a Network,
        report: &'a Report,
        wanted: Wanted,
        mut selection: Selection,
        seed: u64,
    ) -> Result<Trial<'a>, TooMuch> {
        let reports = Reports::of(network, report);
        for (is_simulated, endless) in selection.copies.iter_mut().zip(&reports.endless) {
            *is_simulated &= !endless;
        }
        let count = if wanted.is_empty() { 0 } else { REPLICATIONS };
        let one = |number| Replication::new(network, &selection, Seed { base: seed, number });
        let replications = (0..count).map(one).collect::<Result<_, _>>()?;
        Ok(Trial { network, reports, wanted, raised: selection.rates, replications })
    }

    /// Runs until all wanted figures are known well enough, the events are used, or `expired` says
    /// that there is no time left. `each` advances the replications, in any order.
    pub fn run(
        &mut self,
        goal: Goal,
        expired: &(dyn Fn() -> bool + Sync),
        each: impl Fn(&mut [Replication<'a>], &(dyn Fn(&mut Replication<'a>) + Sync)),
    ) {
        let all = goal.events / REPLICATIONS;
        let mut used = 0;
        for round in 0..ROUNDS {
            let share = all >> (ROUNDS - 1 - round);
            each(&mut self.replications, &|replication| replication.advance(share - used, expired));
            used = share;
            if self.replications.is_empty() || expired() || is_settled(&self.wanted, &self.figures(), goal.half_width) {
                return;
            }
        }
    }

    /// Goes on behind [`Trial::run`] while queues still fill, up to [`LONGER`] times its events.
    pub fn run_longer(
        &mut self,
        goal: Goal,
        expired: &(dyn Fn() -> bool + Sync),
        each: impl Fn(&mut [Replication<'a>], &(dyn Fn(&mut Replication<'a>) + Sync)),
    ) {
        let mut used = goal.events / REPLICATIONS;
        while used < goal.events / REPLICATIONS * LONGER && !expired() && self.figures().are_short(&self.wanted) {
            each(&mut self.replications, &|replication| replication.advance(used, expired));
            used *= 2;
        }
    }

    pub fn figures(&self) -> Figures<'_> {
        Figures::of(self.network, &self.reports, &self.replications, &self.raised)
    }

    /// The report with the figures of the trial.
    pub fn complete(&self) -> Report {
        if self.replications.is_empty() {
            return self.reports.all.clone();
        }
        complete(self.network, self.reports.all, &self.wanted, &self.figures())
    }

    pub fn events(&self) -> u64 {
        self.replications.iter().map(Replication::events).sum()
    }
}
