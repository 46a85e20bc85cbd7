//! The simulator's swarms: many seeds, each a world of its own, for NFS and ATP.

use std::process::Command;

use crate::cmd::{self, Build, Result};

/// The program that simulates NFS clients, a server and an oracle.
const NFS: &str = "swarm";
/// The program that simulates ATP endpoints.
const ATP: &str = "atp_swarm";

/// Runs `seeds` worlds of each kind, beginning with seed `from`.
pub(crate) fn run(seeds: u64, from: u64, build: Build) -> Result {
    let flags = ["--seeds", &seeds.to_string(), "--from", &from.to_string()];
    swarm(NFS, build, &flags)?;
    swarm(ATP, build, &flags)
}

/// Runs the world of one `seed`: of ATP if `atp`, else of NFS.
pub(crate) fn repro(seed: u64, atp: bool) -> Result {
    swarm(if atp { ATP } else { NFS }, Build::Release, &["--repro", &seed.to_string()])
}

fn swarm(program: &str, build: Build, flags: &[&str]) -> Result {
    cmd::run(Command::new(cmd::built(program, build)?).args(flags).current_dir(cmd::root()))
}
