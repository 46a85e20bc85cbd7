use serde::Serialize;

use crate::wireless::cell::{Cell, Measure};

/// The most seeds a cell may be run with.
pub const SEEDS_MAX: u64 = 1000;

/// How many seeds most experiments take.
pub const SEEDS: u64 = 10;

/// Whose experiment it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// NFS/W 95 and NFS/W 97 made it.
    Papers,
    /// They did not.
    Beyond,
}

/// A table of cells and how to show it.
#[derive(Debug)]
pub struct Experiment {
    /// What one calls it on the command line.
    pub name: &'static str,
    /// One line on what it is.
    pub about: &'static str,
    /// Whose it is.
    pub origin: Origin,
    /// What is measured; the first is what it is about.
    pub measures: &'static [Measure],
    /// The axis and the level on it that others are compared with, as a reduction of time.
    pub baseline: Option<(&'static str, &'static str)>,
    /// What is drawn.
    pub figures: &'static [ExperimentFigure],
    /// Whether one seed is enough: it is about how a run went, not about how long it took.
    pub single: bool,
    /// How many seeds it takes where no number is asked for.
    pub seeds: u64,
    /// Its cells.
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
    /// What is on the vertical axis.
    pub y: Vertical,
    /// The axis whose levels stand side by side; unused for curves.
    pub x: &'static str,
    /// The axis whose levels are lines.
    pub lines: &'static str,
}

/// What a figure shows upwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vertical {
    /// A measure's median, on a linear scale.
    Linear(Measure),
    /// A measure's median, on a logarithmic scale.
    Logarithmic(Measure),
    /// How many times the floor it took, on a logarithmic scale.
    Ratio,
    /// The packets' numbers over time.
    Packets,
}
