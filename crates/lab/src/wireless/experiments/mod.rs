//! The experiments by name: those of the papers, and those beyond them.

mod beyond;
mod papers;
pub(super) mod tables;

use serde::Serialize;

use super::SEEDS_MAX;
use super::cell::{Cell, Measure};

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

/// All experiments, the papers' first.
pub fn all() -> Vec<&'static Experiment> {
    papers::EXPERIMENTS.iter().chain(beyond::EXPERIMENTS).collect()
}

/// The experiments of these names in the table's order, all if there are none; the first name
/// that is none is the error.
pub fn named(names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    named_of(all(), names)
}

/// The same, of a table.
pub(super) fn named_of(all: Vec<&'static Experiment>, names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    if let Some(unknown) = names.iter().find(|n| all.iter().all(|e| e.name != **n)) {
        return Err(unknown.clone());
    }
    Ok(all.into_iter().filter(|e| names.is_empty() || names.iter().any(|n| n == e.name)).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::cell::level;
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let names: BTreeSet<&str> = all().iter().map(|e| e.name).collect();
        assert_eq!(names.len(), all().len());
        assert_eq!(named(&[]).map(|all| all.len()), Ok(names.len()));
        let some = ["zero-errors".to_owned(), "block-size".to_owned()];
        let found: Vec<&str> = named(&some).unwrap().iter().map(|e| e.name).collect();
        assert_eq!(found, ["block-size", "zero-errors"], "in the table's order");
        assert_eq!(named(&["block-size".into(), "frobnicate".into()]).err(), Some("frobnicate".to_owned()));
    }

    #[test]
    fn every_table_is_rectangular_and_its_figures_and_baseline_exist() {
        for experiment in all() {
            let cells = (experiment.cells)();
            let axes = |c: &Cell| c.labels.iter().map(|l| l.axis).collect::<Vec<_>>();
            let first = cells.first().map(axes).unwrap_or_default();
            assert!(!first.is_empty(), "{}", experiment.name);
            assert!(cells.iter().all(|c| axes(c) == first), "{}", experiment.name);
            let places: BTreeSet<String> = cells.iter().map(|c| format!("{:?}", c.labels)).collect();
            assert_eq!(places.len(), cells.len(), "{}: two cells in one place", experiment.name);
            for figure in experiment.figures {
                assert!(first.contains(&figure.lines), "{}: {}", experiment.name, figure.lines);
                assert!(
                    figure.y == Vertical::Packets || first.contains(&figure.x),
                    "{}: {}",
                    experiment.name,
                    figure.x
                );
            }
            if let Some((axis, base)) = experiment.baseline {
                assert!(cells.iter().any(|c| level(&c.labels, axis) == Some(base)), "{}: {base}", experiment.name);
            }
            assert!(!experiment.measures.is_empty() && experiment.about.len() < 100, "{}", experiment.name);
        }
    }
}
