//! The simulator's swarms: many seeds, each a world of its own.

use crate::cmd::{self, Result};

/// NFS: clients, a server and an oracle.
const NFS: &str = "swarm";
/// ATP: endpoints that send objects.
const ATP: &str = "atp_swarm";

/// Runs `seeds` worlds of each kind from seed `from` on.
pub(crate) fn run(seeds: u64, from: u64) -> Result {
    let flags = ["--seeds", &seeds.to_string(), "--from", &from.to_string()];
    swarm(NFS, &flags)?;
    swarm(ATP, &flags)
}

/// Runs the one world of `seed`; one of ATP if `atp`.
pub(crate) fn repro(seed: u64, atp: bool) -> Result {
    swarm(if atp { ATP } else { NFS }, &["--repro", &seed.to_string()])
}

fn swarm(program: &str, flags: &[&str]) -> Result {
    let cargo = ["run", "--quiet", "--release", "--package", "remora-sim", "--bin", program, "--"];
    cmd::run(cmd::cargo(&cargo).args(flags))
}
