//! `remora lab wireless`: the papers' experiments and others, in virtual or real time.

use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum as _};
use remora_lab::wireless;
use remora_lab::wireless::real::{HAND_OFF_DIR, Others, Real, Setup};
use remora_lab::wireless::{Conditions, Experiment, Options, Origin, Runner, SEEDS, SEEDS_MAX, Simulator, Work, real};

use crate::commands::lab::channel::Distribution;
use crate::commands::lab::publication;
use crate::commands::lab::publication::{Publication, ReportFlags, ThreadFlags, there_are_seeds};
use crate::config::units;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
By default, runs the real client, server and link code in a simulation, in
virtual time and on all processors. With --real, runs real programs on an
emulated link in real time.

Examples:
  remora lab wireless --list
  # the tables of NFS/W 95 beside the paper's figures
  remora lab wireless treatments two-mobiles
  remora lab wireless --seeds 30 --html wireless.html
  remora lab wireless --real --list
  remora lab wireless --real --peers bursts --html real.html
  remora lab wireless bursts --json \\
      | jq '.experiments[].cells[] | [.labels, .ratio.median]'

--json prints one object: version, source, complete (false: interrupted),
command, first_seed, seeds, experiments (name, about, origin, seeds, cells);
each cell: labels (by axis), source, settings, limit_seconds, seeds, results
(measure, summary, values; null: over the limit, or not applicable),
floor_seconds, ratio, paper, reduction_percent, reduction_interval_percent (95 %
interval), paper_reduction_percent, failures. A summary: runs, censored, median,
low and high (95 % interval of the median), min, max, mean (of the runs that
ended). --real adds peers, jobs, lateness_ms_bound, and to each cell simulated,
difference_percent, fastest, lateness_ms_max, repeated.
docs/results/wireless.md and docs/results/peers.md have more.";

const JOBS: NonZeroUsize = NonZeroUsize::new(8).unwrap();
const GUESTS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
const LATENESS_MAX: &str = "5ms";

#[derive(Args, Debug)]
pub(crate) struct Wireless {
    /// Experiments to run [default: all]
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,
    /// List the experiments
    #[arg(long, conflicts_with = "json")]
    pub(crate) list: bool,
    /// Seeds for each cell; an interval needs 6 [default: 10; two-mobiles, simulated: 40]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub(crate) seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "FIRST", default_value = "1")]
    pub(crate) seed: u64,
    /// Use three seeds; with --real and no EXPERIMENT, run only check and bursts
    #[arg(long, conflicts_with = "seeds")]
    pub(crate) quick: bool,
    /// Run only cells at this level, such as "80 ms" or scp; several levels of one axis are alternatives.
    /// An unknown level lists all levels
    #[arg(long, value_name = "LEVEL")]
    pub(crate) only: Vec<String>,
    /// Distribution of the lengths of good and bad periods [default: uniform]
    #[arg(long, value_enum)]
    pub(crate) distribution: Option<Distribution>,
    /// Run real programs in network namespaces on an emulated link, in real time (root)
    #[arg(long, conflicts_with = "threads")]
    pub(crate) real: bool,
    /// Also run other systems: the Linux kernel's NFS client in a guest, libnfs, scp, rsync
    #[arg(long, requires = "real")]
    pub(crate) peers: bool,
    /// Concurrent runs, each on its own link
    #[arg(long, value_name = "N", default_value_t = JOBS, requires = "real")]
    pub(crate) jobs: NonZeroUsize,
    /// Maximum lateness of the emulator in a valid run
    #[arg(long, value_name = "TIME", default_value = LATENESS_MAX, requires = "real", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    /// Concurrent guests; each uses half a processor
    #[arg(long, value_name = "N", default_value_t = GUESTS, requires = "peers")]
    pub(crate) guests: NonZeroUsize,
    /// Unpacked linux-image package for the guest [default: this machine's kernel, or one from apt-get]
    #[arg(long, value_name = "DIR", requires = "peers")]
    pub(crate) kernel: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: ThreadFlags,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl Wireless {
    /// The flags that count for what real runs give and are not as usual.
    pub(crate) fn unusual(&self) -> Vec<(&'static str, String)> {
        let mut flags = Vec::new();
        if self.jobs != JOBS {
            flags.push(("--jobs", self.jobs.to_string()));
        }
        if units::duration(LATENESS_MAX) != Ok(self.lateness_max) {
            flags.push(("--lateness-max", format!("{}ms", self.lateness_max.as_secs_f64() * 1e3)));
        }
        if self.guests != GUESTS {
            flags.push(("--guests", self.guests.to_string()));
        }
        flags.extend(self.kernel.as_ref().map(|kernel| ("--kernel", kernel.display().to_string())));
        flags
    }
}

/// Seeds for each cell with `--quick`.
const QUICK_SEEDS: u64 = 3;
/// What `--real --quick` runs when nothing is named.
const REAL_QUICK: [&str; 2] = ["check", "bursts"];

pub(crate) async fn run(args: Wireless) -> Result {
    if args.list {
        return stdio::print(&list(args.real));
    }
    let named = if args.real { real::named } else { wireless::named };
    let quick = args.real && args.quick && args.experiments.is_empty();
    let names = if quick { REAL_QUICK.map(str::to_owned).to_vec() } else { args.experiments.clone() };
    let experiments = named(&names).map_err(|unknown| match args.real && real::only_simulated(&unknown) {
        true => Error::Usage(format!("only simulated: {unknown} needs the papers' hosts (docs/results/testbed.md)")),
        false => {
            Error::Usage(format!("unknown experiment '{unknown}'; the experiments are\n{}", list(args.real).trim_end()))
        }
    })?;
    let most = experiments.iter().map(|e| e.seeds(seeds(&args))).max();
    there_are_seeds(args.seed, most.unwrap_or(SEEDS))?;
    if args.real {
        be_deaf()?;
    }
    let stop = interrupt::wait();
    tokio::pin!(stop);
    // Its first poll is what makes signals wait for us.
    tokio::select! {
        biased;
        number = &mut stop => return Err(Error::Interrupted(number)),
        () = std::future::ready(()) => {}
    }
    let page = args.report.reserve()?;
    let mut options = options(&args, experiments)?;
    if !args.real {
        return work(&args, page, options, Simulator, stop).await;
    }
    let real = real_runner(&args)?;
    options.peers = real.peers().to_vec();
    work(&args, page, options, real, stop).await
}

/// Runs it all, and shows what there is at the end, or when a signal of the number that `stop`
/// gives comes.
async fn work<R: Runner + Send + 'static>(
    args: &Wireless,
    page: Publication,
    options: Options,
    runner: R,
    stop: impl Future<Output = u8>,
) -> Result {
    let work = Arc::new(Work::plan(options, runner).map_err(|e| Error::Usage(format!("--only: {e}")))?);
    let (at_work, quiet) = (work.clone(), args.report.json);
    // It keeps all processors busy and cannot be cut short: it has threads of its own.
    let runs = tokio::task::spawn_blocking(move || {
        // The first failure ends what is printed, and not what is run: a page may be wanted of it.
        let printed = Mutex::new(Ok(()));
        at_work.run(|ended| {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            if !quiet && printed.is_ok() {
                *printed = stdio::print(&ended.to_text(stdio::report_width()));
            }
        });
        printed.into_inner().unwrap_or_else(PoisonError::into_inner)
    });
    let (printed, interrupted) = tokio::select! {
        done = runs => (publication::finished(done)?, None),
        number = stop => (Ok(()), Some(number)),
    };
    // A second signal ends what a reader who does not read holds up.
    let shown = tokio::task::spawn_blocking(move || show(&work, printed, page));
    let failures = tokio::select! {
        done = shown => publication::finished(done)??,
        number = interrupt::again() => return Err(Error::Interrupted(number)),
    };
    match (interrupted, failures) {
        (Some(number), _) => Err(Error::Interrupted(number)),
        (None, failures) => publication::failed(failures),
    }
}

/// Shows what has not been shown yet, if what has been was `printed`; how many runs failed.
fn show<R: Runner>(work: &Work<R>, printed: Result, page: Publication) -> Result<usize> {
    let report = work.report();
    publication::publish(&report, || printed.map(|()| work.rest(&report, stdio::report_width())), page)?;
    Ok(report.failures())
}

/// What is measured must not hear of the cell switches of this machine. This process is a client,
/// too, where it saves small files: it starts anew with nowhere to listen, unless it has done so.
fn be_deaf() -> Result {
    let nowhere = Path::new("/dev/null");
    if std::env::var_os(HAND_OFF_DIR).is_some_and(|dir| Path::new(&dir) == nowhere) {
        return Ok(());
    }
    let binary = std::env::current_exe().map_err(Error::local("this program"))?;
    let mut again = Command::new(binary);
    again.args(std::env::args_os().skip(1)).env(HAND_OFF_DIR, nowhere);
    Err(Error::local("this program")(again.exec()))
}

/// Real programs: this one and others.
fn real_runner(args: &Wireless) -> Result<Real> {
    let binary = std::env::current_exe().map_err(Error::local("this program"))?;
    let others = args.peers.then(|| Others { guests: args.guests, kernel: args.kernel.clone() });
    let real = Real::new(Setup { binary, lateness_max: args.lateness_max, others });
    real.check().map_err(publication::cannot_emulate)?;
    Ok(real)
}

fn list(real: bool) -> String {
    let all = if real { real::all() } else { wireless::all() };
    let mut text = String::new();
    for (origin, title) in [(Origin::Papers, "The papers':"), (Origin::Beyond, "Beyond them:")] {
        let of = |e: &&&Experiment| e.origin == origin;
        let lines: String = all.iter().filter(of).map(|e| format!("  {:<17} {}\n", e.name, e.about)).collect();
        if !lines.is_empty() {
            text += &format!("{title}\n{lines}");
        }
    }
    text
}

fn options(args: &Wireless, experiments: Vec<&'static Experiment>) -> Result<Options> {
    let seeds = seeds(args);
    Ok(Options {
        command: command(args, &experiments, seeds)?,
        experiments,
        first_seed: args.seed,
        seeds,
        threads: if args.real { args.jobs } else { args.threads.count() },
        bar: true,
        only: args.only.clone(),
        distribution: args.distribution.map(Into::into),
        peers: Vec::new(),
        conditions: args
            .real
            .then(|| Conditions { jobs: args.jobs.get(), lateness_ms_bound: args.lateness_max.as_secs_f64() * 1e3 }),
    })
}

/// Seeds for each cell, if it is said how many.
fn seeds(args: &Wireless) -> Option<u64> {
    if args.quick { Some(QUICK_SEEDS) } else { args.seeds }
}

/// The command that makes the same runs again, for a shell: with the experiments' names and
/// whatever of the flags counts and is not as usual.
fn command(args: &Wireless, experiments: &[&Experiment], seeds: Option<u64>) -> Result<String> {
    let mut words: Vec<String> = ["remora", "lab", "wireless"].map(str::to_owned).into();
    if args.real {
        words.push("--real".into());
    }
    if args.peers {
        words.push("--peers".into());
    }
    words.extend(experiments.iter().map(|e| e.name.to_owned()));
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    args.only.iter().for_each(|level| flag("--only", level.clone()));
    if let Some(distribution) = args.distribution.and_then(|d| d.to_possible_value()) {
        flag("--distribution", distribution.get_name().to_owned());
    }
    if let Some(seeds) = seeds {
        flag("--seeds", seeds.to_string());
    }
    flag("--seed", args.seed.to_string());
    args.unusual().into_iter().for_each(|(name, value)| flag(name, value));
    stdio::for_shell(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::publication::tests::assert_reproducible;

    #[test]
    fn recorded_command_makes_the_same_runs() {
        let bursts = real::named(&["bursts".into()]).unwrap();
        for (words, line) in [
            (&["--quick", "bursts"][..], "remora lab wireless bursts --seeds 3 --seed 1"),
            (&["--distribution", "fixed"], "remora lab wireless bursts --distribution fixed --seed 1"),
            (
                &["--only", "papers' settings", "--only", "80 ms", "--threads", "1"],
                "remora lab wireless bursts --only \"papers' settings\" --only '80 ms' --seed 1",
            ),
            (
                &["--real", "--peers", "--jobs", "2", "--lateness-max", "50ms", "--guests", "1", "--kernel", "a b"],
                "remora lab wireless --real --peers bursts --seed 1 --jobs 2 --lateness-max 50ms \
                 --guests 1 --kernel 'a b'",
            ),
        ] {
            assert_reproducible(words, line, |args: &Wireless| command(args, &bursts, seeds(args)).unwrap());
        }
    }
}
