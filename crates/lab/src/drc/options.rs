//! Settings of `remora lab drc`.

use std::num::NonZeroUsize;

use super::cell::{Cell, Patience};

pub const SEEDS_MAX: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Execution {
    Simulated,
    /// The real server and client on loopback. Runs mostly wait, so many run at a time. Timers and disk run `faster`
    /// times as fast (1 to 50). Above 1, Remora's own client is left out, because its timers cannot be scaled.
    Real {
        faster: f64,
    },
}

#[derive(Clone, Debug)]
pub struct Options {
    pub way: Execution,
    pub first_seed: u64,
    /// 1 to [`SEEDS_MAX`].
    pub seeds: u64,
    /// Vary the fitted parameters, too (virtual time only).
    pub sensitivity: bool,
    /// For virtual time. Results do not depend on it.
    pub threads: NonZeroUsize,
    /// Show a progress bar on a terminal.
    pub bar: bool,
    /// Command line for the report.
    pub command: String,
}

/// Concurrent real runs at the original pace. They mostly sleep.
pub(super) const AT_ONCE: NonZeroUsize = NonZeroUsize::new(32).unwrap();

impl Execution {
    pub(super) fn can_run(self, cell: &Cell) -> bool {
        match self {
            Execution::Simulated => true,
            Execution::Real { faster } => faster == 1.0 || cell.patience != Patience::Remora,
        }
    }

    /// Concurrent runs. Accelerated real runs would disturb one another.
    pub(super) fn at_once(self, threads: NonZeroUsize) -> NonZeroUsize {
        match self {
            Execution::Simulated => threads,
            Execution::Real { faster } => {
                if faster == 1.0 {
                    AT_ONCE
                } else {
                    NonZeroUsize::MIN
                }
            }
        }
    }
}
