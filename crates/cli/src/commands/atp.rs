//! `remora lab atp`: objects with priorities and deadlines over a link that comes and goes.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use remora_lab::atp::{self, Experiment, Options, Page, Protocol, Trace, Workload};

use crate::args::Atp;
use crate::exit::{Error, Result};
use crate::out;

pub(crate) async fn run(args: Atp) -> Result {
    let options = options(&args)?;
    let page =
        args.html.as_deref().map(|path| Page::reserve(path).map_err(Error::local(path.display()))).transpose()?;
    // The work keeps processors busy and cannot be cut short: it has threads of its own, and a
    // signal ends the process around them.
    let report = tokio::task::spawn_blocking(move || atp::run(&options));
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

fn options(args: &Atp) -> Result<Options> {
    let trace_name = args.trace.as_ref().map(|path| path.display().to_string());
    let trace = match &args.trace {
        None => Trace::paper(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(Error::local(path.display()))?;
            Trace::parse(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?
        }
    };
    Ok(Options {
        experiments: or_all(&args.experiments, &Experiment::ALL),
        workloads: or_all(&args.workloads, &Workload::ALL),
        protocols: or_all(&args.protocols, &Protocol::ALL),
        trace,
        trace_name,
        first_seed: args.seed,
        seeds: args.seeds,
        threads: args.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN),
        bar: true,
        command: command(args),
    })
}

/// Those named, each once and in their usual order; all if none is.
fn or_all<T: Copy + PartialEq>(named: &[T], all: &[T]) -> Vec<T> {
    all.iter().copied().filter(|t| named.is_empty() || named.contains(t)).collect()
}

/// The command that gives the same figures again.
fn command(args: &Atp) -> String {
    let mut words = vec!["remora lab atp".to_owned()];
    words.extend(args.experiments.iter().map(|e| e.name().to_owned()));
    words.extend(args.workloads.iter().map(|w| format!("--workload {}", w.name())));
    words.extend(args.protocols.iter().map(|p| format!("--scheme {}", p.name())));
    words.extend(args.trace.as_ref().map(|path| format!("--trace {}", path.display())));
    words.push(format!("--seeds {} --seed {}", args.seeds, args.seed));
    words.join(" ")
}
