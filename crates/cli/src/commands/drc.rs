//! `remora lab drc`: DRC 89's load test and its lost write.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use remora_lab::drc::{self, Execution, Options};

use super::lab;
use crate::args::{Drc, there_are_seeds};
use crate::exit::{Error, Result};

pub(crate) async fn run(args: Drc) -> Result {
    there_are_seeds(args.seed, args.seeds())?;
    let page = lab::reserve(args.html.as_deref())?;
    let options = options(&args);
    // The work keeps processors busy and cannot be cut short: it has threads of its own, and a
    // signal ends the process around them.
    let report = tokio::task::spawn_blocking(move || drc::run(&options));
    let report = report.await.map_err(|e| Error::refused("no results", e.to_string()))?;
    lab::publish(&report, || Ok(report.to_text()), args.json, page)?;
    lab::failed(report.failures())
}

fn options(args: &Drc) -> Options {
    Options {
        way: if args.real { Execution::Real { faster: args.faster.into() } } else { Execution::Simulated },
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
