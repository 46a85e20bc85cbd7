//! DRC 89's load test and its Example 1: the effect of a duplicate request cache.
//!
//! [`run`] gives a [`DrcReport`]: tables 2 and 3 beside the paper, the same load with today's clients, the
//! sensitivity to each fitted parameter, and Example 1. Runs are [`remora_sim::drc`]'s in virtual time, or use
//! the real server and client on loopback with a slow disk ([`Execution::Real`]). Read `options`, `cell`, `real` and
//! `slow_disk`, `example`, `outcome`, then `tables` and `page`. [`run_plan`] runs what the paper planned
//! (`plan`, `plan_report`).

mod cell;
mod example;
mod options;
mod outcome;
mod page;
mod plan;
mod plan_report;
mod real;
mod slow_disk;
mod tables;

use cell::Cell;
use remora_sim::drc::Outcome;

use super::report::pool;
use super::report::progress::bar;
use super::report::provenance::SeedRun;

pub use cell::{Mode, Paper, Patience, Server};
pub use options::{Execution, Options, SEEDS_MAX};
pub use outcome::{DrcReport, Example, Group, Row};
pub use plan::{Axis, Level, Plan};
pub use plan_report::{PlanOptions, PlanOutcome, PlanReport, PlanRow, run_plan};

/// Runs all cells on one pool.
pub fn run(options: &Options) -> DrcReport {
    let today = cell::today().into_iter().filter(|cell| options.way.can_run(cell)).collect();
    let mut groups = vec![(Group::Tables, cell::tables()), (Group::Today, today)];
    if options.sensitivity && options.way == Execution::Simulated {
        groups.push((Group::Sensitivity, cell::sensitivity()));
    }
    let seeds: Vec<u64> = (0..options.seeds.clamp(1, SEEDS_MAX)).map(|n| options.first_seed.wrapping_add(n)).collect();
    let runs: Vec<(&Cell, u64)> = groups
        .iter()
        .flat_map(|(_, cells)| cells)
        .flat_map(|cell| seeds.iter().map(move |seed| (cell, *seed)))
        .collect();
    let bar = bar(runs.len() as u64, "runs", options.bar);
    let work = |n: usize| runs.get(n).map(|(cell, seed)| make(options.way, cell, *seed));
    let made: Vec<_> = pool::map(runs.len(), options.way.at_once(options.threads), work, || bar.inc(1))
        .into_iter()
        .flatten()
        .collect();
    bar.finish_and_clear();

    let mut made = made.into_iter();
    let mut rows = Vec::new();
    for (group, cells) in &groups {
        for cell in cells {
            let runs = seeds.iter().copied().zip(made.by_ref().take(seeds.len()));
            rows.push(Row::new(*group, cell, runs.map(|(seed, result)| SeedRun { seed, result }).collect()));
        }
    }
    outcome::compare(&mut rows, options.way == Execution::Simulated);
    DrcReport::new(options, rows, example::all(options.way))
}

fn make(way: Execution, cell: &Cell, seed: u64) -> Result<Outcome, String> {
    match way {
        Execution::Simulated => remora_sim::drc::run(&cell.config(), seed).map_err(|e| e.to_string()),
        Execution::Real { faster } => real::run(&cell.config(), seed, faster).map_err(|e| e.to_string()),
    }
}
