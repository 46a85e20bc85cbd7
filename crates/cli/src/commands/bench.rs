//! `remora bench`: how fast a server is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use remora_client::Transport;
use remora_host::client::{ClientError, Target};
use remora_lab::atp::loopback;
use remora_lab::bench::{self, BenchError, BenchTarget, Fault, Left, Options, Report};

use crate::args::{Bench, Proto};
use crate::exit::{Error, Result};
use crate::servers::own_credentials;
use crate::{interrupt, out};

/// Rounds with two servers: one more than an interval needs.
const ROUNDS_TWO: u64 = 7;

pub(crate) async fn run(args: Bench) -> Result {
    if args.list {
        return out::text(&list());
    }
    if args.drc {
        return cache(args.json).await;
    }
    if args.atp {
        return atp(&args).await;
    }
    let options = options(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut work = tokio::spawn(bench::run(options, stop.clone()));
    tokio::select! {
        done = &mut work => {
            let (report, left) = done.map_err(crashed)?;
            let told = report.map_err(told).and_then(|report| show(&report, args.json));
            told.and(say_left(&left))
        }
        number = interrupt::wait() => {
            stop.store(true, Ordering::Relaxed);
            out::say("removing what was made on the server; Ctrl-C again leaves it there");
            tokio::select! {
                // The signal is what ended it.
                done = work => drop(say_left(&done.map_err(crashed)?.1)),
                _ = interrupt::again() => {}
            }
            Err(Error::Interrupted(number))
        }
    }
}

fn crashed(e: tokio::task::JoinError) -> Error {
    Error::refused("no results", e.to_string())
}

fn show(report: &Report, json: bool) -> Result {
    if json { out::json(report) } else { out::text(&report.to_text()) }
}

/// What is left on servers is an error, and can be removed by hand.
fn say_left(left: &[Left]) -> Result {
    for Left { url, name, source } in left {
        out::say(format_args!("remora: bench: {url}: {name} could not be removed: {source}"));
        out::say(format_args!("hint: 'remora rm -r' of that directory removes it when the server answers again"));
    }
    if left.is_empty() { Ok(()) } else { Err(Error::Reported(1)) }
}

async fn cache(json: bool) -> Result {
    let report = tokio::task::spawn_blocking(bench::drc::run);
    let work = async { report.await.map_err(crashed) };
    let report = tokio::select! {
        report = work => report?,
        number = interrupt::wait() => return Err(Error::Interrupted(number)),
    };
    if json { out::json(&report) } else { out::text(&report.to_text()) }
}

/// ATP beside QUIC.
async fn atp(args: &Bench) -> Result {
    let defaults = loopback::Options::default();
    let options = loopback::Options {
        objects: args.count.unwrap_or(defaults.objects),
        rounds: args.rounds.map_or(defaults.rounds, |n| n as usize),
        seed: args.seed,
        datagram: args.datagram,
        ..defaults
    };
    if options.objects.saturating_mul(options.size as u64) > loopback::BYTES_MAX {
        return Err(Error::Usage(format!("--count is {} at most", loopback::BYTES_MAX / options.size as u64)));
    }
    let report = tokio::task::spawn_blocking(move || loopback::run(&options));
    let work = async { report.await.map_err(crashed)?.map_err(|e| Error::refused("no results", e.to_string())) };
    let report = tokio::select! {
        report = work => report?,
        number = interrupt::wait() => return Err(Error::Interrupted(number)),
    };
    if args.json {
        out::json(&report)?
    } else {
        out::text(&report.to_text())?
    }
    if report.holds() { Ok(()) } else { Err(Error::refused("the figures", "the bar is not held")) }
}

fn list() -> String {
    bench::ALL.iter().map(|o| format!("  {:<15} {}\n", o.name, o.about)).collect()
}

fn options(args: &Bench) -> Result<Options> {
    let names = bench::ALL.iter().map(|o| o.name.to_owned());
    let ops = if args.ops.is_empty() { names.collect() } else { args.ops.clone() };
    let operations = bench::named(&ops).map_err(|unknown| {
        Error::Usage(format!("no operation is called '{unknown}'; there are\n{}", list().trim_end()))
    })?;
    if args.connections > args.outstanding {
        let (c, o) = (args.connections, args.outstanding);
        return Err(Error::Usage(format!("{o} calls outstanding cannot keep {c} connections busy: --outstanding {c}")));
    }
    let urls = args.url.iter().chain(&args.vs);
    let targets = urls.map(|url| place(url, args.proto)).collect::<Result<Vec<_>>>()?;
    let rounds = args.rounds.unwrap_or(if targets.len() > 1 { ROUNDS_TWO } else { 1 });
    Ok(Options {
        targets,
        operations,
        outstanding: args.outstanding as usize,
        connections: args.connections as usize,
        duration: args.duration,
        warm_up: args.warm_up,
        count: args.count,
        rounds: rounds as usize,
        files: args.files,
        patience: args.timeout,
        seed: args.seed,
        cred: own_credentials(),
        bar: !args.quiet && !args.json,
    })
}

fn place(url: &str, proto: Option<Proto>) -> Result<BenchTarget> {
    let mut target = Target::parse(url)?;
    let asked = match proto {
        Some(Proto::Udp) => Some(Transport::Udp),
        Some(Proto::Tcp) => Some(Transport::Tcp),
        Some(Proto::Atp) => Some(Transport::Atp),
        Some(Proto::Auto) | None => target.transport,
    };
    // What is measured shall not depend on which of the two answers first.
    target.transport = asked.or(Some(Transport::Tcp));
    if target.transport == Some(Transport::Atp) {
        return Err(Error::Usage(format!("{url}: bench asks over UDP and TCP only; ATP is measured by bench --atp")));
    }
    Ok(BenchTarget { url: url.to_owned(), target })
}

/// The error as the command line tells it.
fn told(error: BenchError) -> Error {
    match error {
        BenchError::Client { url, source } => Error::Remote { what: url, source },
        BenchError::Run { url, operation, source } => {
            let what = format!("{url}: {operation}");
            let server = "the server".to_owned();
            let source = match source {
                Fault::Connect(source) => ClientError::Connect { server, source },
                Fault::Silent(_) => ClientError::Silent { server, what: "" },
                Fault::Closed | Fault::Broken(_) => ClientError::Closed,
                other => return Error::refused(what, other.to_string()),
            };
            Error::Remote { what, source }
        }
        BenchError::Local(why) => Error::refused("no results", why),
        // Only a signal, which is seen before, sets the flag.
        BenchError::Interrupted => Error::refused("no results", "interrupted"),
    }
}
