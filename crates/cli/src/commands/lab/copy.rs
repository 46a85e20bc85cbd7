//! `remora lab copy`: the copy study of Copy 89 with current programs.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use remora_base::Rate;
use remora_channel::Access;
use remora_lab::copy;
use remora_lab::copy::{CopyExperiment, SharedMedium, SimulatedOptions};
use remora_lab::copy::{CopySystem, JOBS_MAX, Options, PAPER_LOADS, PAPER_SIZES_MB, SEEDS_MAX};

use crate::commands::lab::publication;
use crate::commands::lab::publication::{ReportFlags, there_are_seeds};
use crate::config::units;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
Repeats the study of Copy 89: Remora (client and server), libnfs, scp, rsync and
FTP (vsftpd, lftp) copy files between two stations, and cp copies on the disk
alone, while two more stations send background load on the same medium. These
are real programs in network namespaces, in real time. The emulated medium is
half duplex and gives stations turns (--medium ethernet: with collisions). Each
program is fitted to its smallest files without load; `remora model` predicts
all other cells for the carried load, and its simulator for the offered load.
The report shows predictions beside measurements.

With EXPERIMENT, Remora's client and server and NFS clients of 1989 and the
1990s copy 1 MB in virtual time, on each medium; that needs no root.

Examples:
  # a few minutes
  remora lab copy --quick
  # 1 and 5 MB at 10 Mbit/s, a quarter of an hour
  remora lab copy --html copy.html
  # the paper's sizes, ten times as fast
  remora lab copy --rate 100Mbit --full --jobs 1
  # with collisions, as in the paper
  remora lab copy --medium ethernet
  remora lab copy --only ftp --only same-disk --sizes 20 --loads 0,98
  # in virtual time: all media, 1 to 8 stations that load them, a copy's parts
  remora lab copy media stations parts --html simulated.html
  remora lab copy --json \\
      | jq '.cells[] | [.system, .bytes, .load_percent, .seconds.median]'

Exit codes: 0 all runs completed (with --check: of all systems, and with all
predictions within tolerance), 1 otherwise, or no run was possible, or a system
of --only is missing, 130 Ctrl-C, after a report on the completed runs.

--json prints one object: version, complete, command, rate_bits_per_s,
collisions, compression, first_seed, seeds, jobs, took_s, lateness_ms_bound,
peers (system, version, missing), cells (system, bytes, load_percent,
limit_seconds, seconds, load_carried, factor, paper_factor, predicted,
simulated, late, runs, failures), fitted (system, bytes, rest_s, exchanges,
blocks, window, software_s, software_simulated_s), parts (system, bytes, bits_s,
disk_s, wire_s, hardware_s, software_s, setup_s, contention_s). seconds,
load_carried and factor have runs, censored, median, low, high, min, max;
predicted and simulated have seconds, difference_percent, tolerance_percent,
fitted, doubts (reason, and for a formula outside its band: formula, quantity,
value, low, high). A run: seed, seconds, flow_s (the file's own time on the
medium), load_offered and load_carried (shares of the medium),
load_packet_bytes, there and back (sent by client and by server: frames,
seconds, dropped by a full queue), collisions, lateness_ms, in_time (of the
emulator). null is a copy over the time limit. With EXPERIMENT: version, source,
command, first_seed, seeds, bytes, experiments (name, about, rows, parts,
failures). A row: system, medium, load_percent, stations, load (alone: offered,
used, frames, collisions_per_frame), load_frames, used, seconds, factor,
retransmissions, given_up. A part: system, medium, quiet_s, wire_s, disk_s,
processors_s, rest_s, waits_s, contention_s. docs/results/copy.md has more.";

/// What `--quick` makes of the defaults: sizes in MB, loads, seeds.
const QUICK: (&[u64], &[f64], u64) = (&[1], &PAPER_LOADS, 3);
/// Flags of the study with real programs.
const REAL_ONLY: [&str; 10] =
    ["rate", "sizes", "loads", "only", "jobs", "quick", "full", "dir", "lateness_max", "check"];
/// Size of files in virtual time.
const VIRTUAL_BYTES: u64 = 1_000_000;
/// Sizes of files in MB without flags.
const SIZES_MB: [u64; 2] = [1, 5];

/// Experiments in virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum VirtualExperiment {
    /// Loads of 10 to 100 % on each medium
    Media,
    /// 1 to 8 stations that make the same load
    Stations,
    /// Wire, disk, processors, RPC's waits and contention
    Parts,
}

impl From<VirtualExperiment> for CopyExperiment {
    fn from(experiment: VirtualExperiment) -> CopyExperiment {
        match experiment {
            VirtualExperiment::Media => CopyExperiment::Media,
            VirtualExperiment::Stations => CopyExperiment::Stations,
            VirtualExperiment::Parts => CopyExperiment::Parts,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct CopyLab {
    /// Experiments in virtual time [default: the study with real programs]
    #[arg(value_enum, value_name = "EXPERIMENT", conflicts_with_all = REAL_ONLY)]
    pub(crate) experiments: Vec<VirtualExperiment>,
    /// Rate of the medium. The paper uses 10 Mbit/s; ten times the rate takes a tenth of the time
    #[arg(long, default_value = "10Mbit")]
    pub(crate) rate: Rate,
    /// How stations share the medium: in turns frame by frame, or as on an Ethernet with collisions; with EXPERIMENT
    /// also a server's full-duplex link [default: turns; with EXPERIMENT: each]
    #[arg(long, value_enum)]
    pub(crate) medium: Option<Medium>,
    /// File sizes in MB [default: 1,5]
    #[arg(long, value_name = "MB", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1000))]
    sizes: Vec<u64>,
    /// Loads in percent of the rate [default: 0,10,60,98]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// Run only this system: remora, libnfs, scp, rsync, ftp, same-disk or from-memory. May be repeated
    #[arg(long, value_name = "SYSTEM", value_parser = system)]
    only: Vec<CopySystem>,
    /// Seeds for each cell; an interval needs 6 [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "FIRST", default_value = "1")]
    pub(crate) seed: u64,
    /// Concurrent copies, each on its own medium
    #[arg(long, value_name = "N", default_value = "4", value_parser = jobs)]
    pub(crate) jobs: NonZeroUsize,
    /// Use one file size (1 MB) and three seeds
    #[arg(long, conflicts_with_all = ["full", "sizes", "loads", "seeds"])]
    quick: bool,
    /// Use all sizes of the paper, 1 to 100 MB: most of a day at 10 Mbit/s
    #[arg(long, conflicts_with = "sizes")]
    full: bool,
    /// Directory, and so disk, for the files [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Maximum lateness of the emulator in a valid run
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    /// Exit with code 1 if a prediction is out of tolerance, a system is missing or there is nothing to judge
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// How stations share the medium.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Medium {
    Turns,
    Ethernet,
    FullDuplex,
}

impl CopyLab {
    /// The systems that are named; none: all.
    pub(crate) fn only(&self) -> Vec<CopySystem> {
        once(&self.only)
    }

    /// Sizes of the files in MB.
    pub(crate) fn sizes_mb(&self) -> Vec<u64> {
        match (self.quick, self.full) {
            (true, _) => QUICK.0.to_vec(),
            (_, true) => PAPER_SIZES_MB.to_vec(),
            _ if self.sizes.is_empty() => SIZES_MB.to_vec(),
            _ => once(&self.sizes),
        }
    }

    /// Loads in percent.
    pub(crate) fn loads(&self) -> Vec<f64> {
        match self.loads.is_empty() {
            _ if self.quick => QUICK.1.to_vec(),
            true => PAPER_LOADS.to_vec(),
            false => once(&self.loads),
        }
    }

    /// Seeds for each cell.
    pub(crate) fn seeds(&self) -> u64 {
        self.seeds.unwrap_or(if self.quick { QUICK.2 } else { 10 })
    }
}

/// Each once: the same cell twice would be run twice.
fn once<T: Copy + PartialEq>(named: &[T]) -> Vec<T> {
    let mut each = Vec::new();
    named.iter().for_each(|item| {
        if !each.contains(item) {
            each.push(*item);
        }
    });
    each
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim_end_matches('%').trim().parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (0.0..=150.0).contains(&value) { Ok(value) } else { Err(format!("{text} is out of range: 0 to 150 percent")) }
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let jobs: NonZeroUsize = text.parse().map_err(|_| format!("'{text}' is not a number above 0"))?;
    if jobs.get() <= JOBS_MAX { Ok(jobs) } else { Err(format!("{text} is out of range: 1 to {JOBS_MAX}")) }
}

fn system(text: &str) -> Result<CopySystem, String> {
    let names = || CopySystem::ALL.map(CopySystem::name).join(", ");
    CopySystem::named(text).ok_or_else(|| format!("unknown system; the systems are {}", names()))
}

pub(crate) async fn run(args: CopyLab) -> Result {
    there_are_seeds(args.seed, args.seeds())?;
    if !args.experiments.is_empty() {
        return simulate(args).await;
    }
    if let Some(dir) = &args.dir {
        std::fs::read_dir(dir).map_err(Error::local(dir.display()))?;
    }
    let signal = interrupt::catch();
    let page = args.report.reserve()?;
    let options = options(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let mut study = tokio::task::spawn_blocking(move || copy::run(&options, &stopped));
    let (report, number) = tokio::select! {
        done = &mut study => (done, None),
        number = signal => {
            stop.store(true, Ordering::Release);
            (study.await, Some(number))
        }
    };
    let report = publication::finished(publication::finished(report)?)?;
    publication::publish(&report, || Ok(report.to_text(stdio::report_width())), page)?;
    if let Some(number) = number {
        return Err(Error::Interrupted(number));
    }
    publication::failed(report.failures())?;
    let objections = report.objections(!args.only().is_empty(), args.check);
    if objections.is_empty() { Ok(()) } else { Err(Error::refused("the laboratory", objections.join("; "))) }
}

async fn simulate(args: CopyLab) -> Result {
    let page = args.report.reserve()?;
    let options = virtual_options(&args)?;
    // The work keeps processors busy and cannot be cut short: a signal ends the process around it.
    let report = tokio::task::spawn_blocking(move || copy::run_simulated(&options)).await;
    let report = publication::finished(publication::finished(report)?)?;
    publication::publish(&report, || Ok(report.to_text(stdio::report_width())), page)?;
    publication::failed(report.failures())
}

fn virtual_options(args: &CopyLab) -> Result<SimulatedOptions> {
    let media = match args.medium {
        None => SharedMedium::ALL.to_vec(),
        Some(Medium::Turns) => vec![SharedMedium::Turns],
        Some(Medium::Ethernet) => vec![SharedMedium::Ethernet],
        Some(Medium::FullDuplex) => vec![SharedMedium::FullDuplex],
    };
    Ok(SimulatedOptions {
        experiments: once(&args.experiments).into_iter().map(CopyExperiment::from).collect(),
        media,
        bytes: VIRTUAL_BYTES,
        first_seed: args.seed,
        seeds: args.seeds(),
        threads: available_parallelism().unwrap_or(NonZeroUsize::MIN),
        bar: true,
        command: virtual_command(args)?,
    })
}

fn virtual_command(args: &CopyLab) -> Result<String> {
    let name = |value: PossibleValue| value.get_name().to_owned();
    let mut words: Vec<String> = ["remora", "lab", "copy"].map(str::to_owned).into();
    words.extend(once(&args.experiments).iter().filter_map(ValueEnum::to_possible_value).map(name));
    let medium = args.medium.as_ref().and_then(ValueEnum::to_possible_value).map(name);
    words.extend(medium.into_iter().flat_map(|medium| ["--medium".to_owned(), medium]));
    words.extend(["--seeds".to_owned(), args.seeds().to_string(), "--seed".to_owned(), args.seed.to_string()]);
    stdio::for_shell(&words)
}

fn options(args: &CopyLab) -> Result<Options> {
    let access = match args.medium.unwrap_or(Medium::Turns) {
        Medium::Turns => Access::Turns,
        Medium::Ethernet => Access::Collisions,
        Medium::FullDuplex => return Err(Error::Usage("--medium full-duplex: only with EXPERIMENT".into())),
    };
    let only = args.only();
    let systems = if only.is_empty() { CopySystem::ALL.to_vec() } else { only };
    Ok(Options {
        rate: args.rate,
        access,
        sizes: args.sizes_mb().into_iter().map(|mb| mb * 1_000_000).collect(),
        loads_percent: args.loads(),
        systems,
        first_seed: args.seed,
        seeds: args.seeds(),
        jobs: args.jobs,
        directory: args.dir.clone(),
        lateness_max: args.lateness_max,
        binary: std::env::current_exe().map_err(Error::local("this program"))?,
        command: command(args)?,
    })
}

/// The command that makes the same runs again, for a shell.
fn command(args: &CopyLab) -> Result<String> {
    let list = |items: Vec<String>| items.join(",");
    let mut words: Vec<String> = ["remora", "lab", "copy", "--rate"].map(str::to_owned).into();
    words.push(args.rate.to_string());
    if args.medium == Some(Medium::Ethernet) {
        words.extend(["--medium", "ethernet"].map(str::to_owned));
    }
    words.extend(["--sizes".to_owned(), list(args.sizes_mb().iter().map(u64::to_string).collect())]);
    words.extend(["--loads".to_owned(), list(args.loads().iter().map(f64::to_string).collect())]);
    words.extend(["--seeds".to_owned(), args.seeds().to_string(), "--seed".to_owned(), args.seed.to_string()]);
    words.extend(["--jobs".to_owned(), args.jobs.to_string()]);
    words.extend(args.only().iter().flat_map(|system| ["--only".to_owned(), system.name().to_owned()]));
    words.extend(args.dir.iter().flat_map(|dir| ["--dir".to_owned(), dir.to_string_lossy().into_owned()]));
    words.extend(["--lateness-max".to_owned(), format!("{}ms", args.lateness_max.as_secs_f64() * 1e3)]);
    stdio::for_shell(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::publication::tests::{assert_reproducible, parsed};

    #[test]
    fn virtual_command_makes_the_same_runs() {
        for (words, line) in [
            (&["media"][..], "media --seeds 10 --seed 1"),
            (
                &["stations", "parts", "parts", "--medium", "full-duplex", "--seeds", "2", "--seed", "7"],
                "stations parts --medium full-duplex --seeds 2 --seed 7",
            ),
        ] {
            let line = format!("remora lab copy {line}");
            assert_reproducible::<CopyLab>(words, &line, |args| virtual_command(args).unwrap());
        }
        let real: CopyLab = parsed(&["--medium", "full-duplex"]);
        assert!(matches!(options(&real), Err(Error::Usage(_))));
    }

    #[test]
    fn recorded_command_makes_the_same_runs() {
        for (words, line) in [
            (
                &[][..],
                "--rate 10Mbit --sizes '1,5' --loads '0,10,60,98' --seeds 10 --seed 1 --jobs 4 --lateness-max 5ms",
            ),
            (
                &["--quick"],
                "--rate 10Mbit --sizes 1 --loads '0,10,60,98' --seeds 3 --seed 1 --jobs 4 --lateness-max 5ms",
            ),
            (
                &["--only", "remora", "--only", "remora", "--sizes", "1,1", "--loads", "0,0,10"],
                "--rate 10Mbit --sizes 1 --loads '0,10' --seeds 10 --seed 1 --jobs 4 --only remora --lateness-max 5ms",
            ),
            (
                &[
                    "--full", "--medium", "ethernet", "--rate", "100Mbit", "--jobs", "1", "--only", "ftp", "--loads",
                    "12.5%", "--dir", "/a b",
                ],
                "--rate 100Mbit --medium ethernet --sizes '1,2,5,10,20,25,50,75,100' --loads 12.5 --seeds 10 --seed 1 --jobs 1 --only ftp \
                 --dir '/a b' --lateness-max 5ms",
            ),
        ] {
            assert_reproducible(words, &format!("remora lab copy {line}"), |args| command(args).unwrap());
        }
    }
}
