//! Results of the lab's commands: printed text or JSON, an HTML page, and errors.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use remora_lab::{Html, Page};
use serde::Serialize;

use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// The HTML page to write, and its path.
pub(crate) type ReservedPage = Option<(Page, PathBuf)>;

/// Opens the page for writing, so that a wrong path fails before the run.
pub(crate) fn reserve(html: Option<&Path>) -> Result<ReservedPage> {
    let reserved = |path: &Path| Ok((Page::reserve(path).map_err(Error::local(path.display()))?, path.to_owned()));
    html.map(reserved).transpose()
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
    json: bool,
    page: ReservedPage,
) -> Result {
    let written =
        page.map(|(page, path)| page.write(report).map(|()| path.clone()).map_err(Error::local(path.display())));
    let written = written.transpose()?;
    let print = || {
        if json {
            return stdio::print_json(report);
        }
        stdio::print(&text()?)?;
        let Some(path) = written else { return Ok(()) };
        stdio::print(&format!("The report, with drawings: {}\n", path.display()))
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
        None => Err(Error::Usage(format!(
            "--seed {first}: there are no {seeds} seeds from there on (the last is {})",
            u64::MAX
        ))),
    }
}
