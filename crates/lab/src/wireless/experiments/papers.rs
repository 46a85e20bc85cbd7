//! The experiments of NFS/W 95 and NFS/W 97, on `remora_sim`'s model of their testbed.

use std::time::Duration;

use remora_channel::Distribution;
use remora_sim::copy::Direction;
use remora_sim::testbed::{self, Treatment, paper};

use super::experiment::{Experiment, ExperimentFigure, Origin, SEEDS, Vertical};
use crate::wireless::cell::{Cell, Label, Measure, Paper};
use crate::wireless::job::{Job, Testbed, name_of};

pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "block-size",
        about: "blocks of 1 to 8 KiB, nothing else changed (NFS/W 95 figure 4, NFS/W 97 figures 3 and 4)",
        figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "block", lines: "bad mean" }],
        cells: block_size,
        ..ON_TESTBED
    },
    Experiment {
        name: "treatments",
        about: "back-off and link-level retransmission (NFS/W 95 tables 1 to 6, NFS/W 97 figures 5 and 6)",
        cells: treatments,
        ..TREATED
    },
    Experiment {
        name: "zero-errors",
        about: "the testbed without errors (NFS/W 95 table 7)",
        cells: zero_errors,
        ..ON_TESTBED
    },
    Experiment {
        name: "two-mobiles",
        about: "two mobiles copy at once (NFS/W 95 tables 8 and 9, NFS/W 97 figures 7 and 8)",
        seeds: TWO_MOBILES_SEEDS,
        cells: two_mobiles,
        ..TREATED
    },
    Experiment {
        name: "mobiles",
        about: "1 to 32 mobiles copy at once, no changes and both (the larger testbed that NFS/W 97 plans)",
        measures: &[Measure::Seconds, Measure::Slowest, Measure::Fairness, Measure::Goodput, Measure::Busy],
        figures: &[
            ExperimentFigure { y: Vertical::Logarithmic(Measure::Seconds), x: "mobiles", lines: "treatment" },
            ExperimentFigure { y: Vertical::Linear(Measure::Goodput), x: "mobiles", lines: "treatment" },
            ExperimentFigure { y: Vertical::Linear(Measure::Fairness), x: "mobiles", lines: "treatment" },
        ],
        cells: mobiles,
        ..TREATED
    },
    Experiment {
        name: "distributions",
        about: "uniform, fixed and exponential periods of the same means (NFS/W 95 section 3.2)",
        baseline: Some(("distribution", "uniform")),
        figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "bad mean", lines: "distribution" }],
        cells: distributions,
        ..ON_TESTBED
    },
    Experiment {
        name: "overflow",
        about: "receive buffers of several sizes, without errors (NFS/W 95 figure 3)",
        measures: &[Measure::Seconds, Measure::Retransmissions, Measure::Overflows, Measure::Pause],
        figures: &[PACKETS_BY_BUFFER],
        seeds: PACKETS_SEEDS,
        cells: overflow,
        ..ON_TESTBED
    },
    Experiment {
        name: "packets",
        about: "packet numbers over time, no changes and both, at each bad mean (NFS/W 97 figure 9)",
        measures: &[Measure::Seconds, Measure::Retransmissions, Measure::Pause],
        figures: &[ExperimentFigure { y: Vertical::Packets, x: "", lines: "treatment" }],
        seeds: PACKETS_SEEDS,
        cells: packets,
        ..TREATED
    },
];

/// An experiment on the papers' testbed with the default seeds and no figure.
const ON_TESTBED: Experiment = Experiment {
    name: "",
    about: "",
    origin: Origin::Papers,
    measures: &[Measure::Seconds],
    baseline: None,
    figures: &[],
    seeds: SEEDS,
    cells: Vec::new,
};

/// Common settings of experiments that compare treatments.
const TREATED: Experiment = Experiment {
    baseline: Some(("treatment", Treatment::NoChanges.name())),
    figures: &[ExperimentFigure { y: Vertical::Linear(Measure::Seconds), x: "bad mean", lines: "treatment" }],
    ..ON_TESTBED
};

const PACKETS_BY_BUFFER: ExperimentFigure = ExperimentFigure { y: Vertical::Packets, x: "", lines: "receive buffer" };
const PACKETS_SEEDS: u64 = 5;
/// Mobiles of `mobiles`.
const MOBILES: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Mobiles share 1 Mbit/s: 32 files take at least 276 s.
const MOBILES_LIMIT: Duration = Duration::from_secs(3000);
/// Frames of the receive buffers of `overflow`; the last one never fills.
const RECEIVE_FRAMES: [Option<usize>; 5] = [Some(4), Some(6), Some(8), None, Some(100_000)];

/// Exponential back-off varies widely here: ten seeds give 27 %, a thousand give 38 %.
const TWO_MOBILES_SEEDS: u64 = 40;
const FILE_KIB: f64 = 1024.0;
/// The papers' runs were stopped and repeated beyond this.
const LIMIT: Duration = Duration::from_secs(300);
const WAYS: [Direction; 2] = [Direction::Read, Direction::Write];
const NO_CHANGES_AND_BOTH: [Treatment; 2] = [Treatment::NoChanges, Treatment::Both];

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
    let is_the_papers = testbed.distribution == Distribution::Uniform && testbed.receive_frames.is_none();
    if testbed.block != testbed::BLOCK || !is_the_papers {
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
        let throughput = match (testbed.treatment, testbed.direction, testbed.packets && ms == 160) {
            (Treatment::NoChanges, Direction::Read, true) => without,
            (Treatment::Both, Direction::Read, true) => with,
            _ => return None,
        };
        let place = format!("NFS/W 97 figure 9: {throughput} KB/s");
        Some(Paper { min: None, mean: FILE_KIB / throughput, max: None, place })
    })
}

fn on_testbed(treatment: Treatment, direction: Direction, bad_mean: Duration) -> Testbed {
    Testbed {
        treatment,
        direction,
        bad_mean,
        block: testbed::BLOCK,
        mobiles: 1,
        distribution: Distribution::Uniform,
        receive_frames: None,
        packets: false,
    }
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
    by_treatment(&NO_CHANGES_AND_BOTH, 2)
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

fn mobiles() -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in WAYS {
        for mean in [0, 80].map(Duration::from_millis) {
            for mobiles in MOBILES {
                for treatment in NO_CHANGES_AND_BOTH {
                    let labels = vec![
                        Label::direction(way),
                        Label::time("bad mean", mean),
                        Label::new("mobiles", mobiles.to_string()),
                        Label::new("treatment", treatment.name()),
                    ];
                    let testbed = Testbed { mobiles, ..on_testbed(treatment, way, mean) };
                    cells.push(Cell { limit: MOBILES_LIMIT, ..cell(labels, testbed) });
                }
            }
        }
    }
    cells
}

fn distributions() -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in WAYS {
        for treatment in NO_CHANGES_AND_BOTH {
            for mean in [40, 80, 160].map(Duration::from_millis) {
                for distribution in [Distribution::Uniform, Distribution::Deterministic, Distribution::Exponential] {
                    let labels = vec![
                        Label::direction(way),
                        Label::new("treatment", treatment.name()),
                        Label::time("bad mean", mean),
                        Label::new("distribution", name_of(distribution)),
                    ];
                    cells.push(cell(labels, Testbed { distribution, ..on_testbed(treatment, way, mean) }));
                }
            }
        }
    }
    cells
}

fn overflow() -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in WAYS {
        for receive_frames in RECEIVE_FRAMES {
            let buffer = match receive_frames {
                None => "as fitted".to_owned(),
                Some(frames) if frames > 1000 => "never full".to_owned(),
                Some(frames) => format!("{frames} frames"),
            };
            let labels = vec![Label::direction(way), Label::new("receive buffer", buffer)];
            let testbed = on_testbed(Treatment::NoChanges, way, Duration::ZERO);
            cells.push(cell(labels, Testbed { receive_frames, packets: true, ..testbed }));
        }
    }
    cells
}

fn packets() -> Vec<Cell> {
    let mut cells = by_treatment(&NO_CHANGES_AND_BOTH, 1);
    for cell in &mut cells {
        if let Job::Testbed(testbed) = &mut cell.job {
            testbed.packets = true;
            cell.paper = paper(testbed);
        }
    }
    cells
}
