use std::num::NonZeroUsize;

use super::cell::{Cell, Patience};

/// The most seeds a cell may be run with.
pub const SEEDS_MAX: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Way {
    Simulated,
    /// With the real server and client on loopback, many runs at a time, which mostly sleep. Time runs
    /// `faster` times as fast, timers and disk alike (range: 1 to 50); at more than 1 without Remora's own
    /// client, whose timers are its own.
    Real {
        faster: f64,
    },
}

#[derive(Clone, Debug)]
pub struct Options {
    pub way: Way,
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
pub(super) const AT_ONCE: NonZeroUsize = NonZeroUsize::new(32).unwrap();

impl Way {
    pub(super) fn can_run(self, cell: &Cell) -> bool {
        match self {
            Way::Simulated => true,
            Way::Real { faster } => faster == 1.0 || cell.patience != Patience::Remora,
        }
    }

    /// Runs at a time. Real ones at a faster pace would disturb one another.
    pub(super) fn at_once(self, threads: NonZeroUsize) -> NonZeroUsize {
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
