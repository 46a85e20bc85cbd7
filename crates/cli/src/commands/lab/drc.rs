//! `remora lab drc`: DRC 89's load test and its lost write.

use clap::{Args, ValueEnum};
use remora_lab::drc;
use remora_lab::drc::{Execution, Options, Plan, PlanOptions, SEEDS_MAX};

use crate::commands::lab::publication;
use crate::commands::lab::publication::{ReportFlags, ThreadFlags, there_are_seeds};
use crate::output::exit::Result;
use crate::output::stdio;

pub(crate) const HELP: &str = "\
A client writes 1 MB as 128 WRITEs of 8 KB to a server so slow that the client
retransmits. DRC 89 measured this on two servers, each with the duplicate
request cache of its day and with an improved one. By default, runs the real
client and server code in a simulation. With --real, both run on loopback in
real time with a slow disk: two minutes for five seeds.

Examples:
  remora lab drc
  # vary the fitted parameters
  remora lab drc --sensitivity
  # what the paper planned: cache sizes, throwaway windows, clients, old xids
  remora lab drc cache-size throwaway clients timeout-cycles
  remora lab drc --html drc.html
  remora lab drc --real --seeds 3
  remora lab drc --json | jq '.rows[] | [.server, .client, .cache, .speed.mean]'

--json prints one object: version, source, faster, command, first_seed, seeds,
rows (group, server, client, cache, varied, sent, duplicates_sent,
duplicates_processed, speed, margins, change_percent, paper, difference_percent,
damaged, failures), examples (source, cache, events, size, lost),
example_failures. A figure has runs, censored, median, low and high (95 %
interval of the median), min, max, mean; margins are half the 95 % intervals of
means. With EXPERIMENT: experiments (name, about, rows: levels, retransmissions,
hit_rate, executed_again, non_idempotent_again, cache_bytes, speed,
speed_margin, damaged, failures). docs/results/drc.md has more.";

/// Default number of seeds: enough for each mean to be near the model's.
const SEEDS: u64 = 500;
/// The first that nothing was fitted to, and some room.
const FIRST_SEED: &str = "1001";
/// The same with `--real`.
const REAL_SEEDS: u64 = 5;

/// Seeds for each row of the plan's experiments: few, since a run has up to 64 clients.
const PLAN_SEEDS: u64 = 10;

/// Experiments that the paper planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PlanName {
    /// Cache of 16 to 65,536 entries, or of 16 KiB to 64 MiB, under three workloads
    CacheSize,
    /// Throwaway window of 1 to 10 s
    Throwaway,
    /// 1 to 64 clients
    Clients,
    /// Clients that take a new xid for each timeout cycle
    TimeoutCycles,
}

impl From<PlanName> for Plan {
    fn from(name: PlanName) -> Plan {
        match name {
            PlanName::CacheSize => Plan::CacheSize,
            PlanName::Throwaway => Plan::Throwaway,
            PlanName::Clients => Plan::Clients,
            PlanName::TimeoutCycles => Plan::TimeoutCycles,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Drc {
    /// Experiments that the paper planned [default: its tables, today's clients and Example 1]
    #[arg(value_enum, value_name = "EXPERIMENT", conflicts_with_all = ["sensitivity", "real"])]
    pub(crate) experiments: Vec<PlanName>,
    /// Seeds for each row [default: 500; with EXPERIMENT: 10; with --real: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: Option<u64>,
    /// The first seed (the model is fitted to seeds 1 to 60)
    #[arg(long, value_name = "FIRST", default_value = FIRST_SEED)]
    pub(crate) seed: u64,
    /// Also vary the fitted parameters
    #[arg(long, conflicts_with = "real")]
    pub(crate) sensitivity: bool,
    /// Run the real server and client on loopback, with a slow disk
    #[arg(long, conflicts_with = "threads")]
    pub(crate) real: bool,
    /// Speed up timers and disk by this factor (1 to 50); above 1, Remora's client is left out
    #[arg(long, value_name = "TIMES", default_value = "1", requires = "real", value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) faster: u16,
    #[command(flatten)]
    pub(crate) threads: ThreadFlags,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl Drc {
    /// Seeds for each row.
    pub(crate) fn seeds(&self) -> u64 {
        self.seeds.unwrap_or(match (self.real, self.experiments.is_empty()) {
            (true, _) => REAL_SEEDS,
            (false, true) => SEEDS,
            (false, false) => PLAN_SEEDS,
        })
    }
}

pub(crate) async fn run(args: Drc) -> Result {
    there_are_seeds(args.seed, args.seeds())?;
    let page = args.report.reserve()?;
    if !args.experiments.is_empty() {
        let options = plan_options(&args);
        let report = publication::finished(tokio::task::spawn_blocking(move || drc::run_plan(&options)).await)?;
        publication::publish(&report, || Ok(report.to_text(stdio::report_width())), page)?;
        return publication::failed(report.failures());
    }
    let options = options(&args);
    // The work keeps processors busy and cannot be cut short: a signal ends the process around it.
    let report = publication::finished(tokio::task::spawn_blocking(move || drc::run(&options)).await)?;
    publication::publish(&report, || Ok(report.to_text(stdio::report_width())), page)?;
    publication::failed(report.failures())
}

fn options(args: &Drc) -> Options {
    Options {
        way: if args.real { Execution::Real { faster: args.faster.into() } } else { Execution::Simulated },
        first_seed: args.seed,
        seeds: args.seeds(),
        sensitivity: args.sensitivity,
        threads: args.threads.count(),
        bar: true,
        command: command(args),
    }
}

fn plan_options(args: &Drc) -> PlanOptions {
    PlanOptions {
        experiments: args.experiments.iter().copied().map(Plan::from).collect(),
        first_seed: args.seed,
        seeds: args.seeds(),
        threads: args.threads.count(),
        bar: true,
        command: command(args),
    }
}

/// The command that gives the same figures again.
fn command(args: &Drc) -> String {
    let real = if args.real { format!(" --real --faster {}", args.faster) } else { String::new() };
    let sensitivity = if args.sensitivity { " --sensitivity" } else { "" };
    let experiments: String = args.experiments.iter().map(|e| format!(" {}", Plan::from(*e).name())).collect();
    format!("remora lab drc{experiments}{real}{sensitivity} --seeds {} --seed {}", args.seeds(), args.seed)
}
