//! DRC 89's load test and its Example 1: what a duplicate request cache is for, in figures.
//!
//! [`run`] gives a [`Report`]: tables 2 and 3 beside the paper's figures, the same load with the
//! clients of today, how much each fitted parameter matters, and Example 1 as a timeline. The
//! machines are [`remora_sim::drc`]'s, in virtual time, or the real server on loopback with such a
//! disk under it, and the real client ([`Way::Real`]).

mod cell;
mod outcome;
mod page;
mod plot;
mod real;
mod real_example;
mod slow_disk;
mod tables;
mod timeline;

use std::num::NonZeroUsize;

use remora_sim::drc::Outcome;

use crate::report::pool;
use crate::report::progress::bar;
use crate::report::provenance::SeedRun;
use cell::Cell;

pub use cell::{Mode, Paper, Patience, Server};
pub use outcome::{Example, Group, Report, Row};

/// The most seeds a cell may be run with.
pub const SEEDS_MAX: u64 = 1000;

/// How runs are made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Way {
    /// In virtual time.
    Simulated,
    /// With the real server and client on loopback, many runs at a time, which mostly sleep. Time runs
    /// `faster` times as fast, timers and disk alike (range: 1 to 50); at more than 1 without Remora's own
    /// client, whose timers are its own.
    Real {
        /// How many times.
        faster: f64,
    },
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How.
    pub way: Way,
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds for each cell (1 to [`SEEDS_MAX`]).
    pub seeds: u64,
    /// Whether to vary what was fitted, too (in virtual time only).
    pub sensitivity: bool,
    /// On so many threads, in virtual time; the results do not depend on it.
    pub threads: NonZeroUsize,
    /// Whether to show a progress bar (on a terminal only).
    pub bar: bool,
    /// The command that gives this again, for the report.
    pub command: String,
}

/// Real runs at a time, at the original pace. They mostly sleep.
const AT_ONCE: NonZeroUsize = NonZeroUsize::new(32).unwrap();

impl Way {
    fn can_run(self, cell: &Cell) -> bool {
        match self {
            Way::Simulated => true,
            Way::Real { faster } => faster == 1.0 || cell.patience != Patience::Remora,
        }
    }

    /// Runs at a time. Real ones at a faster pace would disturb one another.
    fn at_once(self, threads: NonZeroUsize) -> NonZeroUsize {
        match self {
            Way::Simulated => threads,
            Way::Real { faster } => {
                if faster == 1.0 {
                    AT_ONCE
                } else {
                    NonZeroUsize::MIN
                }
            }
        }
    }
}

/// Runs everything. All runs are independent: one pool takes them all.
pub fn run(options: &Options) -> Report {
    let today = cell::today().into_iter().filter(|cell| options.way.can_run(cell)).collect();
    let mut groups = vec![(Group::Tables, cell::tables()), (Group::Today, today)];
    if options.sensitivity && options.way == Way::Simulated {
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
    outcome::compare(&mut rows, options.way == Way::Simulated);
    Report::new(options, rows, timeline::all(options.way))
}

fn make(way: Way, cell: &Cell, seed: u64) -> Result<Outcome, String> {
    match way {
        Way::Simulated => remora_sim::drc::run(&cell.config(), seed).map_err(|e| e.to_string()),
        Way::Real { faster } => real::run(&cell.config(), seed, faster).map_err(|e| e.to_string()),
    }
}
