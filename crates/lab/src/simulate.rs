//! The network model beside its simulation, on all processors: one network with several seeds, or
//! the grid of topologies drawn at random that holds the model to its bands.

use std::num::NonZeroUsize;

use remora_model::Network;
use remora_sim::network::check::{Case, Submodel, Verdict};
use remora_sim::network::{Options, Simulated, TooMuch, run};

use crate::report::pool;

/// Runs the network once for each of `seeds`, from `first`; `done` is called after each run.
pub fn simulate(
    network: &Network,
    options: &Options,
    (first, seeds): (u64, u64),
    threads: NonZeroUsize,
    done: impl Fn() + Sync,
) -> Result<Simulated, TooMuch> {
    let count = usize::try_from(seeds).unwrap_or(usize::MAX);
    let runs = pool::map(count, threads, |n| run(network, options, first.wrapping_add(n as u64)), done);
    Ok(Simulated::of(&runs.into_iter().collect::<Result<Vec<_>, _>>()?))
}

/// How many cases a grid with `each` of every kind has.
pub fn grid_size(each: u64) -> u64 {
    Submodel::ALL.len() as u64 * 2 * each
}

/// Solves and simulates `each` cases of every submodel with flows alone, and as many with a copy,
/// all drawn from `seed`; `done` is called after each case.
pub fn grid(seed: u64, each: u64, threads: NonZeroUsize, done: impl Fn() + Sync) -> Result<Vec<Verdict>, TooMuch> {
    let kinds: Vec<(Submodel, bool)> = Submodel::ALL.iter().flat_map(|s| [(*s, false), (*s, true)]).collect();
    let count = usize::try_from(grid_size(each)).unwrap_or(usize::MAX);
    let one = |i: usize| {
        let (submodel, copies) = kinds[i % kinds.len()];
        Case::draw(submodel, copies, seed, (i / kinds.len()) as u64).run()
    };
    pool::map(count, threads, one, done).into_iter().collect()
}
