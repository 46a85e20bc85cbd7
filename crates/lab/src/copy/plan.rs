//! Systems, cells, and the order of runs.

use std::fmt;
use std::time::Duration;

use remora_base::{Rate, Rng};
use serde::Serialize;

use crate::report::number::{figure, megabytes};

/// Load stations, with half of the load each. (Copy 89 has one pair at 60 %, two at 98 %.)
pub(super) const LOADERS: usize = 2;
/// Propagation delay on a cable of 200 m.
pub(super) const PROPAGATION: Duration = Duration::from_micros(1);
/// Size of a setup copy: start, connect and end only.
pub(super) const SETUP_BYTES: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopySystem {
    Remora,
    /// libnfs's `nfs-cp` to Remora's server.
    Libnfs,
    /// `scp` to OpenSSH's server.
    Scp,
    /// `rsync` over `ssh`.
    Rsync,
    /// `lftp` to `vsftpd`.
    Ftp,
    /// On one disk, without a network.
    SameDisk,
    /// From memory to disk, without a network: an infinitely fast source.
    FromMemory,
}

impl CopySystem {
    pub const ALL: [CopySystem; 7] = [
        CopySystem::Remora,
        CopySystem::Libnfs,
        CopySystem::Scp,
        CopySystem::Rsync,
        CopySystem::Ftp,
        CopySystem::SameDisk,
        CopySystem::FromMemory,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CopySystem::Remora => "remora",
            CopySystem::Libnfs => "libnfs",
            CopySystem::Scp => "scp",
            CopySystem::Rsync => "rsync",
            CopySystem::Ftp => "ftp",
            CopySystem::SameDisk => "same-disk",
            CopySystem::FromMemory => "from-memory",
        }
    }

    pub fn named(name: &str) -> Option<CopySystem> {
        CopySystem::ALL.into_iter().find(|s| s.name() == name)
    }

    pub fn has_network(self) -> bool {
        !matches!(self, CopySystem::SameDisk | CopySystem::FromMemory)
    }

    /// Required programs and their Debian packages.
    pub(super) fn programs(self) -> &'static [(&'static str, &'static str)] {
        const SSH: [(&str, &str); 3] =
            [("ssh", "openssh-client"), ("ssh-keygen", "openssh-client"), ("sshd", "openssh-server")];
        match self {
            CopySystem::Remora | CopySystem::SameDisk | CopySystem::FromMemory => &[],
            CopySystem::Libnfs => &[("nfs-cp", "libnfs-utils")],
            CopySystem::Scp => &[("scp", "openssh-client"), SSH[0], SSH[1], SSH[2]],
            CopySystem::Rsync => &[("rsync", "rsync"), SSH[0], SSH[1], SSH[2]],
            CopySystem::Ftp => &[("lftp", "lftp"), ("vsftpd", "vsftpd")],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Cell {
    pub system: CopySystem,
    pub bytes: u64,
    /// Offered load in percent of the medium's rate.
    pub load_percent: f64,
}

impl Cell {
    /// Whether it is a setup copy.
    pub fn is_setup(&self) -> bool {
        self.bytes == SETUP_BYTES
    }

    /// Time limit in seconds: a minute and thirty times the time of the bits.
    pub(super) fn limit_seconds(&self, rate: Rate) -> f64 {
        60.0 + 30.0 * rate.airtime(self.bytes).as_secs_f64()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.system.name(), megabytes(self.bytes))?;
        if self.system.has_network() { write!(f, " at {} %", figure(self.load_percent)) } else { Ok(()) }
    }
}

/// Pairs of cell and seed: all cells with the first seed in random order, then with the next, so that drift of the
/// machine affects all alike.
pub(super) fn order(cells: usize, first_seed: u64, seeds: u64) -> Vec<(usize, u64)> {
    let mut runs = Vec::new();
    for seed in (0..seeds).map(|n| first_seed.wrapping_add(n)) {
        let mut rng = Rng::stream(seed, "order");
        let mut block: Vec<usize> = (0..cells).collect();
        // Fisher-Yates shuffle.
        for last in (1..block.len()).rev() {
            block.swap(last, rng.below(last as u64 + 1) as usize);
        }
        runs.extend(block.into_iter().map(|cell| (cell, seed)));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::options::Options;
    use crate::copy::study::cells;

    #[test]
    fn order_has_each_cell_once_for_each_seed() {
        let runs = order(20, 5, 3);
        let block = |n: usize| runs[20 * n..20 * (n + 1)].to_vec();
        for n in 0..3 {
            let mut cells: Vec<usize> = block(n).iter().map(|(cell, _)| *cell).collect();
            assert!(block(n).iter().all(|(_, seed)| *seed == 5 + n as u64));
            assert_ne!(cells, (0..20).collect::<Vec<_>>());
            cells.sort_unstable();
            assert_eq!(cells, (0..20).collect::<Vec<_>>());
        }
        assert_eq!(runs, order(20, 5, 3), "it can be made again");
    }

    #[test]
    fn names_are_found() {
        assert!(CopySystem::ALL.into_iter().all(|s| CopySystem::named(s.name()) == Some(s)));
        assert_eq!(CopySystem::named("uucp"), None);
    }

    #[test]
    fn disk_copies_have_no_load() {
        let options = Options { sizes: vec![1, 2], loads_percent: vec![0.0, 60.0], ..Options::default() };
        assert_eq!(cells(&options, &[CopySystem::SameDisk]).len(), 2);
        // Each size at each load, and the setup copy.
        assert_eq!(cells(&options, &[CopySystem::Ftp]).len(), 5);
    }
}
