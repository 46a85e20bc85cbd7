//! The programs that copy, and their hosts.

use std::time::Duration;

use remora_base::Rate;
use remora_client::{ClientConfig, Transport, WindowSize};
use remora_sim::copy::{CopyConfig, Direction, Manner};
use remora_sim::world::SlowHost;
use remora_sim::world::disk::DiskModel;
use serde::Serialize;

/// Copy 89's hosts. The paper states what a copy by NFS does without load (figures 6 to 8: 10 blocks of 8 KiB a
/// second), that the disks alone need up to 8 times the bits' time (section 3.3), and that the server's processor is
/// 2.5 times as fast as the client's (section 2). Wire and disk leave 40 ms of a block to both processors.
const CLIENT: SlowHost = SlowHost {
    message: Duration::from_micros(5_200),
    frame: Duration::from_micros(3_000),
    device_frames: 50,
    disk: Rate::of_bits(4_000_000),
    read_ahead: 1,
    stable_writes: true,
};
const SERVER: DiskModel = DiskModel {
    cpu: Duration::from_micros(11_400),
    // A block and its inode (DRC 89, section 2.2), with the block's transfer 52 ms.
    seek: Duration::from_micros(24_000),
    rate: Some(Rate::of_bits(16_000_000)),
    jitter: 0.0,
    block_chance: 0.0,
    block_max: Duration::ZERO,
};

/// A program with its hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedSystem {
    /// An NFS client of 1989: 8 KiB, 0.7 s doubled, one call at a time, stable writes; the paper's hosts.
    Nfs1989,
    /// Remora on the same hosts.
    Remora1989,
    /// A client of the 1990s: five calls at a time; infinitely fast hosts.
    Stock,
    /// Remora; infinitely fast hosts.
    Remora,
}

impl SimulatedSystem {
    pub const ALL: [SimulatedSystem; 4] =
        [SimulatedSystem::Nfs1989, SimulatedSystem::Remora1989, SimulatedSystem::Stock, SimulatedSystem::Remora];

    pub fn name(self) -> &'static str {
        match self {
            SimulatedSystem::Nfs1989 => "NFS, hosts of 1989",
            SimulatedSystem::Remora1989 => "Remora, hosts of 1989",
            SimulatedSystem::Stock => "stock",
            SimulatedSystem::Remora => "Remora",
        }
    }

    /// Whether its hosts take time.
    pub(super) fn has_slow_hosts(self) -> bool {
        matches!(self, SimulatedSystem::Nfs1989 | SimulatedSystem::Remora1989)
    }

    fn client(self) -> ClientConfig {
        match self {
            SimulatedSystem::Nfs1989 => ClientConfig { window: WindowSize::Fixed(1), ..ClientConfig::stock() },
            SimulatedSystem::Stock => ClientConfig::stock(),
            SimulatedSystem::Remora1989 | SimulatedSystem::Remora => ClientConfig::new(Transport::Udp),
        }
    }

    /// A copy to the server on `channel`, without some parts of its hosts.
    pub(super) fn copy(self, channel: remora_channel::Config, bytes: u64, without: Without) -> CopyConfig {
        let mut config = CopyConfig {
            channel,
            bytes,
            manner: Manner::Mounted,
            limit: Duration::from_secs(900),
            ..CopyConfig::new(self.client(), Direction::Write)
        };
        if self.has_slow_hosts() {
            let is_stable = self == SimulatedSystem::Nfs1989;
            config.host = Some(SlowHost { stable_writes: is_stable, ..CLIENT });
            config.server.disk = SERVER;
        }
        if without >= Without::Disk {
            config.server.disk = DiskModel { cpu: config.server.disk.cpu, ..DiskModel::instant() };
            config.host = config.host.map(|host| SlowHost { disk: Rate::mbit(100_000), ..host });
        }
        if without >= Without::Processors {
            config.server.disk.cpu = Duration::ZERO;
            config.host = config.host.map(|host| SlowHost { message: Duration::ZERO, frame: Duration::ZERO, ..host });
        }
        config
    }
}

/// What a copy's hosts lack: each also lacks the parts before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Without {
    Nothing,
    /// Disks take no time.
    Disk,
    /// Nor do processors.
    Processors,
}
