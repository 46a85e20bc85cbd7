//! `remora lab mount`: programs on mounts over an emulated link, beside sshfs and the Linux kernel's client.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use remora_base::Rate;
use remora_channel::{Config, ErrorModel};
use remora_lab::mount;
use remora_lab::mount::{JOBS_MAX, MountSystem, Options, SEEDS_MAX, Work};

use crate::commands::lab::publication;
use crate::commands::lab::publication::{ReportFlags, there_are_seeds};
use crate::config::units;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
Programs work on a mounted directory over an emulated link, half duplex and with
bad periods: remora mount over UDP, ATP and TCP, over UDP with --writes back,
sshfs, and the Linux kernel's NFS client in a QEMU guest.
Each work has a link and a mount of its own, so caches are cold at first.

Works: list (ls -lR of 2000 files in 50 directories, cold and again), git-status
(2000 files whose index must be refreshed), read and write (1 MiB, fsync), save
(20 KB as an editor does), untar (200 files of 50 to 400 bytes), make (11 C
files), beside (20 KB files opened and 100-byte files made while 4 MiB is
written). Each step is cut off at --limit.

Examples:
  remora lab mount --html mount.html
  remora lab mount --only udp --only sshfs --work make --seeds 1
  remora lab mount --work list --long           # also after ten minutes
  remora lab mount --json | jq '.verdicts[] | [.measure, .system, .met]'

Exit codes: 0 all runs completed (with --check: and met all bars), 1 otherwise,
130 Ctrl-C, after a report on the completed runs.

--json prints one object: version, source, command, first_seed, seeds, complete,
rate_bits_per_s, delay_ms, limit_seconds, took_s, lateness_ms_bound,
lateness_ms, peers (system, version, missing), cells (system, measure, seconds,
floor_seconds, beside_seconds, invalid, runs: seed, seconds), verdicts (measure,
system, seconds, bar_seconds, compared_to, met), invalid and failures (system,
work, seed, why). null is a step that was cut off. docs/results/mount.md has
more.";

#[derive(Args, Debug)]
pub(crate) struct MountLab {
    /// Rate of the link
    #[arg(long, default_value = "1Mbit")]
    pub(crate) rate: Rate,
    /// Propagation delay, one way
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = units::duration)]
    pub(crate) delay: Duration,
    /// Mean length of bad periods, each after a good one of 1 s on average; 0: none
    #[arg(long, value_name = "TIME", default_value = "80ms", value_parser = units::duration)]
    pub(crate) bad_mean: Duration,
    /// Run only this system: udp, atp, tcp, back, sshfs or linux. May be repeated [default: all]
    #[arg(long, value_name = "SYSTEM", value_parser = system)]
    only: Vec<MountSystem>,
    /// Run only this work. May be repeated [default: all]
    #[arg(long = "work", value_name = "WORK", value_parser = work)]
    works: Vec<Work>,
    /// Also list the tree after ten minutes
    #[arg(long)]
    pub(crate) long: bool,
    /// Seeds for each work
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub(crate) seeds: u64,
    /// The first seed
    #[arg(long, value_name = "FIRST", default_value = "1")]
    pub(crate) seed: u64,
    /// Time limit of each step
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = limit)]
    pub(crate) limit: Duration,
    /// Concurrent runs, each on its own link
    #[arg(long, value_name = "N", default_value = "4", value_parser = jobs)]
    pub(crate) jobs: NonZeroUsize,
    /// Maximum lateness of the emulator in a valid run
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    /// Unpacked linux-image package for the guest [default: this machine's kernel, or one from apt-get]
    #[arg(long, value_name = "DIR")]
    kernel: Option<PathBuf>,
    /// Exit with code 1 if a bar is missed or a run is not valid
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

fn system(text: &str) -> Result<MountSystem, String> {
    let names = || MountSystem::ALL.map(MountSystem::name).join(", ");
    MountSystem::named(text).ok_or_else(|| format!("unknown system; the systems are {}", names()))
}

fn work(text: &str) -> Result<Work, String> {
    Work::named(text).ok_or_else(|| format!("unknown work; the works are {}", Work::ALL.map(Work::name).join(", ")))
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let jobs: NonZeroUsize = text.parse().map_err(|_| format!("'{text}' is not a number above 0"))?;
    if jobs.get() <= JOBS_MAX { Ok(jobs) } else { Err(format!("{text} is out of range: 1 to {JOBS_MAX}")) }
}

fn limit(text: &str) -> Result<Duration, String> {
    let limit = units::duration(text)?;
    let range = Duration::from_secs(1)..=Duration::from_secs(3600);
    if range.contains(&limit) { Ok(limit) } else { Err(format!("{text} is out of range: 1s to 1h")) }
}

pub(crate) async fn run(args: MountLab) -> Result {
    there_are_seeds(args.seed, args.seeds)?;
    let signal = interrupt::catch();
    let page = args.report.reserve()?;
    let options = options(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let mut study = tokio::task::spawn_blocking(move || mount::run(&options, &stopped));
    let (report, number) = tokio::select! {
        done = &mut study => (done, None),
        number = signal => {
            stop.store(true, Ordering::Release);
            (study.await, Some(number))
        }
    };
    let report = publication::finished(publication::finished(report)?)?;
    publication::publish(&report, || Ok(report.to_text()), page)?;
    if let Some(number) = number {
        return Err(Error::Interrupted(number));
    }
    publication::failed(report.failures())?;
    match report.unmet() {
        0 => Ok(()),
        _ if !args.check => Ok(()),
        n => Err(Error::refused("the laboratory", format!("{n} bars are missed or not valid"))),
    }
}

fn options(args: &MountLab) -> Result<Options> {
    let link = Config {
        rate: args.rate,
        delay: args.delay,
        errors: if args.bad_mean.is_zero() { ErrorModel::None } else { ErrorModel::bursts(args.bad_mean) },
        ..Options::usual_link()
    };
    link.validate().map_err(|e| Error::Usage(e.to_string()))?;
    let named = |system: &MountSystem| args.only.is_empty() || args.only.contains(system);
    Ok(Options {
        link,
        systems: MountSystem::ALL.into_iter().filter(named).collect(),
        works: works(args),
        long: args.long,
        first_seed: args.seed,
        seeds: args.seeds,
        limit: args.limit,
        jobs: args.jobs,
        lateness_max: args.lateness_max,
        binary: std::env::current_exe().map_err(Error::local("this program"))?,
        kernel: args.kernel.clone(),
        bar: !args.report.json,
        command: command(args)?,
    })
}

fn works(args: &MountLab) -> Vec<Work> {
    Work::ALL.into_iter().filter(|work| args.works.is_empty() || args.works.contains(work)).collect()
}

/// The command that makes the same runs again, for a shell.
fn command(args: &MountLab) -> Result<String> {
    let milliseconds = |time: Duration| format!("{}ms", time.as_secs_f64() * 1e3);
    let mut words: Vec<String> = ["remora", "lab", "mount"].map(str::to_owned).into();
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    add("--rate", args.rate.to_string());
    add("--delay", milliseconds(args.delay));
    add("--bad-mean", milliseconds(args.bad_mean));
    for system in MountSystem::ALL.into_iter().filter(|system| args.only.contains(system)) {
        add("--only", system.name().to_owned());
    }
    for work in works(args).into_iter().filter(|_| !args.works.is_empty()) {
        add("--work", work.name().to_owned());
    }
    add("--seeds", args.seeds.to_string());
    add("--seed", args.seed.to_string());
    add("--limit", milliseconds(args.limit));
    add("--jobs", args.jobs.to_string());
    add("--lateness-max", milliseconds(args.lateness_max));
    if let Some(kernel) = &args.kernel {
        words.extend(["--kernel".to_owned(), kernel.display().to_string()]);
    }
    words.extend(args.long.then(|| "--long".to_owned()));
    stdio::for_shell(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::publication::tests::assert_reproducible;

    #[test]
    fn recorded_command_makes_the_same_runs() {
        const LINK: &str = "--rate 1Mbit --delay 20ms --bad-mean 80ms";
        const REST: &str = "--seed 1 --limit 300000ms --jobs 4 --lateness-max 5ms";
        for (words, line) in [
            (&[][..], format!("{LINK} --seeds 5 {REST}")),
            (
                &["--only", "sshfs", "--only", "udp", "--work", "make", "--work", "list", "--long", "--seeds", "2"],
                format!("{LINK} --only udp --only sshfs --work list --work make --seeds 2 {REST} --long"),
            ),
        ] {
            assert_reproducible(words, &format!("remora lab mount {line}"), |args| command(args).unwrap());
        }
    }
}
