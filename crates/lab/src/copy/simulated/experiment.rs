//! The experiments and their cells.

use serde::Serialize;

use super::medium::SharedMedium;
use super::system::{SimulatedSystem, Without};
use crate::copy::plan::LOADERS;

/// Loads in percent of the time in which the medium is in use; at 100, stations always have a frame.
const LOADS: [u32; 6] = [0, 10, 60, PAPER_LOAD, 99, FULL];
pub(super) const FULL: u32 = 100;
/// The load of Copy 89's section 3.3.
pub(super) const PAPER_LOAD: u32 = 98;
const STATIONS_MAX: usize = 8;

/// What an experiment varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyExperiment {
    /// Media and loads.
    Media,
    /// The number of stations that make the same load.
    Stations,
    /// What a copy's hosts lack.
    Parts,
}

/// Copies of one system on one medium, beside one load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct SimulatedCell {
    pub system: SimulatedSystem,
    pub medium: SharedMedium,
    /// The share of the time in which the load alone occupies the medium, in percent.
    pub load_percent: u32,
    /// Stations that make the load.
    pub stations: usize,
    #[serde(skip)]
    pub(super) without: Without,
}

impl SimulatedCell {
    /// The cell without a load.
    pub(super) fn quiet(self) -> SimulatedCell {
        SimulatedCell { load_percent: 0, stations: 0, ..self }
    }

    pub(super) fn is_quiet(self) -> bool {
        self.load_percent == 0
    }
}

impl CopyExperiment {
    pub fn name(self) -> &'static str {
        match self {
            CopyExperiment::Media => "media",
            CopyExperiment::Stations => "stations",
            CopyExperiment::Parts => "parts",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            CopyExperiment::Media => "A load of two stations on each medium",
            CopyExperiment::Stations => "One to eight stations that make the same load",
            CopyExperiment::Parts => "Where a copy's time goes (s)",
        }
    }

    /// Its cells on one medium.
    pub(super) fn cells(self, medium: SharedMedium) -> Vec<SimulatedCell> {
        let all = SimulatedSystem::ALL;
        match self {
            CopyExperiment::Media => {
                all.iter().flat_map(|system| LOADS.map(|load| loaded(*system, medium, load, LOADERS))).collect()
            }
            CopyExperiment::Stations => {
                let systems = [SimulatedSystem::Nfs1989, SimulatedSystem::Remora];
                let loads = |system| [60, PAPER_LOAD].map(|load| (system, load));
                let stations = |(system, load)| (1..=STATIONS_MAX).map(move |n| loaded(system, medium, load, n));
                systems.into_iter().flat_map(loads).flat_map(stations).collect()
            }
            CopyExperiment::Parts => {
                let loads = |system| [60, PAPER_LOAD].map(|load| loaded(system, medium, load, LOADERS));
                let parts = |system| {
                    [Without::Nothing, Without::Disk, Without::Processors]
                        .map(|without| SimulatedCell { without, ..loaded(system, medium, 0, 0) })
                };
                all.iter().flat_map(|system| parts(*system).into_iter().chain(loads(*system))).collect()
            }
        }
    }
}

fn loaded(system: SimulatedSystem, medium: SharedMedium, load_percent: u32, stations: usize) -> SimulatedCell {
    let stations = if load_percent == 0 { 0 } else { stations };
    SimulatedCell { system, medium, load_percent, stations, without: Without::Nothing }
}
