//! `remora lab atp`: objects with priorities and deadlines over a link that comes and goes.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use remora_lab::atp::real::{self, Setup};
use remora_lab::atp::{self, Experiment, Options, Protocol, Trace, Workload};

use super::lab;
use crate::args::Atp;
use crate::exit::{Error, Result};
use crate::text::{self, TRACE_MAX};

/// No link of two hosts takes longer, there and back.
const RTT_MAX: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: Atp) -> Result {
    let options = options(&args)?;
    let page = lab::reserve(args.html.as_deref())?;
    // The work keeps processors busy and cannot be cut short: it has threads of its own, and a
    // signal ends the process around them.
    let report = tokio::task::spawn_blocking(move || atp::run(&options));
    let report = report.await.map_err(|e| Error::refused("no results", e.to_string()))?;
    lab::publish(&report, || report.to_text(), args.json, page)?;
    lab::failed(report.failures())
}

fn options(args: &Atp) -> Result<Options> {
    let trace_name = args.trace.as_ref().map(|path| path.display().to_string());
    let trace = match &args.trace {
        None => Trace::paper(),
        Some(path) => {
            let text = text::read(path, TRACE_MAX, "a trace")?;
            Trace::parse(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?
        }
    };
    let real = if args.real { Some(setup(args, &trace)?) } else { None };
    let (experiments, protocols) = match real {
        None => (Experiment::ALL.to_vec(), Protocol::ALL.to_vec()),
        Some(_) => (real::EXPERIMENTS.to_vec(), Protocol::ALL.into_iter().filter(|p| real::takes(*p)).collect()),
    };
    only(&args.experiments, &experiments, Experiment::name)?;
    only(&args.protocols, &protocols, Protocol::name)?;
    Ok(Options {
        real,
        experiments: or_all(&args.experiments, &experiments),
        workloads: or_all(&args.workloads, &Workload::ALL),
        protocols: or_all(&args.protocols, &protocols),
        trace,
        trace_name,
        first_seed: args.seed,
        seeds: args.seeds,
        threads: args.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN),
        bar: true,
        command: command(args),
    })
}

/// How real cells are made.
fn setup(args: &Atp, trace: &Trace) -> Result<Setup> {
    let length = args.length.unwrap_or_else(|| trace.length().saturating_sub(args.from));
    if length < Duration::from_secs(1) {
        return Err(Error::Usage("there is less than a second of the trace left: begin earlier".into()));
    }
    if args.rtt > RTT_MAX {
        return Err(Error::Usage(format!("--rtt is {} s at most", RTT_MAX.as_secs())));
    }
    let Atp { cells, rtt: round_trip, from, lateness_max, .. } = *args;
    Ok(Setup { cells, round_trip, from, length, lateness_max })
}

/// Nothing but what can be had.
fn only<T: Copy + PartialEq>(named: &[T], all: &[T], name: fn(T) -> &'static str) -> Result {
    match named.iter().find(|t| !all.contains(t)) {
        None => Ok(()),
        Some(odd) => Err(Error::Usage(format!("{} is simulated only: leave out --real", name(*odd)))),
    }
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
    if args.real {
        words.push(format!("--real --rtt {:?} --from {:?}", args.rtt, args.from));
        words.extend(args.length.map(|length| format!("--length {length:?}")));
    }
    words.push(format!("--seeds {} --seed {}", args.seeds, args.seed));
    words.join(" ")
}
