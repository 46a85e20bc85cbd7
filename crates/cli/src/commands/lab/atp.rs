//! `remora lab atp`: objects with priorities and deadlines over an intermittent link.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_lab::atp;
use remora_lab::atp::real::Setup;
use remora_lab::atp::{Experiment, Options, Protocol, SEEDS_MAX, Trace, Workload, real};

use crate::commands::lab::publication;
use crate::commands::lab::publication::{ReportFlags, ThreadFlags, there_are_seeds};
use crate::config::text_file::TRACE_MAX;
use crate::config::{text_file, units};
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
ATP 02 measured how many objects with priorities and deadlines arrive in time
while the bandwidth varies between 0 and 200 KB/s, with ATP, with TCP and with
several TCP connections. By default everything is simulated, on all processors:
the real ATP code in virtual time; QUIC connections with CUBIC stand in for TCP.
An oracle that knows the future bandwidth gives the maximum.

Experiments: deadlines (Table 2, Figure 6b to d), estimate (Figure 4), timeline
(Figure 5), bulk (Figure 6a), contention (2 to 8 ATP hosts on one bottleneck and
in one cell, and beside CUBIC and BBR). With --real, deadlines and bulk use real
endpoints and the kernel's TCP (CUBIC) on emulated links, several cells at once
in real time: five minutes for a cell of deadlines, three for all of bulk.

Examples:
  remora lab atp
  remora lab atp deadlines --workload filesystem --workload random --seeds 30
  remora lab atp --html atp.html
  remora lab atp contention --seeds 6 --html contention.html
  # a trace: lines of time_s,rate_Bps, or in Mahimahi's format
  remora lab atp deadlines --trace mine.csv
  # real endpoints, the kernel's TCP (as root)
  remora lab atp bulk --real
  remora lab atp deadlines --real --workload equal --seeds 1 --from 140s \\
      --length 60s
  remora lab atp --json \\
      | jq '.rows[] | [.workload, .class, .scheme, .of_oracle.median]'

--json prints one object: version, source, command, trace, first_seed, seeds,
made (experiment, link, first_seed, runs: the seeds of each), rows (workload,
class, scheme, objects, oracle, delivered, told, rejected, late, of_oracle,
paper), verdicts (workload, high, baseline, paper_policy, oracle, of_oracle,
low, low_baseline, table_2, missed: in words, [] is good), warnings (workload,
class, scheme, missed, ahead, lead_s, warned, expected, warned_delivered),
curves (scheme, figure, seconds: at, bandwidth, used, estimate), timelines
(scheme, events), bulk (scheme, points: bytes, bytes a second), contention
(place, hosts, jain, shares: kind, of_fair; joined_s, in_time, urgent_p95_ms,
used, lost, curves), failures. A figure has runs, censored, median, low and high
(95 % interval of the median), min, max, mean.
docs/results/lab-atp.md has more.";

#[derive(Args, Debug)]
pub(crate) struct Atp {
    /// Experiments to run [default: all]
    #[arg(value_name = "EXPERIMENT", value_parser = experiment)]
    pub(crate) experiments: Vec<Experiment>,
    /// Run only this workload. May be repeated [default: all seven]
    #[arg(long = "workload", value_name = "NAME", value_parser = workload)]
    pub(crate) workloads: Vec<Workload>,
    /// Run only this scheme. May be repeated [default: all]
    #[arg(long = "scheme", value_name = "NAME", value_parser = protocol)]
    pub(crate) protocols: Vec<Protocol>,
    /// Seeds for each cell of deadlines and contention; an interval needs 6. The other experiments run each cell once
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub(crate) seeds: u64,
    /// The first seed; bulk uses none
    #[arg(long, value_name = "FIRST", default_value = "1")]
    pub(crate) seed: u64,
    /// Trace of the bandwidth [default: the paper's; bulk and contention always have 512 KB/s]
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: ThreadFlags,
    /// Use real endpoints and the kernel's TCP on emulated links (root): deadlines and bulk
    #[arg(long)]
    pub(crate) real: bool,
    /// How many cells run at the same time
    #[arg(long, value_name = "N", default_value = "6", requires = "real")]
    pub(crate) cells: NonZeroUsize,
    /// Round-trip propagation delay
    #[arg(long, value_name = "TIME", default_value = "10ms", requires = "real", value_parser = units::duration)]
    pub(crate) rtt: Duration,
    /// Start position in the trace
    #[arg(long, value_name = "TIME", default_value = "0s", requires = "real", value_parser = units::duration)]
    pub(crate) from: Duration,
    /// Duration of the workload [default: to the end of the trace]
    #[arg(long, value_name = "TIME", requires = "real", value_parser = units::duration)]
    pub(crate) length: Option<Duration>,
    /// Maximum lateness of the emulator in a valid cell
    #[arg(long, value_name = "TIME", default_value = "5ms", requires = "real", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

fn experiment(text: &str) -> Result<Experiment, String> {
    named(text, &Experiment::ALL, Experiment::name)
}

fn workload(text: &str) -> Result<Workload, String> {
    named(text, &Workload::ALL, Workload::name)
}

fn protocol(text: &str) -> Result<Protocol, String> {
    named(text, &Protocol::ALL, Protocol::name)
}

fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let there_are = || all.iter().map(|t| name(*t)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|t| name(*t) == text).ok_or_else(|| format!("there are {}", there_are()))
}

/// Largest round-trip time of an emulated link.
const RTT_MAX: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: Atp) -> Result {
    let options = options(&args)?;
    if args.real {
        tokio::task::block_in_place(real::check).map_err(publication::cannot_emulate)?;
    }
    let page = args.report.reserve()?;
    // The work keeps processors busy and cannot be cut short: a signal ends the process around it.
    let report = publication::finished(tokio::task::spawn_blocking(move || atp::run(&options)).await)?;
    publication::publish(&report, || Ok(report.to_text(stdio::report_width())), page)?;
    publication::failed(report.failures())
}

fn options(args: &Atp) -> Result<Options> {
    there_are_seeds(args.seed, args.seeds)?;
    let trace_name = args.trace.as_ref().map(|path| path.display().to_string());
    let trace = match &args.trace {
        None => Trace::paper(),
        Some(path) => {
            let text = text_file::read(path, TRACE_MAX, "a trace")?;
            Trace::parse(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?
        }
    };
    let real = if args.real { Some(setup(args, &trace)?) } else { None };
    let (experiments, protocols) = match real {
        None => (Experiment::ALL.to_vec(), Protocol::ALL.to_vec()),
        Some(_) => (real::EXPERIMENTS.to_vec(), Protocol::ALL.into_iter().filter(|p| real::takes(*p)).collect()),
    };
    only(&args.experiments, &experiments, Experiment::name)?;
    only(&args.protocols, &protocols, Protocol::name)?;
    Ok(Options {
        real,
        experiments: or_all(&args.experiments, &experiments),
        workloads: or_all(&args.workloads, &Workload::ALL),
        protocols: or_all(&args.protocols, &protocols),
        trace,
        trace_name,
        first_seed: args.seed,
        seeds: args.seeds,
        threads: args.threads.count(),
        bar: true,
        command: command(args)?,
    })
}

/// How real cells are made.
fn setup(args: &Atp, trace: &Trace) -> Result<Setup> {
    let length = args.length.unwrap_or_else(|| trace.length().saturating_sub(args.from));
    if length < Duration::from_secs(1) {
        return Err(Error::Usage("less than a second of calls: choose a longer --length, or an earlier --from".into()));
    }
    if args.rtt > RTT_MAX {
        return Err(Error::Usage(format!("--rtt must be at most {} s", RTT_MAX.as_secs())));
    }
    let Atp { cells, rtt: round_trip, from, lateness_max, .. } = *args;
    Ok(Setup { cells, round_trip, from, length, lateness_max })
}

/// Nothing but what can be had.
fn only<T: Copy + PartialEq>(named: &[T], all: &[T], name: fn(T) -> &'static str) -> Result {
    match named.iter().find(|t| !all.contains(t)) {
        None => Ok(()),
        Some(odd) => Err(Error::Usage(format!("{} is only simulated: omit --real", name(*odd)))),
    }
}

/// Those named, each once and in their usual order; all if none is.
fn or_all<T: Copy + PartialEq>(named: &[T], all: &[T]) -> Vec<T> {
    all.iter().copied().filter(|t| named.is_empty() || named.contains(t)).collect()
}

/// The command that gives the same figures again, for a shell.
fn command(args: &Atp) -> Result<String> {
    let mut words: Vec<String> = ["remora", "lab", "atp"].map(str::to_owned).into();
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    args.workloads.iter().for_each(|w| add("--workload", w.name().to_owned()));
    args.protocols.iter().for_each(|p| add("--scheme", p.name().to_owned()));
    args.trace.iter().for_each(|path| add("--trace", path.to_string_lossy().into_owned()));
    if args.real {
        add("--rtt", time(args.rtt));
        add("--from", time(args.from));
        args.length.iter().for_each(|length| add("--length", time(*length)));
        add("--cells", args.cells.to_string());
        add("--lateness-max", time(args.lateness_max));
    }
    add("--seeds", args.seeds.to_string());
    add("--seed", args.seed.to_string());
    words.splice(3..3, args.experiments.iter().map(|e| e.name().to_owned()));
    words.extend(args.real.then(|| "--real".to_owned()));
    stdio::for_shell(&words)
}

/// A length of time as flags have it.
fn time(length: Duration) -> String {
    match length.as_nanos() {
        n if n.is_multiple_of(1_000_000_000) => format!("{}s", n / 1_000_000_000),
        n if n.is_multiple_of(1_000_000) => format!("{}ms", n / 1_000_000),
        n => format!("{}us", n as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::publication::tests::assert_reproducible;

    #[test]
    fn recorded_command_makes_the_same_runs() {
        for (words, line) in [
            (&["bulk"][..], "bulk --seeds 10 --seed 1"),
            (
                &["--trace", "/my traces/a.csv", "--scheme", "atp", "--seeds", "3"],
                "--scheme atp --trace '/my traces/a.csv' --seeds 3 --seed 1",
            ),
            (
                &[
                    "deadlines",
                    "--real",
                    "--cells",
                    "14",
                    "--lateness-max",
                    "2.5ms",
                    "--from",
                    "140s",
                    "--length",
                    "1m",
                ],
                "deadlines --rtt 10ms --from 140s --length 60s --cells 14 --lateness-max 2500us --seeds 10 --seed 1 --real",
            ),
        ] {
            assert_reproducible(words, &format!("remora lab atp {line}"), |args| command(args).unwrap());
        }
    }
}
