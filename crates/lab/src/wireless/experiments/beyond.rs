//! Experiments beyond the papers in virtual time.
//!
//! Longer bursts, independent loss, distance, outages, other rates, hand-offs, small operations, and the link
//! layer that the papers planned.

use std::time::Duration;

use super::experiment::Experiment;
use super::tables::{self, BAD_MEANS_MS, LongRuns};
use crate::wireless::cell::Cell;
use crate::wireless::job::System;

pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        about: "mean bad periods of 0 to 30 s: time over the floor of each system",
        cells: bursts,
        ..tables::BURSTS
    },
    Experiment { about: "independent loss of 0 to 20 % of frames", cells: loss, ..tables::LOSS },
    Experiment {
        about: "round-trip times of 4 to 600 ms, full duplex, with and without 2 % loss",
        cells: distance,
        ..tables::DISTANCE
    },
    Experiment { cells: || tables::outages(&System::SIMULATED), ..tables::OUTAGES },
    Experiment { cells: || tables::rates(&System::SIMULATED), ..tables::RATES },
    Experiment { cells: || tables::hand_off(&System::SIMULATED, &System::SIMULATED), ..tables::HAND_OFF },
    Experiment { cells: small_operations, ..tables::SMALL_OPERATIONS },
    Experiment { cells: || tables::saturation(SATURATION), ..tables::SATURATION },
    Experiment {
        name: "fast-mobiles",
        about: "1 to 32 mobiles copy at once between fast hosts",
        cells: || tables::mobiles(&[1, 2, 4, 8, 16, 32], LONG.limit),
        ..tables::MOBILES
    },
];

/// With mean bad periods of 5 s and more the floor is near the usual limit or above it.
const LONG: LongRuns = LongRuns { bad_mean_min: Duration::from_secs(5), limit: Duration::from_secs(3000) };

const SATURATION: Duration = Duration::from_secs(120);

fn bursts() -> Vec<Cell> {
    tables::bursts(&System::SIMULATED, &BAD_MEANS_MS, LONG)
}

fn loss() -> Vec<Cell> {
    tables::loss(&System::SIMULATED, &[0, 1, 2, 5, 10, 20])
}

fn distance() -> Vec<Cell> {
    tables::distance(&System::SIMULATED, &tables::distances())
}

fn small_operations() -> Vec<Cell> {
    [false, true].map(|second_client| tables::small_operations(&System::SIMULATED, second_client)).concat()
}
