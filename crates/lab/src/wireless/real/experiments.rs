//! Experiments in real time beyond the [papers'](super::papers), and those that need real systems.

use std::time::Duration;

use remora_channel::{Config, ErrorModel};

use super::papers;
use crate::wireless::cell::{Cell, Label, Measure};
use crate::wireless::experiments::experiment::{Experiment, ExperimentFigure, Vertical};
use crate::wireless::experiments::tables::{self, BAD_MEANS_MS, COPIES, FILE, LIMIT, LongRuns, WAYS};
use crate::wireless::job::{Job, System, Tcp};

static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        about: "mean bad periods of 0 to 30 s: time over the floor of each system",
        cells: || tables::bursts(&System::REAL, &BAD_MEANS_MS, LONG),
        ..tables::BURSTS
    },
    Experiment {
        about: "independent loss of 1 to 20 % of frames; Remora's client also over UDP, as in the simulator",
        cells: || tables::loss(&[&System::REAL[..], &[System::OverUdp]].concat(), &[1, 2, 5, 10, 20]),
        ..tables::LOSS
    },
    Experiment {
        about: "round-trip times of 4 to 600 ms, full duplex, with and without 2 % loss",
        cells: || tables::distance(&System::REAL, &tables::distances()),
        ..tables::DISTANCE
    },
    Experiment { cells: || tables::outages(&System::REAL), ..tables::OUTAGES },
    Experiment {
        cells: || tables::small_operations(&[System::Adaptive, System::LinkAdaptive, System::Linux], true),
        ..tables::SMALL_OPERATIONS
    },
    Experiment {
        name: "tcp",
        about: "a TCP stream (CUBIC), alone and through the link layer: its share of the capacity",
        measures: &[Measure::CapacityShare],
        figures: &[ExperimentFigure { y: Vertical::Linear(Measure::CapacityShare), x: "channel", lines: "link" }],
        cells: tcp,
        ..COPIES
    },
    Experiment {
        name: "check",
        about: "256 KiB, bad mean 80 ms, by every system: a check of the installation",
        cells: || tables::with(tables::bursts(&System::REAL, &[80], LONG), |copy| copy.bytes = FILE / 4),
        ..COPIES
    },
    Experiment {
        name: "transports",
        about: "Remora's client over UDP, over TCP, and over UDP through the link layer",
        cells: || tables::bursts(&TRANSPORTS, &[0, 40, 80, 120, 160, 500], LONG),
        ..tables::BURSTS
    },
    Experiment { cells: || tables::rates(&System::REAL), ..tables::RATES },
    Experiment {
        // Other systems ignore announcements.
        cells: || tables::hand_off(&System::REAL, &[System::Adaptive, System::LinkAdaptive]),
        ..tables::HAND_OFF
    },
    Experiment { cells: || tables::saturation(SATURATION), ..tables::SATURATION },
    Experiment {
        name: "mobiles",
        about: "1 to 8 mobiles copy at once between fast hosts",
        cells: || tables::mobiles(&[1, 2, 4, 8], LIMIT),
        ..tables::MOBILES
    },
];

/// With mean bad periods of 5 s and more the floor is minutes; runs may take this long.
const LONG: LongRuns = LongRuns { bad_mean_min: Duration::from_secs(5), limit: Duration::from_secs(900) };
const SATURATION: Duration = Duration::from_secs(30);
/// Length of a TCP stream's measurement.
const STREAM: Duration = Duration::from_secs(30);

const TRANSPORTS: [System; 3] = [System::OverUdp, System::OverTcp, System::LinkOverUdp];

pub fn all() -> Vec<&'static Experiment> {
    papers::EXPERIMENTS.iter().chain(EXPERIMENTS).collect()
}

/// Whether an experiment exists in virtual time only.
pub fn only_simulated(name: &str) -> bool {
    all().iter().all(|e| e.name != name) && crate::wireless::experiments::all().iter().any(|e| e.name == name)
}

/// The named experiments in table order; all if `names` is empty. An unknown name is the error.
pub fn named(names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    crate::wireless::experiments::named_of(all(), names)
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
    fn real_tables_are_rectangular_without_duplicates() {
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
        assert_eq!(named(&["zero-errors".into()]).err(), Some("zero-errors".to_owned()));
        for (name, only) in
            [("zero-errors", true), ("packets", true), ("mobiles", false), ("treatments", false), ("frobnicate", false)]
        {
            assert_eq!(only_simulated(name), only, "{name}");
        }
    }
}
