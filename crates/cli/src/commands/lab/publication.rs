//! Results of the lab's commands: printed text or JSON, an HTML page, and errors.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread::available_parallelism;

use clap::Args;
use remora_lab::{Html, Page};
use serde::Serialize;

use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// The form of an experiment's report.
#[derive(Args, Debug)]
pub(crate) struct ReportFlags {
    /// Print one JSON object with every figure instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write an HTML page with tables and drawings
    #[arg(long, value_name = "PAGE")]
    pub(crate) html: Option<PathBuf>,
}

impl ReportFlags {
    /// Opens the page for writing, so that a wrong path fails before the run.
    pub(crate) fn reserve(&self) -> Result<Publication> {
        let reserved =
            |path: &PathBuf| Ok::<_, Error>((Page::reserve(path).map_err(Error::local(path.display()))?, path.clone()));
        Ok(Publication { json: self.json, page: self.html.as_ref().map(reserved).transpose()? })
    }
}

/// Where a report goes: standard output, and the page that was reserved.
pub(crate) struct Publication {
    json: bool,
    page: Option<(Page, PathBuf)>,
}

/// The threads of a simulated experiment.
#[derive(Args, Debug)]
pub(crate) struct ThreadFlags {
    /// Number of threads; does not change the results [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

impl ThreadFlags {
    pub(crate) fn count(&self) -> NonZeroUsize {
        self.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }
}

/// The result of a run; an error if its thread panicked or its set-up failed.
pub(crate) fn finished<T, E: Display>(run: Result<T, E>) -> Result<T> {
    run.map_err(|e| Error::refused("no results", e.to_string()))
}

/// Missing rights or devices for real runs.
pub(crate) fn cannot_emulate(why: impl Display) -> Error {
    Error::refused("cannot emulate", why.to_string())
}

/// Writes the page, then prints the report as JSON or as `text`. The page comes first, so that a closed pipe does not
/// lose it. A closed pipe is no error here.
pub(crate) fn publish<R: Serialize + Html>(
    report: &R,
    text: impl FnOnce() -> Result<String>,
    publication: Publication,
) -> Result {
    let Publication { json, page } = publication;
    let written =
        page.map(|(page, path)| page.write(report).map(|()| path.clone()).map_err(Error::local(path.display())));
    let written = written.transpose()?;
    let print = || {
        if json {
            return stdio::print_json(report);
        }
        stdio::print(&text()?)?;
        let Some(path) = written else { return Ok(()) };
        stdio::print(&format!("Report: {}\n", path.display()))
    };
    read_or_not(print())
}

/// Ignores a closed pipe at the end of a run: the verdict on the runs matters more.
pub(crate) fn read_or_not(printed: Result) -> Result {
    match printed {
        Err(Error::Pipe) => Ok(()),
        other => other,
    }
}

/// An error if `runs`, the number of failed runs, is not 0.
pub(crate) fn failed(runs: usize) -> Result {
    match runs {
        0 => Ok(()),
        1 => Err(Error::refused("the laboratory", "a run failed")),
        n => Err(Error::refused("the laboratory", format!("{n} runs failed"))),
    }
}

/// Checks that `first + seeds - 1` does not overflow.
pub(crate) fn there_are_seeds(first: u64, seeds: u64) -> Result<(), Error> {
    match first.checked_add(seeds.saturating_sub(1)) {
        Some(_) => Ok(()),
        None => {
            Err(Error::Usage(format!("--seed {first}: fewer than {seeds} seeds remain (the last is {})", u64::MAX)))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }

    pub(crate) fn parsed<A: clap::Args>(words: &[&str]) -> A {
        CommandLine::try_parse_from(std::iter::once(&"x").chain(words)).unwrap().args
    }

    /// Checks that `words` are recorded as `line`, and that `line` parses to the same command.
    pub(crate) fn assert_reproducible<A: clap::Args>(words: &[&str], line: &str, command: impl Fn(&A) -> String) {
        assert_eq!(command(&parsed(words)), line);
        let recorded = shlex::split(line).unwrap();
        let words: Vec<&str> = recorded.iter().skip(3).map(String::as_str).collect();
        assert_eq!(command(&parsed(&words)), line, "the recorded command is parsed differently");
    }
}
