//! The copy study of Copy 89, made again: files copied between two stations by today's programs,
//! beside a load that other stations send on the same medium; real programs in network namespaces
//! on an emulated medium.
//!
//! What has been learned since 1989 about measuring: all cells have the same seeds (the same file,
//! the same packets of the load) and a random order; files are fresh and not in the cache; the clock
//! stops when the copy is on the disk, and then it is compared with the file; the load is what was
//! carried, not what was asked for; medians with bootstrap intervals, nothing discarded, and copies
//! that were cut off are counted as longer than all others.
//!
//! Collisions are not emulated: the [medium](remora_channel) gives stations turns, frame by frame.
//! It needs root.

mod background;
mod bench;
mod ftp;
mod outcome;
mod page;
mod plan;
mod predict;
mod stats;
mod tables;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guest::find;
use indicatif::{ProgressBar, ProgressStyle};
use remora_base::Rate;

pub use outcome::{CellOutcome, Parts, Peer, Predicted, Report, Run, Wire};
pub use page::Page;
pub use plan::{Cell, System};
pub use stats::Median;

use crate::wireless::RunError;
use crate::wireless::real::peers::{libnfs_version, said};
use bench::Bench;

/// The most seeds.
pub const SEEDS_MAX: u64 = 1000;
/// The largest file, in bytes.
pub const BYTES_MAX: u64 = 1_000_000_000;
/// The sizes of Copy 89 (and the 20 MB of its figures 4 and 11), in MB.
pub const PAPER_SIZES_MB: [u64; 9] = [1, 2, 5, 10, 20, 25, 50, 75, 100];
/// Copy 89's loads in percent: the quiet net, by day, one pair of stations, two.
pub const PAPER_LOADS: [f64; 4] = [0.0, 10.0, 60.0, 98.0];

/// What to measure. Start from [`Options::default`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The medium's rate (default: 10 Mbit/s).
    pub rate: Rate,
    /// Sizes of files in bytes (1 to [`BYTES_MAX`] each, default 1 and 5 MB).
    pub sizes: Vec<u64>,
    /// Loads in percent of the rate; what compares with no load wants 0 among them (default:
    /// [`PAPER_LOADS`]).
    pub loads_percent: Vec<f64>,
    /// Who copies; those that are not installed are left out and said (default: all).
    pub systems: Vec<System>,
    /// The first seed (default 1).
    pub first_seed: u64,
    /// How many seeds (1 to [`SEEDS_MAX`], default 10).
    pub seeds: u64,
    /// Where files are copied from and to (default: the directory for temporary files).
    pub directory: Option<PathBuf>,
    /// How late the emulator may be in a run that counts as in time (default 5 ms).
    pub lateness_max: Duration,
    /// Remora's binary (default: this program).
    pub binary: PathBuf,
    /// The command that makes the same runs, for the report.
    pub command: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rate: Rate::mbit(10),
            sizes: vec![1_000_000, 5_000_000],
            loads_percent: PAPER_LOADS.to_vec(),
            systems: System::ALL.to_vec(),
            first_seed: 1,
            seeds: 10,
            directory: None,
            lateness_max: Duration::from_millis(5),
            binary: "/proc/self/exe".into(),
            command: String::new(),
        }
    }
}

/// It was to end before it was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stopped;

/// Makes the study, with a progress bar on a terminal. When `stop` is set the run under way is
/// given up and the report has what there is. An error: there is no bench to be had.
pub fn run(options: &Options, stop: &AtomicBool) -> Result<Report, RunError> {
    let peers: Vec<Peer> = options.systems.iter().map(|s| look_for(*s)).collect();
    let systems: Vec<System> = peers.iter().filter(|p| p.missing.is_none()).map(|p| p.system).collect();
    let cells = plan::cells(options, &systems);
    let order = plan::order(cells.len(), options.first_seed, options.seeds);
    let bar = ProgressBar::new(order.len() as u64).with_style(style());
    let mut results: Vec<Vec<Result<Run, String>>> = vec![Vec::new(); cells.len()];
    let mut bench = Some(Bench::start(options, &systems)?);
    let mut complete = true;
    for (index, seed) in order {
        let (Some(cell), Some(results)) = (cells.get(index), results.get_mut(index)) else { continue };
        bar.set_message(format!("{} {} B, load {} %", cell.system.name(), cell.bytes, cell.load_percent));
        let mut here = match bench.take() {
            Some(bench) => bench,
            None => Bench::start(options, &systems)?,
        };
        let copied = here.copy(cell, seed, stop);
        if stop.load(Ordering::Acquire) {
            complete = false;
            break;
        }
        // What a run that went wrong or was cut off has left under way must not meet the next.
        let is_clean = matches!(&copied, Ok(Ok(run)) if run.seconds.is_finite());
        bench = is_clean.then_some(here);
        match copied {
            Ok(Ok(run)) => results.push(Ok(run)),
            Ok(Err(Stopped)) => {}
            Err(e) => results.push(Err(format!("seed {seed}: {e}"))),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Report::new(options, peers, cells.into_iter().zip(results).collect(), complete))
}

fn style() -> ProgressStyle {
    // The template is a constant, and right.
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left  {msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Whether a system is here, and which version.
fn look_for(system: System) -> Peer {
    let missing = system.programs().iter().find(|(program, _)| find(program).is_none());
    let version = || match system {
        System::Libnfs => find("nfs-cp").map(|p| libnfs_version(&p)),
        System::Scp => Some(said("ssh", "-V")),
        System::Rsync => Some(said("rsync", "--version")),
        // vsftpd tells its version to its standard input.
        System::Ftp => Some(said("lftp", "--version")),
        System::Remora | System::SameDisk | System::FromMemory => Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    Peer {
        system,
        version: missing.is_none().then(version).flatten(),
        missing: missing.map(|(_, package)| format!("install {package}")),
    }
}
