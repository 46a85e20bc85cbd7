//! The scenario of a seed, and the result of its run.

use std::time::Duration;

use remora_base::Rng;
use remora_cache::{Config, OfflineMiss, OfflinePolicy, Policy, Writes};

use crate::mount::disk_cache::DiskFaults;
use crate::mount::world::Faults;

/// Silence of the server after which a mount is disconnected.
const OFFLINE_AFTER: Duration = Duration::from_secs(10);
/// Memory in bytes that holds all files of a program.
const MEMORY_MIN: u64 = 16 << 20;
/// Time since 1970 at the beginning of a world.
const WALL_AT_ZERO: Duration = Duration::from_secs(1_790_000_000);

/// What happens in a world.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub policy: Policy,
    pub writes: Writes,
    pub machines: usize,
    /// Partitions of each machine.
    pub partitions: usize,
    /// What a program does without the server, and while its changes are sent.
    pub operations: u64,
    pub miss: OfflineMiss,
    /// All machines change one more directory.
    pub has_shared: bool,
    pub has_disk_cache: bool,
    /// Probability that the mount crashes during an operation.
    pub crashes: f64,
    pub server_crashes: u64,
    pub memory_max: u64,
    pub(super) faults: Faults,
    is_disk_cache_reliable: bool,
}

/// Whether mounts are killed and machines lose power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crashes {
    None,
    Some,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64, crashes: Crashes) -> Scenario {
        let mut rng = Rng::stream(seed, "offline scenario");
        let delays = [Duration::from_micros(50), Duration::from_millis(5), Duration::from_millis(300)];
        let is_disk_cache_reliable = rng.chance(0.7);
        let writes = if rng.chance(0.5) { Writes::Through } else { Writes::Back };
        let has_disk_cache = rng.chance(0.85);
        Scenario {
            policy: [Policy::STRICT, Policy::DEFAULT, Policy::RELAXED][rng.below(3) as usize],
            writes,
            machines: 2 + rng.below(3) as usize,
            partitions: 1 + rng.below(2) as usize,
            operations: 5 + rng.below(25),
            miss: if rng.chance(0.8) { OfflineMiss::Fail } else { OfflineMiss::Wait },
            has_shared: rng.chance(0.35),
            has_disk_cache,
            crashes: [0.0, 0.04, 0.15][rng.below(3) as usize] * f64::from(u8::from(crashes == Crashes::Some)),
            server_crashes: if rng.chance(0.6) { 0 } else { 1 + rng.below(3) },
            memory_max: if rng.chance(0.8) || !has_disk_cache { 64 << 20 } else { 8 << 10 },
            faults: Faults {
                delay: delays[rng.below(3) as usize],
                late: [0.0, 0.05][rng.below(2) as usize],
                loss: [0.0, 0.05, 0.2][rng.below(3) as usize],
                duplicates: [0.0, 0.1][rng.below(2) as usize],
                tick: Duration::from_nanos(1),
                block: [32 << 10, 2 << 10][rng.below(2) as usize],
                sync_max: [0, 64 << 10][rng.below(2) as usize],
                disk_cache: if is_disk_cache_reliable { DiskFaults::NONE } else { DiskFaults::USUAL },
            },
            is_disk_cache_reliable,
        }
    }

    /// Whether the cache keeps all that a program has listed and read, also over a restart.
    pub(super) fn keeps_all(&self) -> bool {
        // A file that is evicted before it is saved is read again.
        self.has_disk_cache && self.is_disk_cache_reliable && self.memory_max > MEMORY_MIN
    }

    /// The configuration of a machine's mount, of which this is start number `start`.
    pub(super) fn config(&self, number: usize, start: u64, starts_offline: bool) -> Config {
        Config {
            policy: self.policy,
            writes: self.writes,
            offline: OfflinePolicy { after: Some(OFFLINE_AFTER), miss: self.miss, starts_offline },
            memory_max: self.memory_max,
            disk_file_max: if self.has_disk_cache { 1 << 20 } else { 0 },
            client_id: (start << 8) + number as u64 + 1,
            machine: format!("m{number}").into_bytes().into(),
            wall_at_zero: WALL_AT_ZERO,
            ..Config::default()
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// What the promises do not allow.
    pub violations: Vec<String>,
    /// All steps, with their times and results.
    pub log: Vec<String>,
    pub operations: u64,
    /// Of them, those without the server.
    pub offline: u64,
    pub kills: u64,
    pub power_losses: u64,
    /// Operations for which the cache had no answer.
    pub missed: u64,
    /// Programs that ended, because the mount kept a file after a crash in the middle of a rewrite.
    pub kept: u64,
    /// Programs that ended, because a rewrite that a crash had cut in two was in conflict with itself.
    pub halves: u64,
    /// Conflicts that were reported.
    pub conflicts: u64,
    /// Changes of names that the server executed twice, once before and once after a crash.
    pub repeated: u64,
}
