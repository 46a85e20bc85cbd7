//! The experiments by name. Read `experiment`, then `tables` (shared cells), `papers` and `beyond`.

mod beyond;
pub(super) mod experiment;
mod papers;
pub(super) mod tables;

pub use experiment::{Experiment, ExperimentFigure, Origin, SEEDS, SEEDS_MAX, Vertical};

pub fn all() -> Vec<&'static Experiment> {
    papers::EXPERIMENTS.iter().chain(beyond::EXPERIMENTS).collect()
}

/// The named experiments in table order; all if `names` is empty. An unknown name is the error.
pub fn named(names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    named_of(all(), names)
}

pub(super) fn named_of(all: Vec<&'static Experiment>, names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    if let Some(unknown) = names.iter().find(|n| all.iter().all(|e| e.name != **n)) {
        return Err(unknown.clone());
    }
    Ok(all.into_iter().filter(|e| names.is_empty() || names.iter().any(|n| n == e.name)).collect())
}

#[cfg(test)]
mod tests {
    use crate::wireless::cell::Cell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::wireless::cell::level;

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
    fn tables_are_rectangular_and_name_existing_axes() {
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
