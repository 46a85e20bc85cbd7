//! The runs: loads first, then all cells with all seeds.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use remora_sim::copy;

use super::experiment::{CopyExperiment, FULL, SimulatedCell};
use super::medium::{LoadLevel, SharedMedium};
use crate::report::pool;
use crate::report::progress::bar;
use crate::report::provenance::SeedRun;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimulatedOptions {
    pub experiments: Vec<CopyExperiment>,
    pub media: Vec<SharedMedium>,
    /// Size of the file in bytes.
    pub bytes: u64,
    pub first_seed: u64,
    /// 1 to [`SEEDS_MAX`](crate::copy::SEEDS_MAX).
    pub seeds: u64,
    pub threads: NonZeroUsize,
    /// Show a progress bar on a terminal.
    pub bar: bool,
    /// Command line for the report.
    pub command: String,
}

/// The result of one copy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CopyRun {
    /// Infinite if it was cut off.
    pub(super) seconds: f64,
    pub(super) retransmissions: f64,
    /// The copy's frames given up after sixteen collisions.
    pub(super) given_up: f64,
    /// Time of the copy's own frames.
    pub(super) wire_s: f64,
    /// Shares of the copy's time: the load's frames, and the medium in use.
    pub(super) load_frames: f64,
    pub(super) used: f64,
}

/// All loads and runs.
pub(super) struct Runs {
    pub(super) levels: BTreeMap<LevelKey, LoadLevel>,
    pub(super) runs: BTreeMap<SimulatedCell, Vec<SeedRun<CopyRun, String>>>,
}

/// A load's place in [`Runs`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LevelKey {
    medium: SharedMedium,
    percent: u32,
    stations: usize,
}

impl LevelKey {
    pub(super) fn of(cell: &SimulatedCell) -> Option<LevelKey> {
        let SimulatedCell { medium, load_percent, stations, .. } = *cell;
        (!cell.is_quiet()).then_some(LevelKey { medium, percent: load_percent, stations })
    }
}

/// Runs each of `cells`, and the same without load. An error is a load that cannot be made.
pub(super) fn runs(options: &SimulatedOptions, cells: Vec<SimulatedCell>) -> Result<Runs, String> {
    let mut cells: Vec<SimulatedCell> = cells.into_iter().flat_map(|cell| [cell, cell.quiet()]).collect();
    cells.sort_unstable();
    cells.dedup();
    let levels = levels(options, &cells)?;
    let seeds = options.seeds as usize;
    let progress = bar((cells.len() * seeds) as u64, "copies", options.bar);
    let one = |i: usize| {
        let seed = options.first_seed.wrapping_add((i % seeds) as u64);
        let cell = &cells[i / seeds];
        let level = LevelKey::of(cell).and_then(|key| levels.get(&key));
        SeedRun { seed, result: copy_once(cell, level, options.bytes, seed) }
    };
    let mut made = pool::map(cells.len() * seeds, options.threads, one, || progress.inc(1)).into_iter();
    progress.finish_and_clear();
    let runs = cells.iter().map(|cell| (*cell, made.by_ref().take(seeds).collect())).collect();
    Ok(Runs { levels, runs })
}

fn levels(options: &SimulatedOptions, cells: &[SimulatedCell]) -> Result<BTreeMap<LevelKey, LoadLevel>, String> {
    let mut keys: Vec<LevelKey> = cells.iter().filter_map(LevelKey::of).collect();
    keys.sort_unstable();
    keys.dedup();
    let one = |i: usize| {
        let LevelKey { medium, percent, stations } = keys[i];
        medium.loaded(f64::from(percent) / f64::from(FULL), stations).map_err(|e| e.to_string())
    };
    let levels = pool::map(keys.len(), options.threads, one, || ());
    keys.iter().zip(levels).map(|(key, level)| Ok((*key, level?))).collect()
}

fn copy_once(cell: &SimulatedCell, level: Option<&LoadLevel>, bytes: u64, seed: u64) -> Result<CopyRun, String> {
    let mut config = cell.system.copy(cell.medium.config(), bytes, cell.without);
    if let Some(level) = level {
        config = config.beside(level.load);
    }
    let result = copy::run(&config, seed).map_err(|e| e.to_string())?;
    let copy = result.first();
    let (base, mobile) = (&copy.frames.base, &copy.frames.mobile);
    Ok(CopyRun {
        seconds: copy.seconds.unwrap_or(f64::INFINITY),
        retransmissions: copy.client.retransmissions as f64,
        given_up: (base.frames_collided + mobile.frames_collided) as f64,
        wire_s: (base.airtime + mobile.airtime).as_secs_f64(),
        load_frames: result.carried.map_or(0.0, |carried| carried.load()),
        used: result.carried.map_or(f64::NAN, |carried| carried.used()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::simulated::experiment::PAPER_LOAD;
    use crate::copy::simulated::system::{SimulatedSystem, Without};

    fn cell(system: SimulatedSystem, medium: SharedMedium, load_percent: u32) -> SimulatedCell {
        SimulatedCell { system, medium, load_percent, stations: 2, without: Without::Nothing }
    }

    fn seconds(runs: &Runs, cell: &SimulatedCell) -> f64 {
        runs.runs[cell][0].result.as_ref().unwrap().seconds
    }

    fn options() -> SimulatedOptions {
        SimulatedOptions {
            experiments: Vec::new(),
            media: Vec::new(),
            bytes: 500_000,
            first_seed: 1,
            seeds: 1,
            threads: NonZeroUsize::MIN,
            bar: false,
            command: String::new(),
        }
    }

    #[test]
    fn copy_beside_98_percent_waits_less_with_turns() {
        let media = [SharedMedium::Ethernet, SharedMedium::Turns];
        let cells = media.map(|medium| cell(SimulatedSystem::Stock, medium, PAPER_LOAD));
        let runs = runs(&options(), cells.to_vec()).unwrap();
        let [ethernet, turns] = cells.map(|cell| seconds(&runs, &cell) / seconds(&runs, &cell.quiet()));
        // With turns, each frame waits for two others at most.
        assert!((1.5..2.5).contains(&turns) && ethernet > 1.2 * turns, "{ethernet} {turns}");
    }

    #[test]
    fn client_of_1989_copies_10_blocks_a_second() {
        let quiet = cell(SimulatedSystem::Nfs1989, SharedMedium::Ethernet, 0).quiet();
        let runs = runs(&options(), vec![quiet]).unwrap();
        let blocks_per_s = 500_000.0 / 8192.0 / seconds(&runs, &quiet);
        assert!((blocks_per_s - 10.0).abs() < 0.2, "{blocks_per_s}");
    }
}
