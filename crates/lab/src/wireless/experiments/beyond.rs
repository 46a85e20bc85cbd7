//! What the papers did not measure: longer bursts, independent loss, distance, outages, other
//! rates, hand-offs, small operations, and the link layer they planned.

use std::time::Duration;

use remora_base::{Rate, Time};
use remora_channel::{Config, Duplex, ErrorModel, Outage};
use remora_sim::copy::Direction;

use super::super::cell::{Cell, Label, Measure};
use super::super::job::{Copy, HandOff, Job, Saturation, SmallOperations, System};
use super::{Experiment, Figure, Origin, Vertical};

pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "bursts",
        about: "bad periods from none to 30 s in the mean: who comes how close to what the channel can carry",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "bad mean", lines: "system" }],
        single: false,
        cells: bursts,
    },
    Experiment {
        name: "loss",
        about: "frames lost independently, 0 to 20 %",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "loss", lines: "system" }],
        single: false,
        cells: loss,
    },
    Experiment {
        name: "distance",
        about: "round trips of 4 to 600 ms, full duplex, with and without 2 % of frames lost",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "round trip", lines: "system" }],
        single: false,
        cells: distance,
    },
    Experiment {
        name: "outages",
        about: "10 s and 30 s of nothing in mid-copy: in all, and until bytes flow again",
        origin: Origin::Beyond,
        measures: &[Measure::Resume, Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Logarithmic(Measure::Resume), x: "outage", lines: "system" }],
        single: false,
        cells: outages,
    },
    Experiment {
        name: "rates",
        about: "64 kbit/s to 100 Mbit/s, bad mean 80 ms; the file grows with the rate, up to 16 MiB",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "rate", lines: "system" }],
        single: false,
        cells: rates,
    },
    Experiment {
        name: "handoff",
        about: "a cell switch of 1 s in mid-copy, which the link announces or does not",
        origin: Origin::Beyond,
        measures: &[Measure::Resume, Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Logarithmic(Measure::Resume), x: "signal", lines: "system" }],
        single: false,
        cells: hand_off,
    },
    Experiment {
        name: "small-operations",
        about: "creating and writing files of 100 bytes while 1 MiB is written: their latency",
        origin: Origin::Beyond,
        measures: &[Measure::Latency95, Measure::LatencyMedian, Measure::LatencyMax],
        baseline: None,
        figures: &[Figure { y: Vertical::Logarithmic(Measure::Latency95), x: "bad mean", lines: "system" }],
        single: false,
        cells: small_operations,
    },
    Experiment {
        name: "saturation",
        about: "the link layer with 8 destinations that all want more: utilisation, and a good one's share",
        origin: Origin::Beyond,
        measures: &[Measure::Utilisation, Measure::GoodShare],
        baseline: None,
        figures: &[Figure { y: Vertical::Linear(Measure::Utilisation), x: "bad mean", lines: "destinations" }],
        single: false,
        cells: saturation,
    },
];

/// What is copied at 1 Mbit/s, as in the papers.
const FILE: u64 = 1 << 20;
/// When an outage begins: a copy at 1 Mbit/s takes twice as long at least.
const MID_COPY: Time = Time::from_secs(4);
/// The largest file of `rates`.
const FILE_MAX: u64 = 16 << 20;
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(300);
/// How long it may take where the channel is bad for 5 s and more in the mean: there the floor
/// itself comes close to [`LIMIT`] or is beyond it.
const LIMIT_LONG: Duration = Duration::from_secs(3000);

const WAYS: [Direction; 2] = [Direction::Read, Direction::Write];

/// A copy's cell; `labels` are those between the direction's and the system's.
fn copy(system: System, direction: Direction, channel: Config, labels: Vec<Label>) -> Cell {
    let mut all = vec![Label::direction(direction)];
    all.extend(labels);
    all.push(Label::new("system", system.name()));
    let copy = Copy { system, channel, direction, bytes: FILE, hand_offs: Vec::new() };
    Cell { labels: all, job: Job::Copy(copy), paper: None, limit: LIMIT }
}

/// A cell for each way and system, in this order: way, `levels`, system.
fn copies<L: Clone>(levels: &[L], cell: impl Fn(System, Direction, L) -> Cell) -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in WAYS {
        for level in levels {
            cells.extend(System::ALL.map(|system| cell(system, way, level.clone())));
        }
    }
    cells
}

fn bursts() -> Vec<Cell> {
    let means = [0, 40, 80, 120, 160, 500, 1000, 5000, 30_000].map(Duration::from_millis);
    copies(&means, |system, way, mean| {
        let channel = Config { errors: ErrorModel::bursts(mean), ..Config::default() };
        let limit = if mean < Duration::from_secs(5) { LIMIT } else { LIMIT_LONG };
        Cell { limit, ..copy(system, way, channel, vec![Label::time("bad mean", mean)]) }
    })
}

fn loss() -> Vec<Cell> {
    copies(&[0, 1, 2, 5, 10, 20], |system, way, percent| {
        let channel = Config { loss: f64::from(percent) / 100.0, ..Config::default() };
        copy(system, way, channel, vec![Label::new("loss", format!("{percent} %"))])
    })
}

fn distance() -> Vec<Cell> {
    let mut levels = Vec::new();
    for percent in [0, 2] {
        levels.extend([4, 20, 60, 150, 300, 600].map(|ms| (percent, Duration::from_millis(ms))));
    }
    copies(&levels, |system, way, (percent, round_trip)| {
        let loss = f64::from(percent) / 100.0;
        let channel = Config { duplex: Duplex::Full, delay: round_trip / 2, loss, ..Config::default() };
        let labels = vec![Label::new("loss", format!("{percent} %")), Label::time("round trip", round_trip)];
        copy(system, way, channel, labels)
    })
}

fn outages() -> Vec<Cell> {
    copies(&[10, 30].map(Duration::from_secs), |system, way, length| {
        let channel = Config { outages: vec![Outage { start: MID_COPY, length }], ..Config::default() };
        copy(system, way, channel, vec![Label::time("outage", length)])
    })
}

fn rates() -> Vec<Cell> {
    let rates =
        [(64, "64 kbit/s"), (256, "256 kbit/s"), (1000, "1 Mbit/s"), (10_000, "10 Mbit/s"), (100_000, "100 Mbit/s")];
    copies(&rates, |system, way, (kbit, name)| {
        let rate = Rate::from_bits(kbit * 1000).unwrap_or(Rate::mbit(1));
        let channel = Config { rate, errors: ErrorModel::bursts(Duration::from_millis(80)), ..Config::default() };
        let mut cell = copy(system, way, channel, vec![Label::new("rate", name)]);
        if let Job::Copy(copy) = &mut cell.job {
            copy.bytes = (FILE * kbit / 1000).min(FILE_MAX); // some 9 s of the channel's time, or less
        }
        cell
    })
}

fn hand_off() -> Vec<Cell> {
    copies(&[false, true], |system, way, announced| {
        let signal = if announced { "announced" } else { "not announced" };
        let mut cell = copy(system, way, Config::default(), vec![Label::new("signal", signal)]);
        if let Job::Copy(copy) = &mut cell.job {
            copy.hand_offs.push(HandOff { at: MID_COPY, length: Duration::from_secs(1), announced });
        }
        cell
    })
}

fn small_operations() -> Vec<Cell> {
    let mut cells = Vec::new();
    for second_client in [false, true] {
        for mean in [0, 80, 160].map(Duration::from_millis) {
            for system in System::ALL {
                let labels = vec![
                    Label::new("asked by", if second_client { "a second client" } else { "the same client" }),
                    Label::time("bad mean", mean),
                    Label::new("system", system.name()),
                ];
                let channel = Config { errors: ErrorModel::bursts(mean), ..Config::default() };
                let job = SmallOperations { system, channel, bytes: FILE, second_client };
                cells.push(Cell { labels, job: Job::SmallOperations(job), paper: None, limit: LIMIT });
            }
        }
    }
    cells
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
