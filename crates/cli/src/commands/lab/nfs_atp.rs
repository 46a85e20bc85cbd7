//! `remora lab nfs-atp`: NFS over ATP against NFS over TCP on emulated links.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_lab::atp::nfs::Options;
use remora_lab::atp::{Trace, nfs};

use crate::commands::lab::publication;
use crate::config::text_file::TRACE_MAX;
use crate::config::{text_file, units};
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
A mobile sends GETATTR every 0.1 s and writes 64 KiB (UNSTABLE) every second
while the bandwidth varies as in ATP 02: over ATP, and over the kernel's TCP
with CUBIC, both at once and each on its own emulated link. Needs root and takes
as long as the trace (5 minutes) and up to a minute more. Exits with 1 if the
p99 latency of GETATTR over TCP is less than 5 times that over ATP.

Examples:
  remora lab nfs-atp
  remora lab nfs-atp --from 140s --length 60s   # around the blackout only
  remora lab nfs-atp --json | jq .times";

#[derive(Args, Debug)]
pub(crate) struct NfsAtp {
    /// Trace of the bandwidth: lines of time_s,rate_Bps, or in Mahimahi's format [default: the paper's]
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Start position in the trace
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    pub(crate) from: Duration,
    /// Duration of the calls [default: to the end of the trace]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) length: Option<Duration>,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Print a JSON object with every figure instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(args: NfsAtp) -> Result {
    let options = options(&args)?;
    let report = tokio::task::spawn_blocking(move || nfs::run(&options)).await;
    let report = publication::finished(publication::finished(report)?)?;
    if args.json {
        stdio::print_json(&report)?
    } else {
        stdio::print(&report.to_text(stdio::report_width()))?
    }
    if report.holds() {
        Ok(())
    } else {
        Err(Error::refused("the figures", "the p99 ratio is below the bar, or frames were too late"))
    }
}

fn options(args: &NfsAtp) -> Result<Options> {
    let (trace, trace_name) = match &args.trace {
        None => (Trace::paper(), "the trace of ATP 02, reconstructed".to_owned()),
        Some(path) => {
            let text = text_file::read(path, TRACE_MAX, "a trace")?;
            let trace = Trace::parse(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
            (trace, path.display().to_string())
        }
    };
    let length = args.length.unwrap_or_else(|| trace.length().saturating_sub(args.from));
    if length < Duration::from_secs(1) {
        return Err(Error::Usage("less than a second of calls: choose a longer --length, or an earlier --from".into()));
    }
    Ok(Options { trace, trace_name, from: args.from, length, seed: args.seed, command: command(args), bar: !args.json })
}

/// The command that gives figures like these again.
fn command(args: &NfsAtp) -> String {
    let mut words = vec!["remora lab nfs-atp".to_owned()];
    words.extend(args.trace.as_ref().map(|path| format!("--trace {}", path.display())));
    if !args.from.is_zero() {
        words.push(format!("--from {:?}", args.from));
    }
    words.extend(args.length.map(|length| format!("--length {length:?}")));
    words.push(format!("--seed {}", args.seed));
    words.join(" ")
}
