//! `remora lab drc`: DRC 89's load test and its lost write.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use remora_lab::drc::{self, Options, Page, Way};

use crate::args::Drc;
use crate::exit::{Error, Result};
use crate::out;

pub(crate) async fn run(args: Drc) -> Result {
    let page =
        args.html.as_deref().map(|path| Page::reserve(path).map_err(Error::local(path.display()))).transpose()?;
    let options = options(&args);
    // The work keeps processors busy and cannot be cut short: it has threads of its own, and a
    // signal ends the process around them.
    let report = tokio::task::spawn_blocking(move || drc::run(&options));
    let report = report.await.map_err(|e| Error::refused("no results", e.to_string()))?;
    if args.json {
        out::json(&report)?
    } else {
        out::text(&report.to_text())?
    }
    if let (Some(page), Some(path)) = (page, &args.html) {
        page.write(&report).map_err(Error::local(path.display()))?;
        if !args.json {
            out::text(&format!("The report, with drawings: {}\n", path.display()))?;
        }
    }
    match report.failures() {
        0 => Ok(()),
        1 => Err(Error::refused("the laboratory", "a run failed")),
        n => Err(Error::refused("the laboratory", format!("{n} runs failed"))),
    }
}

fn options(args: &Drc) -> Options {
    Options {
        way: if args.real { Way::Real { faster: args.faster.into() } } else { Way::Simulated },
        first_seed: args.seed,
        seeds: args.seeds(),
        sensitivity: args.sensitivity,
        threads: args.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN),
        bar: true,
        command: command(args),
    }
}

/// The command that gives the same figures again.
fn command(args: &Drc) -> String {
    let real = if args.real { format!(" --real --faster {}", args.faster) } else { String::new() };
    let sensitivity = if args.sensitivity { " --sensitivity" } else { "" };
    format!("remora lab drc{real}{sensitivity} --seeds {} --seed {}", args.seeds(), args.seed)
}
