//! `remora lab atp`: objects with priorities and deadlines over a link that comes and goes.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use remora_lab::atp::real::{self, Setup};
use remora_lab::atp::{self, Experiment, Options, Protocol, Trace, Workload};

use super::lab;
use crate::args::{Atp, there_are_seeds};
use crate::exit::{Error, Result};
use crate::out;
use crate::text::{self, TRACE_MAX};

/// No link of two hosts takes longer, there and back.
const RTT_MAX: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: Atp) -> Result {
    let options = options(&args)?;
    if args.real {
        tokio::task::block_in_place(real::check).map_err(lab::cannot_emulate)?;
    }
    let page = lab::reserve(args.html.as_deref())?;
    // The work keeps processors busy and cannot be cut short: it has threads of its own, and a
    // signal ends the process around them.
    let report = tokio::task::spawn_blocking(move || atp::run(&options));
    let report = report.await.map_err(|e| Error::refused("no results", e.to_string()))?;
    lab::publish(&report, || Ok(report.to_text()), args.json, page)?;
    lab::failed(report.failures())
}

fn options(args: &Atp) -> Result<Options> {
    there_are_seeds(args.seed, args.seeds)?;
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
        command: command(args)?,
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

/// The command that gives the same figures again, for a shell.
fn command(args: &Atp) -> Result<String> {
    let mut words: Vec<String> = ["remora", "lab", "atp"].map(str::to_owned).into();
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    args.workloads.iter().for_each(|w| add("--workload", w.name().to_owned()));
    args.protocols.iter().for_each(|p| add("--scheme", p.name().to_owned()));
    args.trace.iter().for_each(|path| add("--trace", path.to_string_lossy().into_owned()));
    if args.real {
        add("--rtt", time(args.rtt));
        add("--from", time(args.from));
        args.length.iter().for_each(|length| add("--length", time(*length)));
        add("--cells", args.cells.to_string());
        add("--lateness-max", time(args.lateness_max));
    }
    add("--seeds", args.seeds.to_string());
    add("--seed", args.seed.to_string());
    words.splice(3..3, args.experiments.iter().map(|e| e.name().to_owned()));
    words.extend(args.real.then(|| "--real".to_owned()));
    out::for_shell(&words)
}

/// A length of time as flags have it.
fn time(length: Duration) -> String {
    match length.as_nanos() {
        n if n.is_multiple_of(1_000_000_000) => format!("{}s", n / 1_000_000_000),
        n if n.is_multiple_of(1_000_000) => format!("{}ms", n / 1_000_000),
        n => format!("{}us", n as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Atp,
    }

    fn parsed(words: &[&str]) -> Atp {
        Line::try_parse_from(std::iter::once(&"x").chain(words)).unwrap().args
    }

    #[test]
    fn the_command_makes_the_same_runs() {
        for (words, line) in [
            (&["bulk"][..], "bulk --seeds 10 --seed 1"),
            (
                &["--trace", "/my traces/a.csv", "--scheme", "atp", "--seeds", "3"],
                "--scheme atp --trace '/my traces/a.csv' --seeds 3 --seed 1",
            ),
            (
                &[
                    "deadlines",
                    "--real",
                    "--cells",
                    "14",
                    "--lateness-max",
                    "2.5ms",
                    "--from",
                    "140s",
                    "--length",
                    "1m",
                ],
                "deadlines --rtt 10ms --from 140s --length 60s --cells 14 --lateness-max 2500us --seeds 10 --seed 1 --real",
            ),
        ] {
            let made = command(&parsed(words)).unwrap();
            assert_eq!(made, format!("remora lab atp {line}"));
            let words = shlex::split(&made).unwrap();
            let words: Vec<&str> = words.iter().skip(3).map(String::as_str).collect();
            assert_eq!(command(&parsed(&words)).unwrap(), made, "it is read as it was meant");
        }
    }
}
