//! The simulator's swarm: many seeds, each a world of its own.

use crate::cmd::{self, Result};

const SWARM: &[&str] = &["run", "--quiet", "--release", "--package", "remora-sim", "--bin", "swarm", "--"];

/// Runs `seeds` worlds from seed `from` on.
pub(crate) fn run(seeds: u64, from: u64) -> Result {
    cmd::run(cmd::cargo(SWARM).args(["--seeds", &seeds.to_string(), "--from", &from.to_string()]))
}

/// Runs the one world of `seed`.
pub(crate) fn repro(seed: u64) -> Result {
    cmd::run(cmd::cargo(SWARM).args(["--repro", &seed.to_string()]))
}
