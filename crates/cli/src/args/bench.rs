//! The flags of `remora bench`.

use std::time::Duration;

use clap::Args;
use remora_lab::bench::{CONNECTIONS_MAX, FILES_MAX, OUTSTANDING_MAX, ROUNDS_MAX};

use super::Proto;
use crate::units;

pub(crate) const HELP: &str = "\
Makes a directory of its own (remora-bench-...) in the one that the URL names,
loads the server with one operation after the other, checks every reply, and
removes the directory again, also on Ctrl-C. With --vs each round has a run on
either server, in random order, and the ratios are those of the rounds; 6 rounds
are needed for an interval.

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
server, why). Of each server: per_second, bytes_per_second, latency (p50_us,
p90_us, p99_us, p999_us, max_us; null: nothing completed), runs (operations,
seconds, per_second, bytes, entries, latency, lost, late, generator_busy,
generator_cpus). ratio: per_second and p99 of the first server over the second
(null: no round to compare). A summary: runs, censored (none here), median, low
and high (95 % interval of the median), min, max, mean.
docs/reference/bench.md has more.";

#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// A directory on the server, in which the caller may write
    #[arg(value_name = "URL", required_unless_present_any = ["list", "drc", "atp"])]
    pub(crate) url: Option<String>,
    /// Compare with this server
    #[arg(long, value_name = "URL")]
    pub(crate) vs: Option<String>,
    /// Which operations [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) ops: Vec<String>,
    /// List the operations
    #[arg(long, conflicts_with_all = ["url", "drc", "json"])]
    pub(crate) list: bool,
    /// Calls outstanding, on all connections together
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_most(OUTSTANDING_MAX as u64))]
    pub(crate) outstanding: u64,
    /// Connections
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_most(CONNECTIONS_MAX as u64))]
    pub(crate) connections: u64,
    /// Transport, whatever the URLs say [default: tcp]
    #[arg(long, value_enum)]
    pub(crate) proto: Option<Proto>,
    /// How long a run takes
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::some_duration)]
    pub(crate) duration: Duration,
    /// How long a server is loaded before that
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = units::duration)]
    pub(crate) warm_up: Duration,
    /// So many operations a run instead (a create-remove or commit is a pair of calls)
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warm_up"], value_parser = at_most(u64::MAX))]
    pub(crate) count: Option<u64>,
    /// Runs of each operation on each server [default: 1, with --vs and --atp 7]
    #[arg(long, value_name = "N", value_parser = at_most(ROUNDS_MAX as u64))]
    pub(crate) rounds: Option<u64>,
    /// Files in the directory that readdirplus lists
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_most(FILES_MAX))]
    pub(crate) files: u64,
    /// Give up when a server has been silent for so long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = units::some_duration)]
    pub(crate) timeout: Duration,
    /// Draws the order of the runs, files and offsets
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Measure the server's duplicate request cache by itself, without a server
    #[arg(long, conflicts_with_all = ["url", "vs", "ops"])]
    pub(crate) drc: bool,
    /// Measure ATP beside plain QUIC over loopback, without a server (--count: objects of 1 MiB)
    #[arg(long, conflicts_with_all = ["url", "vs", "ops", "list", "drc"])]
    pub(crate) atp: bool,
    /// With --atp: the largest datagrams of both, without IP and UDP headers (1452: what Ethernet
    /// carries) [default: ATP what loopback carries, up to 8952; QUIC 1452]
    #[arg(long, value_name = "BYTES", requires = "atp", value_parser = clap::value_parser!(u16).range(DATAGRAMS))]
    pub(crate) datagram: Option<u16>,
    /// Print an object instead of a table
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
