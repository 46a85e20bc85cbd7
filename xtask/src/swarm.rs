//! The simulator's swarms: many seeds, each a world of its own.

use std::process::Command;

use crate::cmd::{self, Build, Result};

/// NFS: clients, a server and an oracle.
const NFS: &str = "swarm";
/// ATP: endpoints that send objects.
const ATP: &str = "atp_swarm";

/// Runs `seeds` worlds of each kind from seed `from` on.
pub(crate) fn run(seeds: u64, from: u64, build: Build) -> Result {
    let flags = ["--seeds", &seeds.to_string(), "--from", &from.to_string()];
    swarm(NFS, build, &flags)?;
    swarm(ATP, build, &flags)
}

/// Runs the one world of `seed`; one of ATP if `atp`.
pub(crate) fn repro(seed: u64, atp: bool) -> Result {
    swarm(if atp { ATP } else { NFS }, Build::Release, &["--repro", &seed.to_string()])
}

fn swarm(program: &str, build: Build, flags: &[&str]) -> Result {
    cmd::run(Command::new(cmd::built(program, build)?).args(flags).current_dir(cmd::root()))
}
