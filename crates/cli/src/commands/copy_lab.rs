//! `remora lab copy`: the copy study of Copy 89, with today's programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use remora_channel::Access;
use remora_lab::copy::{self, CopySystem, Options};

use super::lab;
use crate::args::copy_lab::{CopyLab, Medium};
use crate::args::there_are_seeds;
use crate::exit::{Error, Result};
use crate::{interrupt, out};

pub(crate) async fn run(args: CopyLab) -> Result {
    there_are_seeds(args.seed, args.seeds())?;
    if let Some(dir) = &args.dir {
        std::fs::read_dir(dir).map_err(Error::local(dir.display()))?;
    }
    let signal = interrupt::catch();
    let page = lab::reserve(args.html.as_deref())?;
    let options = options(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let mut study = tokio::task::spawn_blocking(move || copy::run(&options, &stopped));
    let (report, number) = tokio::select! {
        done = &mut study => (done, None),
        number = signal => {
            stop.store(true, Ordering::Release);
            (study.await, Some(number))
        }
    };
    let report = report.map_err(|e| Error::refused("no results", e.to_string()))?;
    let report = report.map_err(|e| Error::refused("no results", e.to_string()))?;
    lab::publish(&report, || Ok(report.to_text()), args.json, page)?;
    if let Some(number) = number {
        return Err(Error::Interrupted(number));
    }
    lab::failed(report.failures())?;
    let objections = report.objections(!args.only().is_empty(), args.check);
    if objections.is_empty() { Ok(()) } else { Err(Error::refused("the laboratory", objections.join("; "))) }
}

fn options(args: &CopyLab) -> Result<Options> {
    let only = args.only();
    let systems = if only.is_empty() { CopySystem::ALL.to_vec() } else { only };
    Ok(Options {
        rate: args.rate,
        access: match args.medium {
            Medium::Turns => Access::Turns,
            Medium::Ethernet => Access::Collisions,
        },
        sizes: args.sizes_mb().into_iter().map(|mb| mb * 1_000_000).collect(),
        loads_percent: args.loads(),
        systems,
        first_seed: args.seed,
        seeds: args.seeds(),
        jobs: args.jobs,
        directory: args.dir.clone(),
        lateness_max: args.lateness_max,
        binary: std::env::current_exe().map_err(Error::local("this program"))?,
        command: command(args)?,
    })
}

/// The command that makes the same runs again, for a shell.
fn command(args: &CopyLab) -> Result<String> {
    let list = |items: Vec<String>| items.join(",");
    let mut words: Vec<String> = ["remora", "lab", "copy", "--rate"].map(str::to_owned).into();
    words.push(args.rate.to_string());
    if args.medium == Medium::Ethernet {
        words.extend(["--medium", "ethernet"].map(str::to_owned));
    }
    words.extend(["--sizes".to_owned(), list(args.sizes_mb().iter().map(u64::to_string).collect())]);
    words.extend(["--loads".to_owned(), list(args.loads().iter().map(f64::to_string).collect())]);
    words.extend(["--seeds".to_owned(), args.seeds().to_string(), "--seed".to_owned(), args.seed.to_string()]);
    words.extend(["--jobs".to_owned(), args.jobs.to_string()]);
    words.extend(args.only().iter().flat_map(|system| ["--only".to_owned(), system.name().to_owned()]));
    words.extend(args.dir.iter().flat_map(|dir| ["--dir".to_owned(), dir.to_string_lossy().into_owned()]));
    words.extend(["--lateness-max".to_owned(), format!("{}ms", args.lateness_max.as_secs_f64() * 1e3)]);
    out::for_shell(&words)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CopyLab,
    }

    fn parsed(words: &[&str]) -> CopyLab {
        Line::try_parse_from(std::iter::once(&"x").chain(words)).unwrap().args
    }

    #[test]
    fn the_command_makes_the_same_runs() {
        for (words, line) in [
            (
                &[][..],
                "--rate 10Mbit --sizes '1,5' --loads '0,10,60,98' --seeds 10 --seed 1 --jobs 4 --lateness-max 5ms",
            ),
            (
                &["--quick"],
                "--rate 10Mbit --sizes 1 --loads '0,10,60,98' --seeds 3 --seed 1 --jobs 4 --lateness-max 5ms",
            ),
            (
                &["--only", "remora", "--only", "remora", "--sizes", "1,1", "--loads", "0,0,10"],
                "--rate 10Mbit --sizes 1 --loads '0,10' --seeds 10 --seed 1 --jobs 4 --only remora --lateness-max 5ms",
            ),
            (
                &[
                    "--full", "--medium", "ethernet", "--rate", "100Mbit", "--jobs", "1", "--only", "ftp", "--loads",
                    "12.5%", "--dir", "/a b",
                ],
                "--rate 100Mbit --medium ethernet --sizes '1,2,5,10,20,25,50,75,100' --loads 12.5 --seeds 10 --seed 1 --jobs 1 --only ftp \
                 --dir '/a b' --lateness-max 5ms",
            ),
        ] {
            let made = command(&parsed(words)).unwrap();
            assert_eq!(made, format!("remora lab copy {line}"));
            let words = shlex::split(&made).unwrap();
            let words: Vec<&str> = words.iter().skip(3).map(String::as_str).collect();
            assert_eq!(command(&parsed(&words)).unwrap(), made, "it is read as it was meant");
        }
    }
}
