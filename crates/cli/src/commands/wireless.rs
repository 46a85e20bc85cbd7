//! `remora lab wireless`: the papers' experiments and those beyond, in virtual time or in real.

use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::available_parallelism;

use remora_lab::wireless::real::{self, Others, Real, Setup};
use remora_lab::wireless::{self, Experiment, Options, Origin, Page, Report, Simulator};

use crate::args::Wireless;
use crate::exit::{Error, Result};
use crate::out;

/// Seeds for each cell with `--quick`.
const QUICK_SEEDS: u64 = 3;
/// What `--real --quick` runs when nothing is named.
const REAL_QUICK: [&str; 2] = ["check", "bursts"];

pub(crate) async fn run(args: Wireless) -> Result {
    if args.list {
        return out::text(&list(args.real));
    }
    let named = if args.real { real::named } else { wireless::named };
    let quick = args.real && args.quick && args.experiments.is_empty();
    let names = if quick { REAL_QUICK.map(str::to_owned).to_vec() } else { args.experiments.clone() };
    let experiments = named(&names).map_err(|unknown| {
        Error::Usage(format!("no experiment is called '{unknown}'; there are\n{}", list(args.real).trim_end()))
    })?;
    let page =
        args.html.as_deref().map(|path| Page::reserve(path).map_err(Error::local(path.display()))).transpose()?;
    let mut options = options(&args, experiments);
    let real = args.real.then(|| real_runner(&args)).transpose()?;
    options.peers = real.as_ref().map(|r| r.peers().to_vec()).unwrap_or_default();
    // The work keeps all processors busy and cannot be cut short: it has threads of its own, and
    // a signal ends the process around them.
    let report = tokio::task::spawn_blocking(move || match &real {
        Some(real) => wireless::run(&options, real),
        None => wireless::run(&options, &Simulator),
    });
    let report = report.await.map_err(|e| Error::refused("no results", e.to_string()))?;
    show(&args, &report)?;
    if let (Some(page), Some(path)) = (page, &args.html) {
        page.write(&report).map_err(Error::local(path.display()))?;
        written(path, args.json)?;
    }
    match report.failures() {
        0 => Ok(()),
        1 => Err(Error::refused("the laboratory", "a run failed")),
        n => Err(Error::refused("the laboratory", format!("{n} runs failed"))),
    }
}

fn show(args: &Wireless, report: &Report) -> Result {
    if args.json { out::json(report) } else { out::text(&report.to_text()) }
}

fn written(path: &Path, json: bool) -> Result {
    if json { Ok(()) } else { out::text(&format!("The report, with figures: {}\n", path.display())) }
}

/// Real programs: this one and others.
fn real_runner(args: &Wireless) -> Result<Real> {
    let binary = std::env::current_exe().map_err(Error::local("this program"))?;
    let others = args.peers.then(|| Others { guests: args.guests, kernel: args.kernel.clone() });
    let real = Real::new(Setup { binary, lateness_max: args.lateness_max, others });
    real.check().map_err(|e| Error::refused("cannot emulate", e.to_string()))?;
    Ok(real)
}

fn list(real: bool) -> String {
    let all = if real { real::all() } else { wireless::all() };
    let mut text = String::new();
    for (origin, title) in [(Origin::Papers, "The papers':"), (Origin::Beyond, "Beyond them:")] {
        let of = |e: &&&Experiment| e.origin == origin;
        let lines: String = all.iter().filter(of).map(|e| format!("  {:<17} {}\n", e.name, e.about)).collect();
        if !lines.is_empty() {
            text += &format!("{title}\n{lines}");
        }
    }
    text
}

fn options(args: &Wireless, experiments: Vec<&'static Experiment>) -> Options {
    let seeds = if args.quick { QUICK_SEEDS } else { args.seeds };
    Options {
        command: command(args, seeds),
        experiments,
        first_seed: args.seed,
        seeds,
        threads: if args.real { args.jobs } else { threads(args) },
        bar: true,
        only: args.only.clone(),
        peers: Vec::new(),
    }
}

fn threads(args: &Wireless) -> NonZeroUsize {
    args.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// The command that gives the same figures again.
fn command(args: &Wireless, seeds: u64) -> String {
    let names: String = args.experiments.iter().map(|name| format!(" {name}")).collect();
    let only: String = args.only.iter().map(|level| format!(" --only '{level}'")).collect();
    let real = if args.real { " --real" } else { "" };
    let peers = if args.peers { " --peers" } else { "" };
    format!("remora lab wireless{real}{peers}{names}{only} --seeds {seeds} --seed {}", args.seed)
}
