//! The simulator's swarms: many seeds, each a world of its own, for NFS, ATP and mounts.

use std::process::Command;

use crate::cmd::{self, Build, Result};

/// The program that simulates NFS clients, a server and an oracle.
const NFS: &str = "swarm";
/// The program that simulates ATP endpoints.
const ATP: &str = "atp_swarm";
/// The program that simulates mounts before a server.
const MOUNT: &str = "mount_swarm";

/// Kinds of worlds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum World {
    /// NFS clients and a server
    Nfs,
    /// Endpoints of ATP and their sessions
    Atp,
    /// Mounts of several machines before a server
    Mount,
    /// The same, and the machines work without the server for a time
    Offline,
    /// The same, and mounts are killed and machines lose power
    OfflineCrash,
}

/// Runs `seeds` worlds of each kind, beginning with seed `from`.
pub(crate) fn run(seeds: u64, from: u64, build: Build) -> Result {
    let flags = ["--seeds", &seeds.to_string(), "--from", &from.to_string()];
    swarm(NFS, build, &flags)?;
    swarm(ATP, build, &flags)?;
    swarm(MOUNT, build, &flags)
}

/// Runs the world of one `seed`.
pub(crate) fn repro(seed: u64, world: World) -> Result {
    let (program, flags): (_, &[&str]) = match world {
        World::Nfs => (NFS, &[]),
        World::Atp => (ATP, &[]),
        World::Mount => (MOUNT, &[]),
        World::Offline => (MOUNT, &["--world", "offline"]),
        World::OfflineCrash => (MOUNT, &["--world", "offline-crash"]),
    };
    let seed = seed.to_string();
    swarm(program, Build::Release, &[flags, &["--repro", &seed]].concat())
}

fn swarm(program: &str, build: Build, flags: &[&str]) -> Result {
    cmd::run(Command::new(cmd::built(program, build)?).args(flags).current_dir(cmd::root()))
}
