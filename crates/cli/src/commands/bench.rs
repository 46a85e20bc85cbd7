//! `remora bench`: measures a server's performance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use remora_client::Transport;
use remora_host::client::{ClientError, Target};
use remora_lab::atp::loopback;
use remora_lab::bench;
use remora_lab::bench::{
    BenchError, BenchReport, BenchTarget, CONNECTIONS_MAX, FILES_MAX, Fault, Left, OUTSTANDING_MAX, Options, ROUNDS_MAX,
};

use crate::config::settings::names;
use crate::config::units;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;
use crate::remote::flags::Proto;
use crate::remote::servers::own_credentials;

pub(crate) const HELP: &str = "\
Creates a directory (remora-bench-...) in the directory of the URL, loads the
server with one operation after the other, checks every reply, and removes the
directory again, also on Ctrl-C. With --vs each round runs on both servers in
random order, and ratios compare the runs of a round; an interval needs 6
rounds.

Examples:
  remora bench nfs://nas/export/tmp
  remora bench --list
  remora bench nfs://nas/tmp --ops getattr,mix --outstanding 32 \\
      --connections 4 --duration 10s
  remora bench 'nfs://127.0.0.1:2049/srv' \\
      --vs 'nfs://127.0.0.1:3049/srv?mountport=20048' --outstanding 32
  remora bench 'nfs://nas/tmp?proto=udp' --ops getattr --json \\
      | jq '.operations[0].servers[0].latency'
  remora bench --drc
  remora bench --atp
  remora bench --atp --datagram 1452

--json prints one object: version, settings (transport of each server,
outstanding, connections, seconds, warm_up_seconds, count, rounds, files, seed),
servers (URLs), operations (name, about, servers, ratio), skipped (operation,
server, why). For each server: per_second, bytes_per_second, latency (p50_us,
p90_us, p99_us, p999_us, max_us; null: nothing completed), runs (operations,
seconds, per_second, bytes, entries, latency, lost, late, generator_busy,
generator_cpus). ratio: per_second and p99 of the first server divided by those
of the second (null: no round to compare). A summary has runs, censored (always
0 here), median, low and high (95 % interval of the median), min, max, mean.
docs/reference/bench.md has more.";

#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// A writable directory on the server
    #[arg(value_name = "URL", required_unless_present_any = ["list", "drc", "atp"], value_parser = names::url)]
    pub(crate) url: Option<String>,
    /// Compare with this server
    #[arg(long, value_name = "URL", value_parser = names::url)]
    pub(crate) vs: Option<String>,
    /// Operations to measure [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) ops: Vec<String>,
    /// List the operations
    #[arg(long, conflicts_with_all = ["url", "drc", "json"])]
    pub(crate) list: bool,
    /// Outstanding calls, over all connections
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_most(OUTSTANDING_MAX as u64))]
    pub(crate) outstanding: u64,
    /// Connections to the server
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_most(CONNECTIONS_MAX as u64))]
    pub(crate) connections: u64,
    /// Transport; overrides the URLs [default: tcp]
    #[arg(long, value_enum)]
    pub(crate) proto: Option<Proto>,
    /// Duration of a run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::some_duration)]
    pub(crate) duration: Duration,
    /// Duration of the load before each run
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = units::duration)]
    pub(crate) warm_up: Duration,
    /// Operations in a run, instead of --duration (create-remove and commit are pairs of calls)
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warm_up"], value_parser = at_most(u64::MAX))]
    pub(crate) count: Option<u64>,
    /// Runs of each operation on each server [default: 1; with --vs and --atp: 7]
    #[arg(long, value_name = "N", value_parser = at_most(ROUNDS_MAX as u64))]
    pub(crate) rounds: Option<u64>,
    /// Files in the directory that readdirplus lists
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_most(FILES_MAX))]
    pub(crate) files: u64,
    /// Give up if a server does not answer for this long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = units::some_duration)]
    pub(crate) timeout: Duration,
    /// Seed for the order of runs, files and offsets
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Measure the duplicate request cache alone, without a server
    #[arg(long, conflicts_with_all = ["url", "vs", "ops"])]
    pub(crate) drc: bool,
    /// Measure ATP and plain QUIC over loopback, without a server (--count: objects of 1 MiB)
    #[arg(long, conflicts_with_all = ["url", "vs", "ops", "list", "drc"])]
    pub(crate) atp: bool,
    /// With --atp: maximum datagram of both, without IP and UDP headers (1452 fits Ethernet)
    /// [default: for ATP what loopback carries, up to 8952; for QUIC 1452]
    #[arg(long, value_name = "BYTES", requires = "atp", value_parser = clap::value_parser!(u16).range(DATAGRAMS))]
    pub(crate) datagram: Option<u16>,
    /// Print a JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// What can be found out to get through: QUIC's smallest, and what fits jumbo frames.
const DATAGRAMS: std::ops::RangeInclusive<i64> = 1200..=8952;

/// 1 to `max`.
fn at_most(max: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=max)
}

/// Rounds with two servers: one more than an interval needs.
const ROUNDS_TWO: u64 = 7;

pub(crate) async fn run(args: Bench) -> Result {
    if args.list {
        return stdio::print(&list());
    }
    if args.drc {
        return cache(args.json).await;
    }
    if args.atp {
        return atp(&args).await;
    }
    let options = options(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut work = tokio::spawn(bench::run(options, stop.clone()));
    tokio::select! {
        done = &mut work => {
            let (report, left) = done.map_err(crashed)?;
            let told = report.map_err(told).and_then(|report| show(&report, args.json));
            told.and(say_left(&left))
        }
        number = interrupt::wait() => {
            stop.store(true, Ordering::Relaxed);
            stdio::eprint("removing the test directory on the server; Ctrl-C again leaves it there");
            tokio::select! {
                // The signal is what ended it.
                done = work => drop(say_left(&done.map_err(crashed)?.1)),
                _ = interrupt::again() => {}
            }
            Err(Error::Interrupted(number))
        }
    }
}

fn crashed(e: tokio::task::JoinError) -> Error {
    Error::refused("no results", e.to_string())
}

fn show(report: &BenchReport, json: bool) -> Result {
    if json { stdio::print_json(report) } else { stdio::print(&report.to_text(stdio::report_width())) }
}

/// What is left on servers is an error, and can be removed by hand.
fn say_left(left: &[Left]) -> Result {
    for Left { url, name, source } in left {
        stdio::eprint(format_args!("remora: bench: {url}: {name} could not be removed: {source}"));
        stdio::eprint(format_args!("hint: when the server answers again, remove the directory with remora rm -r"));
    }
    if left.is_empty() { Ok(()) } else { Err(Error::Reported(1)) }
}

async fn cache(json: bool) -> Result {
    let report = tokio::task::spawn_blocking(bench::drc::run);
    let work = async { report.await.map_err(crashed) };
    let report = tokio::select! {
        report = work => report?,
        number = interrupt::wait() => return Err(Error::Interrupted(number)),
    };
    if json { stdio::print_json(&report) } else { stdio::print(&report.to_text(stdio::report_width())) }
}

/// ATP beside QUIC.
async fn atp(args: &Bench) -> Result {
    let defaults = loopback::Options::default();
    let options = loopback::Options {
        objects: args.count.unwrap_or(defaults.objects),
        rounds: args.rounds.map_or(defaults.rounds, |n| n as usize),
        seed: args.seed,
        datagram: args.datagram,
        ..defaults
    };
    if options.objects.saturating_mul(options.size as u64) > loopback::BYTES_MAX {
        return Err(Error::Usage(format!("--count must be at most {}", loopback::BYTES_MAX / options.size as u64)));
    }
    let report = tokio::task::spawn_blocking(move || loopback::run(&options));
    let work = async { report.await.map_err(crashed)?.map_err(|e| Error::refused("no results", e.to_string())) };
    let report = tokio::select! {
        report = work => report?,
        number = interrupt::wait() => return Err(Error::Interrupted(number)),
    };
    if args.json {
        stdio::print_json(&report)?
    } else {
        stdio::print(&report.to_text(stdio::report_width()))?
    }
    if report.holds() { Ok(()) } else { Err(Error::refused("the figures", "ATP is slower than required")) }
}

fn list() -> String {
    bench::ALL.iter().map(|o| format!("  {:<15} {}\n", o.name, o.about)).collect()
}

fn options(args: &Bench) -> Result<Options> {
    let names = bench::ALL.iter().map(|o| o.name.to_owned());
    let ops = if args.ops.is_empty() { names.collect() } else { args.ops.clone() };
    let operations = bench::named(&ops).map_err(|unknown| {
        Error::Usage(format!("unknown operation '{unknown}'; the operations are\n{}", list().trim_end()))
    })?;
    if args.connections > args.outstanding {
        let (c, o) = (args.connections, args.outstanding);
        return Err(Error::Usage(format!("{o} outstanding calls cannot fill {c} connections: use --outstanding {c}")));
    }
    let urls = args.url.iter().chain(&args.vs);
    let targets = urls.map(|url| place(url, args.proto)).collect::<Result<Vec<_>>>()?;
    let rounds = args.rounds.unwrap_or(if targets.len() > 1 { ROUNDS_TWO } else { 1 });
    Ok(Options {
        targets,
        operations,
        outstanding: args.outstanding as usize,
        connections: args.connections as usize,
        duration: args.duration,
        warm_up: args.warm_up,
        count: args.count,
        rounds: rounds as usize,
        files: args.files,
        patience: args.timeout,
        seed: args.seed,
        cred: own_credentials(),
        bar: !args.quiet && !args.json,
    })
}

fn place(url: &str, proto: Option<Proto>) -> Result<BenchTarget> {
    let mut target = Target::parse(url)?;
    let asked = match proto {
        Some(Proto::Udp) => Some(Transport::Udp),
        Some(Proto::Tcp) => Some(Transport::Tcp),
        Some(Proto::Atp) => Some(Transport::Atp),
        Some(Proto::Auto) | None => target.transport,
    };
    // What is measured shall not depend on which of the two answers first.
    target.transport = asked.or(Some(Transport::Tcp));
    if target.transport == Some(Transport::Atp) {
        return Err(Error::Usage(format!("{url}: bench supports UDP and TCP; use bench --atp to measure ATP")));
    }
    Ok(BenchTarget { url: url.to_owned(), target })
}

/// The error as the command line tells it.
fn told(error: BenchError) -> Error {
    match error {
        BenchError::Client { url, source } => Error::Remote { what: url, source },
        BenchError::Run { url, operation, source } => {
            let what = format!("{url}: {operation}");
            let server = "the server".to_owned();
            let source = match source {
                Fault::Connect(source) => ClientError::Connect { server, source },
                Fault::Silent(_) => ClientError::Silent { server, what: "" },
                Fault::Closed | Fault::Broken(_) => ClientError::Closed,
                other => return Error::refused(what, other.to_string()),
            };
            Error::Remote { what, source }
        }
        BenchError::Local(why) => Error::refused("no results", why),
        // Only a signal, which is seen before, sets the flag.
        BenchError::Interrupted => Error::refused("no results", "interrupted"),
    }
}
