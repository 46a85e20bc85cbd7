//! Systems, and settings of the mount study.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use remora_channel::{Config, Duplex, ErrorModel};
use serde::Serialize;

use super::work::Work;

pub const SEEDS_MAX: u64 = 1000;
pub const JOBS_MAX: usize = 16;

/// A way to mount the server's directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountSystem {
    /// `remora mount` over UDP; a close waits for the server (`--writes through`).
    Udp,
    Atp,
    Tcp,
    /// Over UDP; a close waits only for this machine (`--writes back`).
    Back,
    /// sshfs to OpenSSH's server.
    Sshfs,
    /// The Linux kernel's NFSv3 client over TCP, in a guest whose programs QEMU interprets.
    Linux,
}

impl MountSystem {
    pub const ALL: [MountSystem; 6] = [
        MountSystem::Udp,
        MountSystem::Atp,
        MountSystem::Tcp,
        MountSystem::Back,
        MountSystem::Sshfs,
        MountSystem::Linux,
    ];

    pub fn name(self) -> &'static str {
        match self {
            MountSystem::Udp => "udp",
            MountSystem::Atp => "atp",
            MountSystem::Tcp => "tcp",
            MountSystem::Back => "back",
            MountSystem::Sshfs => "sshfs",
            MountSystem::Linux => "linux",
        }
    }

    pub fn named(name: &str) -> Option<MountSystem> {
        MountSystem::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Flags of `remora mount`; `None` for a peer.
    pub(super) fn flags(self) -> Option<&'static str> {
        match self {
            MountSystem::Udp => Some("--proto udp"),
            MountSystem::Atp => Some("--proto atp"),
            MountSystem::Tcp => Some("--proto tcp"),
            MountSystem::Back => Some("--proto udp --writes back"),
            MountSystem::Sshfs | MountSystem::Linux => None,
        }
    }

    pub(super) fn is_peer(self) -> bool {
        matches!(self, MountSystem::Sshfs | MountSystem::Linux)
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The emulated link.
    pub link: Config,
    /// Systems; missing ones are skipped and reported.
    pub systems: Vec<MountSystem>,
    pub works: Vec<Work>,
    /// Also list the tree after ten minutes.
    pub long: bool,
    pub first_seed: u64,
    /// How many seeds (1 to [`SEEDS_MAX`]).
    pub seeds: u64,
    /// Time limit of one step of a work.
    pub limit: Duration,
    /// Concurrent runs, each on its own link (1 to [`JOBS_MAX`]).
    pub jobs: NonZeroUsize,
    /// Largest lateness of the emulator in a valid run.
    pub lateness_max: Duration,
    /// The program that mounts, serves and enters the namespaces.
    pub binary: PathBuf,
    /// An unpacked kernel package for guests; `None`: search.
    pub kernel: Option<PathBuf>,
    /// Show a progress bar on a terminal.
    pub bar: bool,
    /// Command line for the report.
    pub command: String,
}

impl Options {
    /// The link of the study: 1 Mbit/s half duplex, 20 ms each way, bad periods of 80 ms.
    pub fn usual_link() -> Config {
        Config {
            delay: Duration::from_millis(20),
            duplex: Duplex::Half,
            errors: ErrorModel::bursts(Duration::from_millis(80)),
            ..Config::default()
        }
    }
}
