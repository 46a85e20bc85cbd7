//! An experiment: its cells, measures and figures.

use serde::Serialize;

use crate::wireless::cell::{Cell, Measure};

pub const SEEDS_MAX: u64 = 1000;

pub const SEEDS: u64 = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// NFS/W 95 and NFS/W 97.
    Papers,
    Beyond,
}

/// A table of cells and how to show it.
#[derive(Debug)]
pub struct Experiment {
    pub name: &'static str,
    pub about: &'static str,
    pub origin: Origin,
    /// Measures; the first is the main one.
    pub measures: &'static [Measure],
    /// Axis and level that the others are compared with.
    pub baseline: Option<(&'static str, &'static str)>,
    pub figures: &'static [ExperimentFigure],
    /// Default number of seeds.
    pub seeds: u64,
    pub cells: fn() -> Vec<Cell>,
}

impl Experiment {
    /// Seeds for each cell if `asked` are requested.
    pub fn seeds(&self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.seeds).clamp(1, SEEDS_MAX)
    }
}

/// A figure, with one panel for each combination of levels on the other axes.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentFigure {
    pub y: Vertical,
    /// The horizontal axis; unused for curves.
    pub x: &'static str,
    pub lines: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vertical {
    /// A measure's median, on a linear scale.
    Linear(Measure),
    /// A measure's median, on a logarithmic scale.
    Logarithmic(Measure),
    /// Time over the floor, on a logarithmic scale.
    Ratio,
    Packets,
}
