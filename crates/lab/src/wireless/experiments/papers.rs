//! The experiments of NFS/W 95 and NFS/W 97, on `remora_sim`'s model of their testbed.

use std::time::Duration;

use remora_sim::copy::Direction;
use remora_sim::testbed::{self, Treatment, paper};

use super::experiment::{Experiment, ExperimentFigure, Origin, SEEDS, Vertical};
use crate::wireless::cell::{Cell, Label, Measure, Paper};
use crate::wireless::job::{Job, Testbed};

pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "block-size",
        about: "blocks of 1 to 8 KiB, nothing else changed (NFS/W 95 figure 4, NFS/W 97 figures 3 and 4)",
        origin: Origin::Papers,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "block", lines: "bad mean" }],
        single: false,
        seeds: SEEDS,
        cells: block_size,
    },
    Experiment {
        name: "treatments",
        about: "back-off and link-level retransmission (NFS/W 95 tables 1 to 6, NFS/W 97 figures 5 and 6)",
        origin: Origin::Papers,
        measures: &[Measure::Seconds],
        baseline: Some(("treatment", "no changes")),
        figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "bad mean", lines: "treatment" }],
        single: false,
        seeds: SEEDS,
        cells: treatments,
    },
    Experiment {
        name: "zero-errors",
        about: "the testbed without errors (NFS/W 95 table 7)",
        origin: Origin::Papers,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[],
        single: false,
        seeds: SEEDS,
        cells: zero_errors,
    },
    Experiment {
        name: "two-mobiles",
        about: "two mobiles copy at once (NFS/W 95 tables 8 and 9, NFS/W 97 figures 7 and 8)",
        origin: Origin::Papers,
        measures: &[Measure::Seconds],
        baseline: Some(("treatment", "no changes")),
        figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "bad mean", lines: "treatment" }],
        single: false,
        seeds: TWO_MOBILES_SEEDS,
        cells: two_mobiles,
    },
    Experiment {
        name: "packets",
        about: "packet numbers over time, with and without the changes (NFS/W 97 figure 9)",
        origin: Origin::Papers,
        measures: &[Measure::Seconds],
        baseline: None,
        figures: &[ExperimentFigure { y: Vertical::Packets, x: "", lines: "treatment" }],
        single: true,
        seeds: 1,
        cells: packets,
    },
];

/// Exponential back-off varies widely here: ten seeds give 27 %, a thousand give 38 %.
const TWO_MOBILES_SEEDS: u64 = 40;
const FILE_KIB: f64 = 1024.0;
/// The papers' runs were stopped and repeated beyond this.
const LIMIT: Duration = Duration::from_secs(300);
const WAYS: [Direction; 2] = [Direction::Read, Direction::Write];

fn cell(labels: Vec<Label>, testbed: Testbed) -> Cell {
    let paper = paper(&testbed);
    Cell { labels, job: Job::Testbed(testbed), paper, limit: LIMIT }
}

/// The papers' value: a table's cell, or a figure's throughput.
fn paper(testbed: &Testbed) -> Option<Paper> {
    let ms = testbed.bad_mean.as_millis();
    let is_it = |c: &&paper::Cell| {
        (c.treatment, c.direction, c.mobiles) == (testbed.treatment, testbed.direction, testbed.mobiles)
            && u128::from(c.bad_mean_ms) == ms
    };
    if testbed.block != testbed::BLOCK {
        return None;
    }
    let of_table = paper::CELLS.iter().find(is_it).map(|c| Paper {
        min: Some(c.seconds.min),
        mean: c.seconds.avg,
        max: Some(c.seconds.max),
        place: format!("NFS/W 95 table {}", c.table),
    });
    of_table.or_else(|| {
        let [without, with] = paper::READ_AT_160_MS;
        let throughput = match (testbed.treatment, testbed.direction, testbed.packets) {
            (Treatment::NoChanges, Direction::Read, true) => without,
            (Treatment::Both, Direction::Read, true) => with,
            _ => return None,
        };
        let place = format!("NFS/W 97 figure 9: {throughput} KB/s");
        Some(Paper { min: None, mean: FILE_KIB / throughput, max: None, place })
    })
}

fn on_testbed(treatment: Treatment, direction: Direction, bad_mean: Duration) -> Testbed {
    Testbed { treatment, direction, bad_mean, block: testbed::BLOCK, mobiles: 1, packets: false }
}

fn block_size() -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in WAYS {
        for mean in paper::BAD_MEANS_MS.map(Duration::from_millis) {
            for block in paper::BLOCKS {
                let size = format!("{} KiB", block >> 10);
                let labels = vec![Label::direction(way), Label::time("bad mean", mean), Label::new("block", size)];
                cells.push(cell(labels, Testbed { block, ..on_testbed(Treatment::NoChanges, way, mean) }));
            }
        }
    }
    cells
}

fn treatments() -> Vec<Cell> {
    by_treatment(&Treatment::ALL, 1)
}

fn two_mobiles() -> Vec<Cell> {
    by_treatment(&[Treatment::NoChanges, Treatment::Both], 2)
}

fn by_treatment(treatments: &[Treatment], mobiles: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in WAYS {
        for mean in paper::BAD_MEANS_MS.map(Duration::from_millis) {
            for &treatment in treatments {
                let labels = vec![
                    Label::direction(way),
                    Label::time("bad mean", mean),
                    Label::new("treatment", treatment.name()),
                ];
                cells.push(cell(labels, Testbed { mobiles, ..on_testbed(treatment, way, mean) }));
            }
        }
    }
    cells
}

fn zero_errors() -> Vec<Cell> {
    WAYS.map(|way| cell(vec![Label::direction(way)], on_testbed(Treatment::NoChanges, way, Duration::ZERO))).into()
}

fn packets() -> Vec<Cell> {
    let run = |(treatment, way): (Treatment, Direction)| {
        let labels = vec![Label::direction(way), Label::new("treatment", treatment.name())];
        cell(labels, Testbed { packets: true, ..on_testbed(treatment, way, Duration::from_millis(160)) })
    };
    let mut cells = Vec::new();
    for way in WAYS {
        cells.extend([Treatment::NoChanges, Treatment::Both].map(|t| run((t, way))));
    }
    cells
}
