//! Tables used in virtual time and in real time, with other systems and levels.

use std::time::Duration;

use remora_base::{Rate, Time};
use remora_channel::{Config, Duplex, ErrorModel, Outage};
use remora_sim::copy::Direction;

use super::experiment::{Experiment, ExperimentFigure, Origin, SEEDS, Vertical};
use crate::wireless::cell::{Cell, Label, Measure};
use crate::wireless::job::{Copy, HandOff, Job, Saturation, SmallOperations, System, way};

/// File size at 1 Mbit/s, as in the papers.
pub(crate) const FILE: u64 = 1 << 20;
const FILE_MAX: u64 = 16 << 20;
/// Begin of an outage or cell switch; a copy at 1 Mbit/s takes at least twice as long.
const MID_COPY: Time = Time::from_secs(4);
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

pub(crate) const WAYS: [Direction; 2] = [Direction::Read, Direction::Write];

/// Common settings of the experiments beyond the papers.
pub(crate) const COPIES: Experiment = Experiment {
    name: "",
    about: "",
    origin: Origin::Beyond,
    measures: &[Measure::Seconds],
    baseline: None,
    figures: &[],
    seeds: SEEDS,
    cells: Vec::new,
};

pub(crate) const BURSTS: Experiment = Experiment {
    name: "bursts",
    figures: &[ExperimentFigure { y: Vertical::Ratio, x: "bad mean", lines: "system" }],
    ..COPIES
};

pub(crate) const LOSS: Experiment = Experiment {
    name: "loss",
    figures: &[ExperimentFigure { y: Vertical::Ratio, x: "loss", lines: "system" }],
    ..COPIES
};

pub(crate) const DISTANCE: Experiment = Experiment {
    name: "distance",
    figures: &[ExperimentFigure { y: Vertical::Ratio, x: "round trip", lines: "system" }],
    ..COPIES
};

pub(crate) const OUTAGES: Experiment = Experiment {
    name: "outages",
    about: "outages of 10 s and 30 s in mid-copy: time until bytes flow, and total time",
    measures: &[Measure::Resume, Measure::Seconds],
    figures: &[ExperimentFigure { y: Vertical::Logarithmic(Measure::Resume), x: "outage", lines: "system" }],
    ..COPIES
};

pub(crate) const RATES: Experiment = Experiment {
    name: "rates",
    about: "64 kbit/s to 100 Mbit/s, bad mean 80 ms; the file grows with the rate, up to 16 MiB",
    figures: &[ExperimentFigure { y: Vertical::Ratio, x: "rate", lines: "system" }],
    ..COPIES
};

pub(crate) const HAND_OFF: Experiment = Experiment {
    name: "handoff",
    about: "a cell switch of 1 s in mid-copy, announced or not",
    measures: &[Measure::Resume, Measure::Seconds],
    figures: &[ExperimentFigure { y: Vertical::Logarithmic(Measure::Resume), x: "signal", lines: "system" }],
    ..COPIES
};

pub(crate) const SMALL_OPERATIONS: Experiment = Experiment {
    name: "small-operations",
    about: "latency of creating and writing files of 100 bytes while 1 MiB is written",
    measures: &[Measure::Latency95, Measure::LatencyMedian, Measure::LatencyMax],
    figures: &[ExperimentFigure { y: Vertical::Logarithmic(Measure::Latency95), x: "bad mean", lines: "system" }],
    ..COPIES
};

pub(crate) const SATURATION: Experiment = Experiment {
    name: "saturation",
    about: "the link layer with 8 saturated destinations: utilisation, and the share of a good one",
    measures: &[Measure::Utilisation, Measure::GoodShare],
    figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Utilisation), x: "bad mean", lines: "destinations" }],
    ..COPIES
};

pub(crate) const MOBILES: Experiment = Experiment {
    measures: &[Measure::Seconds, Measure::Slowest, Measure::Fairness, Measure::Goodput, Measure::Busy],
    figures: &[
        ExperimentFigure { y: Vertical::Logarithmic(Measure::Seconds), x: "mobiles", lines: "system" },
        ExperimentFigure { y: Vertical::Linear(Measure::Goodput), x: "mobiles", lines: "system" },
        ExperimentFigure { y: Vertical::Linear(Measure::Fairness), x: "mobiles", lines: "system" },
    ],
    ..COPIES
};

/// Mean bad periods of `bursts`, in milliseconds.
pub(crate) const BAD_MEANS_MS: [u64; 9] = [0, 40, 80, 120, 160, 500, 1000, 5000, 30_000];

/// One cell for each direction, level and system. `at` gives a level's channel and labels.
pub(crate) fn copies<L>(systems: &[System], levels: &[L], at: impl Fn(&L) -> (Config, Vec<Label>)) -> Vec<Cell> {
    let mut cells = Vec::new();
    for direction in WAYS {
        for (channel, labels) in levels.iter().map(&at) {
            for system in systems.iter().copied() {
                let mut all = vec![Label::direction(direction)];
                all.extend(labels.iter().cloned());
                all.push(Label::new("system", system.name()));
                let copy = Copy::new(system, channel.clone(), direction, FILE);
                cells.push(Cell { labels: all, job: Job::Copy(copy), paper: None, limit: LIMIT });
            }
        }
    }
    cells
}

pub(crate) fn with(mut cells: Vec<Cell>, change: impl Fn(&mut Copy)) -> Vec<Cell> {
    for cell in &mut cells {
        if let Job::Copy(copy) = &mut cell.job {
            change(copy);
        }
    }
    cells
}

fn in_bursts(mean: Duration) -> Config {
    Config { errors: ErrorModel::bursts(mean), ..Config::default() }
}

/// Cells whose runs may take longer than usual.
#[derive(Clone, Copy)]
pub(crate) struct LongRuns {
    /// Least mean bad period of such cells.
    pub(crate) bad_mean_min: Duration,
    pub(crate) limit: Duration,
}

/// Cells by mean bad period, in milliseconds.
pub(crate) fn bursts(systems: &[System], means_ms: &[u64], long: LongRuns) -> Vec<Cell> {
    let mut cells = Vec::new();
    let of_mean = |ms: &u64| {
        let mean = Duration::from_millis(*ms);
        (in_bursts(mean), vec![Label::time("bad mean", mean)])
    };
    cells.extend(copies(systems, means_ms, of_mean));
    for cell in &mut cells {
        let Job::Copy(Copy { channel, .. }) = &cell.job else { continue };
        let is_long = matches!(channel.errors, ErrorModel::TwoState { bad_mean, .. } if bad_mean >= long.bad_mean_min);
        cell.limit = if is_long { long.limit } else { LIMIT };
    }
    cells
}

/// Cells by number of mobiles that copy at once. Blocks are the papers' where the client's are fixed.
pub(crate) fn mobiles(counts: &[usize], limit: Duration) -> Vec<Cell> {
    const SYSTEMS: [System; 4] = [System::Stock, System::LinkPapers, System::Adaptive, System::LinkAdaptive];
    let levels: Vec<(Duration, usize)> = [0, 80]
        .map(Duration::from_millis)
        .into_iter()
        .flat_map(|mean| counts.iter().map(move |n| (mean, *n)))
        .collect();
    let mut cells = Vec::new();
    for direction in WAYS {
        for (mean, mobiles) in levels.iter().copied() {
            for system in SYSTEMS {
                let labels = vec![
                    Label::direction(direction),
                    Label::time("bad mean", mean),
                    Label::new("mobiles", mobiles.to_string()),
                    Label::new("system", system.name()),
                ];
                let block = matches!(system, System::Stock).then_some(remora_sim::testbed::BLOCK);
                let copy = Copy { mobiles, block, ..Copy::new(system, in_bursts(mean), direction, FILE) };
                cells.push(Cell { labels, job: Job::Copy(copy), paper: None, limit });
            }
        }
    }
    cells
}

/// Losses in percent.
pub(crate) fn loss(systems: &[System], percents: &[u32]) -> Vec<Cell> {
    copies(systems, percents, |percent| {
        let channel = Config { loss: f64::from(*percent) / 100.0, ..Config::default() };
        (channel, vec![Label::new("loss", format!("{percent} %"))])
    })
}

/// Losses in percent and round trips in milliseconds.
pub(crate) fn distance(systems: &[System], levels: &[(u32, u64)]) -> Vec<Cell> {
    copies(systems, levels, |(percent, ms)| {
        let (loss, round_trip) = (f64::from(*percent) / 100.0, Duration::from_millis(*ms));
        let channel = Config { duplex: Duplex::Full, delay: round_trip / 2, loss, ..Config::default() };
        (channel, vec![Label::new("loss", format!("{percent} %")), Label::time("round trip", round_trip)])
    })
}

/// Loss in percent and round-trip time in milliseconds of `distance`.
pub(crate) fn distances() -> Vec<(u32, u64)> {
    [0, 2].into_iter().flat_map(|percent| [4, 20, 60, 150, 300, 600].map(|ms| (percent, ms))).collect()
}

pub(crate) fn outages(systems: &[System]) -> Vec<Cell> {
    copies(systems, &[10, 30].map(Duration::from_secs), |length| {
        let channel = Config { outages: vec![Outage { start: MID_COPY, length: *length }], ..Config::default() };
        (channel, vec![Label::time("outage", *length)])
    })
}

pub(crate) fn rates(systems: &[System]) -> Vec<Cell> {
    let rates =
        [(64, "64 kbit/s"), (256, "256 kbit/s"), (1000, "1 Mbit/s"), (10_000, "10 Mbit/s"), (100_000, "100 Mbit/s")];
    let cells = copies(systems, &rates, |(kbit, name)| {
        let rate = Rate::from_bits(kbit * 1000).unwrap_or(Rate::mbit(1));
        (Config { rate, ..in_bursts(Duration::from_millis(80)) }, vec![Label::new("rate", *name)])
    });
    // At most about 9 s of channel time.
    with(cells, |copy| copy.bytes = (FILE * (copy.channel.rate.bits() / 1000) / 1000).min(FILE_MAX))
}

/// Cell switches, announced or not.
pub(crate) fn hand_off(not_announced: &[System], announced: &[System]) -> Vec<Cell> {
    let of_signal = |systems: &[System], announced: bool| {
        let signal = if announced { "announced" } else { "not announced" };
        let cells = copies(systems, &[signal], |signal| (Config::default(), vec![Label::new("signal", *signal)]));
        let switch = HandOff { at: MID_COPY, length: Duration::from_secs(1), announced };
        with(cells, |copy| copy.hand_offs.push(switch))
    };
    let mut cells = [of_signal(not_announced, false), of_signal(announced, true)].concat();
    // A stable sort: by direction first, as in other tables.
    cells.sort_by_key(|c| WAYS.map(way).iter().position(|w| c.level("direction") == Some(w)));
    cells
}

pub(crate) fn small_operations(systems: &[System], second_client: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for mean in [0, 80, 160].map(Duration::from_millis) {
        for system in systems.iter().copied() {
            let labels = vec![
                Label::new("asked by", if second_client { "a second client" } else { "the same client" }),
                Label::time("bad mean", mean),
                Label::new("system", system.name()),
            ];
            let job = SmallOperations { system, channel: in_bursts(mean), bytes: FILE, second_client };
            cells.push(Cell { labels, job: Job::SmallOperations(job), paper: None, limit: LIMIT });
        }
    }
    cells
}

pub(crate) fn saturation(length: Duration) -> Vec<Cell> {
    let mut cells = Vec::new();
    for one_good in [false, true] {
        for mean in [40, 160, 500].map(Duration::from_millis) {
            let labels = vec![
                Label::new("destinations", if one_good { "7 bad, 1 good" } else { "8 bad" }),
                Label::time("bad mean", mean),
            ];
            let job = Saturation { destinations: 8, channel: in_bursts(mean), one_good, length };
            cells.push(Cell { labels, job: Job::Saturation(job), paper: None, limit: LIMIT });
        }
    }
    cells
}
