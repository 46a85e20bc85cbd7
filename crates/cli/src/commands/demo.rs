//! `remora demo`: three clients race over a bad link.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_lab::wireless::demo::{DemoError, Options, Outcome, run as race};

use crate::commands::lab::publication;
use crate::config::units;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
Runs in one process on loopback, without root: a server on a temporary
directory, and for each client an emulated link of 1 Mbit/s that fails about
once a second, for 80 ms on average (--bad-mean). Takes half a minute, two
minutes at most.

Examples:
  remora demo
  remora demo --seed 7 --bad-mean 500ms holiday.jpg
  remora demo --json | jq '.legs[] | [.racer, .way, .ratio]'

--json prints one object: seed, bad_mean_ms, bytes, report, legs (racer, way,
finish, seconds, floor_seconds, ratio, bytes, retransmissions, probes, intact,
lateness_ms).";

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// The file to copy [default: a sample of 1 MiB]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Seed of the channel's errors, the same for all three clients
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Mean length of the bad periods; good periods last 1 s on average
    #[arg(long, value_name = "TIME", default_value = "80ms", value_parser = units::some_duration)]
    pub(crate) bad_mean: Duration,
    /// HTML page for the report
    #[arg(long, value_name = "PAGE", default_value = "remora-demo.html")]
    pub(crate) report: PathBuf,
    /// Stop a client that has not finished after this time
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = units::some_duration)]
    pub(crate) limit: Duration,
    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(args: Demo) -> Result {
    let options = Options {
        file: args.file,
        seed: args.seed,
        bad_mean: args.bad_mean,
        report: args.report,
        limit: args.limit,
        bars: !args.json,
    };
    let what = "Three clients copy a file to a server and back, over links with the same bad periods.\n";
    // There is a report, whether this is read or not.
    let printed = if args.json { Ok(()) } else { stdio::print(what) };
    let outcome = race(options).await.map_err(|e| match e {
        DemoError::File { path, source } => Error::local(path.display())(source),
        DemoError::Report { path, source } => Error::local(format_args!("the report {}", path.display()))(source),
        other => Error::refused("no race", other.to_string()),
    })?;
    publication::read_or_not(printed.and_then(|()| show(&outcome, args.json)))?;
    if outcome.all_intact() { Ok(()) } else { Err(Error::Mismatch("the file".into())) }
}

fn show(outcome: &Outcome, json: bool) -> Result {
    if json {
        return stdio::print_json(outcome);
    }
    stdio::print(&outcome.table())?;
    stdio::print(&format!("Report: {}\n", outcome.report.display()))
}
