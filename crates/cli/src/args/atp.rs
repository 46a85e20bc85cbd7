//! The flags of `remora lab atp`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_lab::atp::{Experiment, Protocol, SEEDS_MAX, Workload};

use crate::units;

pub(crate) const HELP: &str = "\
ATP 02 measured how many objects with priorities and deadlines get through in
time when the bandwidth comes and goes between 0 and 200 KB/s: ATP, TCP, and
several TCP connections at a time. Everything is simulated, on all processors:
the real ATP code in virtual time; for TCP, QUIC connections with CUBIC stand
in. Beside it is what one could have delivered who knows the future.

Experiments: deadlines (Table 2, Figure 6b to d), estimate (Figure 4), timeline
(Figure 5), bulk (Figure 6a). With --real, deadlines and bulk are made by real
endpoints and the kernel's TCP (CUBIC) on emulated links, several cells at a
time and each in the time it takes: one with deadlines five minutes, all of bulk
about three.

Examples:
  remora lab atp
  remora lab atp deadlines --workload filesystem --workload random --seeds 30
  remora lab atp --html atp.html
  # lines of time_s,rate_Bps; or a Mahimahi trace
  remora lab atp deadlines --trace mine.csv
  # real endpoints, the kernel's TCP (as root)
  remora lab atp bulk --real
  remora lab atp deadlines --real --workload equal --seeds 1 --from 140s \\
      --length 60s
  remora lab atp --json \\
      | jq '.rows[] | [.workload, .class, .scheme, .of_oracle.median]'

--json prints one object: version, source, command, trace, first_seed, seeds,
made (experiment, link, first_seed, runs: what each uses of these), rows
(workload, class, scheme, objects, oracle, delivered, told, rejected, late,
of_oracle, paper), verdicts (workload, high, baseline, paper_policy, oracle,
of_oracle, low, low_baseline, table_2, missed: in words, [] is good), curves
(scheme, figure, seconds: at, bandwidth, used, estimate), timelines (scheme,
events), bulk (scheme, points: bytes, bytes a second), failures. A figure has
runs, censored, median, low and high (95 % interval of the median), min, max,
mean. docs/results/lab-atp.md has more.";

#[derive(Args, Debug)]
pub(crate) struct Atp {
    /// Which experiments [default: all]
    #[arg(value_name = "EXPERIMENT", value_parser = experiment)]
    pub(crate) experiments: Vec<Experiment>,
    /// Only this workload; may be repeated [default: all seven]
    #[arg(long = "workload", value_name = "NAME", value_parser = workload)]
    pub(crate) workloads: Vec<Workload>,
    /// Only this scheme; may be repeated [default: all]
    #[arg(long = "scheme", value_name = "NAME", value_parser = protocol)]
    pub(crate) protocols: Vec<Protocol>,
    /// Seeds for each cell with deadlines; fewer than 6 give no interval. All else is one run of each cell
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub(crate) seeds: u64,
    /// The first seed; nothing is drawn for bulk
    #[arg(long, value_name = "FIRST", default_value = "1")]
    pub(crate) seed: u64,
    /// The bandwidth over time, instead of the paper's; that of bulk is always 512 KB/s
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Threads; the results do not depend on it [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Real endpoints and the kernel's TCP on emulated links, as root: deadlines and bulk
    #[arg(long)]
    pub(crate) real: bool,
    /// So many cells at a time
    #[arg(long, value_name = "N", default_value = "6", requires = "real")]
    pub(crate) cells: NonZeroUsize,
    /// Propagation there and back
    #[arg(long, value_name = "TIME", default_value = "10ms", requires = "real", value_parser = units::duration)]
    pub(crate) rtt: Duration,
    /// Where in the trace to begin
    #[arg(long, value_name = "TIME", default_value = "0s", requires = "real", value_parser = units::duration)]
    pub(crate) from: Duration,
    /// For how long objects come [default: to the end of the trace]
    #[arg(long, value_name = "TIME", requires = "real", value_parser = units::duration)]
    pub(crate) length: Option<Duration>,
    /// How late a frame may be handed over in a cell that counts
    #[arg(long, value_name = "TIME", default_value = "5ms", requires = "real", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    /// Print an object with every figure instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with tables and drawings, too
    #[arg(long, value_name = "PAGE")]
    pub(crate) html: Option<PathBuf>,
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
