//! The flags of `remora lab nfs-atp`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::units;

pub(crate) const HELP: &str = "\
A mobile asks for a file's attributes every 0.1 s and writes 64 KiB (UNSTABLE)
every second while the bandwidth comes and goes as in ATP 02: over ATP, and over
the kernel's TCP with CUBIC, both at once and each on an emulated link of its
own. It needs root, takes as long as the trace (5 minutes) and up to a minute
more, and exits with 1 if the bar is not held: the small calls' p99 over TCP at
least 5 times that over ATP.

Examples:
  remora lab nfs-atp
  remora lab nfs-atp --from 140s --length 60s   # around the blackout only
  remora lab nfs-atp --json | jq .times";

#[derive(Args, Debug)]
pub(crate) struct NfsAtp {
    /// The bandwidth over time, instead of the paper's: lines of time_s,rate_Bps, or a Mahimahi
    /// trace
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Where in the trace to begin
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    pub(crate) from: Duration,
    /// For how long calls are made [default: to the end of the trace]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) length: Option<Duration>,
    /// Draws what is random
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Print an object with every figure instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}
