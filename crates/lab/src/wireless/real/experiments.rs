//! The experiments that are made in real time: those beyond the papers, on fewer settings,
//! because a second takes a second.

use std::time::Duration;

use remora_base::Time;
use remora_channel::{Config, Duplex, ErrorModel, Outage};
use remora_sim::copy::Direction;

use super::super::cell::{Cell, Label, Measure};
use super::super::experiments::{Experiment, Figure, Origin, Vertical};
use super::super::job::{Copy, Job, SmallOperations, System, Tcp};

static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "bursts",
        about: "bad periods of 0 to 500 ms in the mean: who comes how close to what the channel can carry",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "bad mean", lines: "system" }],
        single: false,
        cells: bursts,
    },
    Experiment {
        name: "loss",
        about: "10 % of frames lost independently",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "loss", lines: "system" }],
        single: false,
        cells: loss,
    },
    Experiment {
        name: "distance",
        about: "a round trip of 600 ms, full duplex",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "round trip", lines: "system" }],
        single: false,
        cells: distance,
    },
    Experiment {
        name: "outages",
        about: "10 s and 30 s of nothing in mid-copy: until bytes flow again, and in all",
        origin: Origin::Beyond,
        measures: &[Measure::Resume, Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Logarithmic(Measure::Resume), x: "outage", lines: "system" }],
        single: false,
        cells: outages,
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
        name: "tcp",
        about: "a stream of TCP (CUBIC), by itself and through the link layer: what it gets of the channel",
        origin: Origin::Beyond,
        measures: &[Measure::Utilisation],
        baseline: None,
        figures: &[Figure { y: Vertical::Linear(Measure::Utilisation), x: "channel", lines: "link" }],
        single: false,
        cells: tcp,
    },
    Experiment {
        name: "check",
        about: "256 KiB, bad mean 80 ms, by every system: whether all is in place",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[],
        single: false,
        cells: check,
    },
    Experiment {
        name: "transports",
        about: "Remora's client told to use UDP, or TCP, and UDP through the link layer",
        origin: Origin::Beyond,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[Figure { y: Vertical::Ratio, x: "bad mean", lines: "system" }],
        single: false,
        cells: transports,
    },
];

/// What is copied.
const FILE: u64 = 1 << 20;
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(300);
/// When an outage begins.
const MID_COPY: Time = Time::from_secs(4);
/// For how long a stream of TCP is watched.
const STREAM: Duration = Duration::from_secs(30);

const WAYS: [Direction; 2] = [Direction::Read, Direction::Write];
/// Ours first; others that are not here are left out.
const SYSTEMS: [System; 6] =
    [System::Adaptive, System::LinkAdaptive, System::Linux, System::Libnfs, System::Scp, System::Rsync];

/// All experiments in real time.
pub fn all() -> Vec<&'static Experiment> {
    EXPERIMENTS.iter().collect()
}

/// The experiments of these names in the table's order, all if there are none; the first name
/// that is none is the error.
pub fn named(names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    super::super::experiments::named_of(all(), names)
}

/// A cell for each way and system.
fn copies(systems: &[System], label: &Label, channel: &Config) -> Vec<Cell> {
    let cell = |direction, system: System| Cell {
        labels: vec![Label::direction(direction), label.clone(), Label::new("system", system.name())],
        job: Job::Copy(Copy { system, channel: channel.clone(), direction, bytes: FILE, hand_offs: Vec::new() }),
        paper: None,
        limit: LIMIT,
    };
    WAYS.iter().flat_map(|way| systems.iter().map(|system| cell(*way, *system))).collect()
}

fn in_bursts(systems: &[System]) -> Vec<Cell> {
    let of_mean = |ms| {
        let mean = Duration::from_millis(ms);
        let channel = Config { errors: ErrorModel::bursts(mean), ..Config::default() };
        copies(systems, &Label::time("bad mean", mean), &channel)
    };
    let mut cells: Vec<Cell> = [0, 40, 80, 120, 160, 500].into_iter().flat_map(of_mean).collect();
    // Stable: reads first, by bad mean as they are.
    cells.sort_by_key(|c| c.level("direction") != Some("read"));
    cells
}

fn bursts() -> Vec<Cell> {
    in_bursts(&SYSTEMS)
}

fn transports() -> Vec<Cell> {
    in_bursts(&[System::OverUdp, System::OverTcp, System::LinkOverUdp])
}

fn check() -> Vec<Cell> {
    let mean = Duration::from_millis(80);
    let channel = Config { errors: ErrorModel::bursts(mean), ..Config::default() };
    let mut cells = copies(&SYSTEMS, &Label::time("bad mean", mean), &channel);
    for cell in &mut cells {
        if let Job::Copy(copy) = &mut cell.job {
            copy.bytes = FILE / 4;
        }
    }
    cells
}

fn loss() -> Vec<Cell> {
    copies(&SYSTEMS, &Label::new("loss", "10 %"), &Config { loss: 0.1, ..Config::default() })
}

fn distance() -> Vec<Cell> {
    let round_trip = Duration::from_millis(600);
    let channel = Config { duplex: Duplex::Full, delay: round_trip / 2, ..Config::default() };
    copies(&SYSTEMS, &Label::time("round trip", round_trip), &channel)
}

fn outages() -> Vec<Cell> {
    let of_length = |secs| {
        let length = Duration::from_secs(secs);
        let channel = Config { outages: vec![Outage { start: MID_COPY, length }], ..Config::default() };
        copies(&SYSTEMS, &Label::time("outage", length), &channel)
    };
    [10, 30].into_iter().flat_map(of_length).collect()
}

fn small_operations() -> Vec<Cell> {
    let mut cells = Vec::new();
    for mean in [0, 80, 160].map(Duration::from_millis) {
        for system in [System::Adaptive, System::LinkAdaptive, System::Linux] {
            let labels = vec![Label::time("bad mean", mean), Label::new("system", system.name())];
            let channel = Config { errors: ErrorModel::bursts(mean), ..Config::default() };
            let job = SmallOperations { system, channel, bytes: FILE, second_client: true };
            cells.push(Cell { labels, job: Job::SmallOperations(job), paper: None, limit: LIMIT });
        }
    }
    cells
}

fn tcp() -> Vec<Cell> {
    let bad = ErrorModel::bursts(Duration::from_millis(160));
    let channels = [
        ("no errors", Config::default()),
        ("10 % loss", Config { loss: 0.1, ..Config::default() }),
        ("bad mean 160 ms", Config { errors: bad, ..Config::default() }),
    ];
    let mut cells = Vec::new();
    for direction in WAYS {
        for (name, channel) in &channels {
            for link in [false, true] {
                let labels = vec![
                    Label::direction(direction),
                    Label::new("channel", *name),
                    Label::new("link", if link { "with link" } else { "without" }),
                ];
                let job = Tcp { link, channel: channel.clone(), direction, length: STREAM };
                cells.push(Cell { labels, job: Job::Tcp(job), paper: None, limit: LIMIT });
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tables_are_rectangular_and_have_no_cell_twice() {
        for experiment in all() {
            let cells = (experiment.cells)();
            let axes = |c: &Cell| c.labels.iter().map(|l| l.axis).collect::<Vec<_>>();
            let first = cells.first().map(axes).unwrap_or_default();
            assert!(cells.iter().all(|c| axes(c) == first), "{}", experiment.name);
            let places: BTreeSet<String> = cells.iter().map(|c| format!("{:?}", c.labels)).collect();
            assert_eq!(places.len(), cells.len(), "{}: two cells in one place", experiment.name);
            for figure in experiment.figures {
                assert!(first.contains(&figure.lines) && first.contains(&figure.x), "{}", experiment.name);
            }
        }
    }

    #[test]
    fn names_are_found() {
        assert_eq!(named(&["tcp".into()]).map(|e| e.len()), Ok(1));
        assert_eq!(named(&["treatments".into()]).err(), Some("treatments".to_owned()));
    }
}
