//! `remora demo`: the race over a bad link, its table and its report.

use remora_lab::wireless::demo::{DemoError, Options, Outcome, run as race};

use super::lab;
use crate::args::Demo;
use crate::exit::{Error, Result};
use crate::out;

pub(crate) async fn run(args: Demo) -> Result {
    let options = Options {
        file: args.file,
        seed: args.seed,
        bad_mean: args.bad_mean,
        report: args.report,
        limit: args.limit,
        bars: !args.json,
    };
    let what = "Three clients copy a file to a server and back, over links with the same bad moments.\n";
    // There is a report, whether this is read or not.
    let printed = if args.json { Ok(()) } else { out::text(what) };
    let outcome = race(options).await.map_err(|e| match e {
        DemoError::File { path, source } => Error::local(path.display())(source),
        DemoError::Report { path, source } => Error::local(format_args!("the report {}", path.display()))(source),
        other => Error::refused("no race", other.to_string()),
    })?;
    lab::read_or_not(printed.and_then(|()| show(&outcome, args.json)))?;
    if outcome.all_intact() { Ok(()) } else { Err(Error::Mismatch("the file".into())) }
}

fn show(outcome: &Outcome, json: bool) -> Result {
    if json {
        return out::json(outcome);
    }
    out::text(&outcome.table())?;
    out::text(&format!("The report, with plots: {}\n", outcome.report.display()))
}
