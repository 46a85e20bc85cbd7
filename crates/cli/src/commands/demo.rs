//! `remora demo`: the race over a bad link, its table and its report.

use remora_lab::demo::{Options, Outcome, run as race};

use crate::args::Demo;
use crate::exit::{Error, Result};
use crate::out;

pub(crate) async fn run(args: Demo) -> Result {
    let options =
        Options { file: args.file, seed: args.seed, report: args.report, limit: args.limit, bars: !args.json };
    if !args.json {
        out::text("Three clients copy a file to a server and back, over links with the same bad moments.\n")?;
    }
    let outcome = race(options).await.map_err(|e| Error::refused("no race", plain(&e.to_string())))?;
    show(&outcome, args.json)?;
    if outcome.all_intact() { Ok(()) } else { Err(Error::Mismatch("the file".into())) }
}

/// Without the system's number for the error.
fn plain(text: &str) -> &str {
    text.split(" (os error").next().unwrap_or(text)
}

fn show(outcome: &Outcome, json: bool) -> Result {
    if json {
        return out::json(outcome);
    }
    out::text(&outcome.table())?;
    out::text(&format!("The report, with plots: {}\n", outcome.report.display()))
}
