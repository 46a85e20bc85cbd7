use serde::Serialize;

use crate::wireless::cell::{Cell, Measure};

/// The most seeds a cell may be run with.
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
    /// What is measured; the first is what it is about.
    pub measures: &'static [Measure],
    /// The axis and the level on it that others are compared with, as a reduction of time.
    pub baseline: Option<(&'static str, &'static str)>,
    pub figures: &'static [ExperimentFigure],
    /// Whether one seed is enough: it is about how a run went, not about how long it took.
    pub single: bool,
    /// How many seeds it takes where no number is asked for.
    pub seeds: u64,
    pub cells: fn() -> Vec<Cell>,
}

impl Experiment {
    /// With how many seeds each cell is run if so many are asked for.
    pub fn seeds(&self, asked: Option<u64>) -> u64 {
        if self.single { 1 } else { asked.unwrap_or(self.seeds).clamp(1, SEEDS_MAX) }
    }
}

/// A figure: one panel for each combination of levels on the axes that it does not name.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentFigure {
    pub y: Vertical,
    /// The axis whose levels stand side by side; unused for curves.
    pub x: &'static str,
    pub lines: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vertical {
    /// A measure's median, on a linear scale.
    Linear(Measure),
    /// A measure's median, on a logarithmic scale.
    Logarithmic(Measure),
    /// How many times the floor it took, on a logarithmic scale.
    Ratio,
    Packets,
}
