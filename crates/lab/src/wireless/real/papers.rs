//! The papers' experiments with `remora cp` as their clients and `remora link` as their link-level retransmission.
//!
//! Experiments about the hosts of that time are only [simulated](super::only_simulated).

use std::time::Duration;

use remora_channel::{Config, ErrorModel};
use remora_sim::copy::Direction;
use remora_sim::testbed::{Treatment, paper};

use crate::wireless::cell::{Cell, Label, Measure};
use crate::wireless::experiments::experiment::{Experiment, ExperimentFigure, Origin, Vertical};
use crate::wireless::experiments::tables::{COPIES, FILE, LIMIT, WAYS};
use crate::wireless::job::{Copy, Job, System};

/// The baseline: the client without changes.
const BASELINE: Option<(&str, &str)> = Some(("treatment", Treatment::NoChanges.name()));

pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "block-size",
        about: "blocks of 1 to 8 KiB, nothing else changed, between fast hosts",
        origin: Origin::Papers,
        figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "block", lines: "bad mean" }],
        cells: block_size,
        ..COPIES
    },
    Experiment {
        name: "treatments",
        about: "back-off and link-level retransmission (remora link), between fast hosts",
        cells: treatments,
        ..TREATED
    },
    Experiment {
        name: "two-mobiles",
        about: "two mobiles copy at once between fast hosts, with the papers' clients and Remora's",
        cells: two_mobiles,
        ..TREATED
    },
];

const TREATED: Experiment = Experiment {
    origin: Origin::Papers,
    baseline: BASELINE,
    figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "bad mean", lines: "treatment" }],
    ..COPIES
};

/// The client of a treatment. Blocks are the papers'.
fn system(treatment: Treatment) -> System {
    match treatment {
        Treatment::NoChanges => System::Stock,
        Treatment::Linear => System::Papers,
        Treatment::Retransmit => System::LinkStock,
        Treatment::Both => System::LinkPapers,
    }
}

fn block_size() -> Vec<Cell> {
    let blocks = paper::BLOCKS.map(|block| {
        let size = Label::new("block", format!("{} KiB", block >> 10));
        (size, System::Stock, Some(block))
    });
    table(&blocks, 1)
}

fn treatments() -> Vec<Cell> {
    table(&Treatment::ALL.map(treated), 1)
}

fn two_mobiles() -> Vec<Cell> {
    let ours = |system: System| (Label::new("treatment", system.name()), system, None);
    let papers = [Treatment::NoChanges, Treatment::Both].map(treated);
    table(&[&papers[..], &[System::Adaptive, System::LinkAdaptive].map(ours)].concat(), 2)
}

fn treated(treatment: Treatment) -> (Label, System, Option<u32>) {
    (Label::new("treatment", treatment.name()), system(treatment), Some(remora_sim::testbed::BLOCK))
}

/// One cell for each direction, bad mean and client.
fn table(clients: &[(Label, System, Option<u32>)], mobiles: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in WAYS {
        for mean in paper::BAD_MEANS_MS.map(Duration::from_millis) {
            for (label, system, block) in clients {
                let labels = vec![Label::direction(way), Label::time("bad mean", mean), label.clone()];
                let job = Job::Copy(Copy { block: *block, mobiles, ..copy(*system, way, mean) });
                cells.push(Cell { labels, job, paper: None, limit: LIMIT });
            }
        }
    }
    cells
}

fn copy(system: System, way: Direction, mean: Duration) -> Copy {
    let channel = Config { errors: ErrorModel::bursts(mean), ..Config::default() };
    Copy::new(system, channel, way, FILE)
}
