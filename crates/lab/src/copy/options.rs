//! Settings of the copy study.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use remora_base::Rate;
use remora_channel::Access;

use super::plan::CopySystem;
use super::predict;

pub const SEEDS_MAX: u64 = 1000;
/// The largest file, in bytes.
pub const BYTES_MAX: u64 = 1_000_000_000;
/// The sizes of Copy 89 (and the 20 MB of its figures 4 and 11), in MB.
pub const PAPER_SIZES_MB: [u64; 9] = [1, 2, 5, 10, 20, 25, 50, 75, 100];
pub const JOBS_MAX: usize = 16;
/// Copy 89's loads in percent: idle, daytime, one pair of stations, two pairs.
pub const PAPER_LOADS: [f64; 4] = [0.0, 10.0, 60.0, 98.0];

/// What to measure. Start from [`Options::default`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The medium's rate (default: 10 Mbit/s).
    pub rate: Rate,
    /// Turns (default) or collisions.
    pub access: Access,
    /// File sizes in bytes (1 to [`BYTES_MAX`], default 1 and 5 MB).
    pub sizes: Vec<u64>,
    /// Loads in percent of the rate (default: [`PAPER_LOADS`]); comparisons with no load need 0.
    pub loads_percent: Vec<f64>,
    /// Systems (default: all); missing ones are skipped and reported.
    pub systems: Vec<CopySystem>,
    /// The first seed (default 1).
    pub first_seed: u64,
    /// How many seeds (1 to [`SEEDS_MAX`], default 10).
    pub seeds: u64,
    /// Concurrent copies, each on its own medium; copies without network run alone (1 to [`JOBS_MAX`], default 1).
    pub jobs: NonZeroUsize,
    /// Directory of the files (default: that of temporary files).
    pub directory: Option<PathBuf>,
    /// Largest lateness of the emulator in a valid run (default 5 ms).
    pub lateness_max: Duration,
    /// Remora's binary (default: this program).
    pub binary: PathBuf,
    /// Command line for the report.
    pub command: String,
}

impl Options {
    pub(super) fn on(&self) -> predict::On {
        predict::On { rate: self.rate, access: self.access }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rate: Rate::mbit(10),
            access: Access::Turns,
            sizes: vec![1_000_000, 5_000_000],
            loads_percent: PAPER_LOADS.to_vec(),
            systems: CopySystem::ALL.to_vec(),
            first_seed: 1,
            seeds: 10,
            jobs: NonZeroUsize::MIN,
            directory: None,
            lateness_max: Duration::from_millis(5),
            binary: "/proc/self/exe".into(),
            command: String::new(),
        }
    }
}
