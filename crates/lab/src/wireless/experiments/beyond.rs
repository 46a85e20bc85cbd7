//! What the papers did not measure, in virtual time: longer bursts, independent loss, distance,
//! outages, other rates, hand-offs, small operations, and the link layer they planned.

use std::time::Duration;

use remora_channel::{Config, ErrorModel};

use super::super::cell::{Cell, Label, Measure};
use super::super::job::{Job, Saturation, System};
use super::tables::{self, COPIES, LIMIT};
use super::{Experiment, Figure, Vertical};

pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        about: "bad periods from none to 30 s in the mean: who comes how close to what the channel can carry",
        cells: bursts,
        ..tables::BURSTS
    },
    Experiment { about: "frames lost independently, 0 to 20 %", cells: loss, ..tables::LOSS },
    Experiment {
        about: "round trips of 4 to 600 ms, full duplex, with and without 2 % of frames lost",
        cells: distance,
        ..tables::DISTANCE
    },
    Experiment { cells: || tables::outages(&System::SIMULATED), ..tables::OUTAGES },
    Experiment { cells: || tables::rates(&System::SIMULATED), ..tables::RATES },
    Experiment { cells: || tables::hand_off(&System::SIMULATED, &System::SIMULATED), ..tables::HAND_OFF },
    Experiment { cells: small_operations, ..tables::SMALL_OPERATIONS },
    Experiment {
        name: "saturation",
        about: "the link layer with 8 destinations that all want more: utilisation, and a good one's share",
        measures: &[Measure::Utilisation, Measure::GoodShare],
        figures: &[Figure { y: Vertical::Linear(Measure::Utilisation), x: "bad mean", lines: "destinations" }],
        cells: saturation,
        ..COPIES
    },
];

/// Where the channel is bad for 5 s and more in the mean, the floor comes close to the usual
/// limit or is beyond it; virtual time is cheap.
const LONG: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3000));

fn bursts() -> Vec<Cell> {
    tables::bursts(&System::SIMULATED, &[0, 40, 80, 120, 160, 500, 1000, 5000, 30_000], LONG)
}

fn loss() -> Vec<Cell> {
    tables::loss(&System::SIMULATED, &[0, 1, 2, 5, 10, 20])
}

fn distance() -> Vec<Cell> {
    let of_loss = |percent| [4, 20, 60, 150, 300, 600].map(|ms| (percent, ms));
    tables::distance(&System::SIMULATED, [of_loss(0), of_loss(2)].as_flattened())
}

fn small_operations() -> Vec<Cell> {
    [false, true].map(|second_client| tables::small_operations(&System::SIMULATED, second_client)).concat()
}

fn saturation() -> Vec<Cell> {
    let mut cells = Vec::new();
    for one_good in [false, true] {
        for mean in [40, 160, 500].map(Duration::from_millis) {
            let labels = vec![
                Label::new("destinations", if one_good { "7 bad, 1 good" } else { "8 bad" }),
                Label::time("bad mean", mean),
            ];
            let channel = Config { errors: ErrorModel::bursts(mean), ..Config::default() };
            let length = Duration::from_secs(120);
            let job = Saturation { destinations: 8, channel, one_good, length };
            cells.push(Cell { labels, job: Job::Saturation(job), paper: None, limit: LIMIT });
        }
    }
    cells
}
