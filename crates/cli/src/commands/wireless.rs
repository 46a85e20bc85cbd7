//! `remora lab wireless`: the papers' experiments and those beyond, in virtual time or in real.

use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use remora_lab::wireless::real::{self, HAND_OFF_DIR, Others, Real, Setup};
use remora_lab::wireless::{self, Conditions, Experiment, Options, Origin, Runner, SEEDS, Simulator, Work};

use super::lab::{self, Wanted};
use crate::args::{Wireless, there_are_seeds};
use crate::exit::{Error, Result};
use crate::{interrupt, out};

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
    let experiments = named(&names).map_err(|unknown| match args.real && real::only_simulated(&unknown) {
        true => Error::Usage(format!("only simulated: {unknown} needs the papers' hosts (docs/results/testbed.md)")),
        false => {
            Error::Usage(format!("no experiment is called '{unknown}'; there are\n{}", list(args.real).trim_end()))
        }
    })?;
    let most = experiments.iter().map(|e| e.seeds(seeds(&args))).max();
    there_are_seeds(args.seed, most.unwrap_or(SEEDS))?;
    if args.real {
        be_deaf()?;
    }
    let stop = interrupt::wait();
    tokio::pin!(stop);
    // Its first poll is what makes signals wait for us.
    tokio::select! {
        biased;
        number = &mut stop => return Err(Error::Interrupted(number)),
        () = std::future::ready(()) => {}
    }
    let page = lab::reserve(args.html.as_deref())?;
    let mut options = options(&args, experiments)?;
    if !args.real {
        return work(&args, page, options, Simulator, stop).await;
    }
    let real = real_runner(&args)?;
    options.peers = real.peers().to_vec();
    work(&args, page, options, real, stop).await
}

/// Runs it all, and shows what there is at the end, or when a signal of the number that `stop`
/// gives comes.
async fn work<R: Runner + Send + 'static>(
    args: &Wireless,
    page: Wanted,
    options: Options,
    runner: R,
    stop: impl Future<Output = u8>,
) -> Result {
    let work = Arc::new(Work::plan(options, runner).map_err(|e| Error::Usage(format!("--only: {e}")))?);
    let (at_work, quiet) = (work.clone(), args.json);
    // It keeps all processors busy and cannot be cut short: it has threads of its own.
    let runs = tokio::task::spawn_blocking(move || {
        // The first failure ends what is printed, and not what is run: a page may be wanted of it.
        let printed = Mutex::new(Ok(()));
        at_work.run(|ended| {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            if !quiet && printed.is_ok() {
                *printed = out::text(&ended.to_text());
            }
        });
        printed.into_inner().unwrap_or_else(PoisonError::into_inner)
    });
    let (printed, interrupted) = tokio::select! {
        done = runs => (done.map_err(|e| Error::refused("no results", e.to_string()))?, None),
        number = stop => (Ok(()), Some(number)),
    };
    // A second signal ends what a reader who does not read holds up.
    let json = args.json;
    let shown = tokio::task::spawn_blocking(move || show(&work, printed, json, page));
    let failures = tokio::select! {
        done = shown => done.map_err(|e| Error::refused("no results", e.to_string()))??,
        number = interrupt::again() => return Err(Error::Interrupted(number)),
    };
    match (interrupted, failures) {
        (Some(number), _) => Err(Error::Interrupted(number)),
        (None, failures) => lab::failed(failures),
    }
}

/// Shows what has not been shown yet, if what has been was `printed`; how many runs failed.
fn show<R: Runner>(work: &Work<R>, printed: Result, json: bool, page: Wanted) -> Result<usize> {
    let report = work.report();
    lab::publish(&report, || printed.map(|()| work.rest(&report)), json, page)?;
    Ok(report.failures())
}

/// What is measured must not hear of the cell switches of this machine. This process is a client,
/// too, where it saves small files: it starts anew with nowhere to listen, unless it has done so.
fn be_deaf() -> Result {
    let nowhere = Path::new("/dev/null");
    if std::env::var_os(HAND_OFF_DIR).is_some_and(|dir| Path::new(&dir) == nowhere) {
        return Ok(());
    }
    let binary = std::env::current_exe().map_err(Error::local("this program"))?;
    let mut again = Command::new(binary);
    again.args(std::env::args_os().skip(1)).env(HAND_OFF_DIR, nowhere);
    Err(Error::local("this program")(again.exec()))
}

/// Real programs: this one and others.
fn real_runner(args: &Wireless) -> Result<Real> {
    let binary = std::env::current_exe().map_err(Error::local("this program"))?;
    let others = args.peers.then(|| Others { guests: args.guests, kernel: args.kernel.clone() });
    let real = Real::new(Setup { binary, lateness_max: args.lateness_max, others });
    real.check().map_err(lab::cannot_emulate)?;
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

fn options(args: &Wireless, experiments: Vec<&'static Experiment>) -> Result<Options> {
    let seeds = seeds(args);
    Ok(Options {
        command: command(args, &experiments, seeds)?,
        experiments,
        first_seed: args.seed,
        seeds,
        threads: if args.real { args.jobs } else { threads(args) },
        bar: true,
        only: args.only.clone(),
        peers: Vec::new(),
        conditions: args
            .real
            .then(|| Conditions { jobs: args.jobs.get(), lateness_ms_bound: args.lateness_max.as_secs_f64() * 1e3 }),
    })
}

/// Seeds for each cell, if it is said how many.
fn seeds(args: &Wireless) -> Option<u64> {
    if args.quick { Some(QUICK_SEEDS) } else { args.seeds }
}

fn threads(args: &Wireless) -> NonZeroUsize {
    args.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// The command that makes the same runs again, for a shell: with the experiments' names and
/// whatever of the flags counts and is not as usual.
fn command(args: &Wireless, experiments: &[&Experiment], seeds: Option<u64>) -> Result<String> {
    let mut words: Vec<String> = ["remora", "lab", "wireless"].map(str::to_owned).into();
    if args.real {
        words.push("--real".into());
    }
    if args.peers {
        words.push("--peers".into());
    }
    words.extend(experiments.iter().map(|e| e.name.to_owned()));
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    args.only.iter().for_each(|level| flag("--only", level.clone()));
    if let Some(seeds) = seeds {
        flag("--seeds", seeds.to_string());
    }
    flag("--seed", args.seed.to_string());
    args.unusual().into_iter().for_each(|(name, value)| flag(name, value));
    out::for_shell(&words)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Wireless,
    }

    fn parsed(words: &[&str]) -> Wireless {
        Line::try_parse_from(std::iter::once(&"x").chain(words)).unwrap().args
    }

    #[test]
    fn the_command_makes_the_same_runs() {
        let bursts = real::named(&["bursts".into()]).unwrap();
        for (words, line) in [
            (&["--quick", "bursts"][..], "remora lab wireless bursts --seeds 3 --seed 1"),
            (
                &["--only", "papers' settings", "--only", "80 ms", "--threads", "1"],
                "remora lab wireless bursts --only \"papers' settings\" --only '80 ms' --seed 1",
            ),
            (
                &["--real", "--peers", "--jobs", "2", "--lateness-max", "50ms", "--guests", "1", "--kernel", "a b"],
                "remora lab wireless --real --peers bursts --seed 1 --jobs 2 --lateness-max 50ms \
                 --guests 1 --kernel 'a b'",
            ),
        ] {
            let args = parsed(words);
            let made = command(&args, &bursts, options(&args, bursts.clone()).unwrap().seeds).unwrap();
            assert_eq!(made, line);
            let words = shlex::split(&made).unwrap();
            let words: Vec<&str> = words.iter().skip(3).map(String::as_str).collect();
            let again = parsed(&words);
            assert_eq!(command(&again, &bursts, again.seeds).unwrap(), line, "it is read as it was meant");
            assert_eq!((again.jobs, again.lateness_max), (args.jobs, args.lateness_max));
        }
    }
}
