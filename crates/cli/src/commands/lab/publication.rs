//! Results of the lab's commands: printed text or JSON, an HTML page, and errors.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use remora_lab::{Html, Page};
use serde::Serialize;

use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// A page that was asked for, and where.
pub(crate) type ReservedPage = Option<(Page, PathBuf)>;

/// Finds the page's place writable, before anybody has waited for what goes there.
pub(crate) fn reserve(html: Option<&Path>) -> Result<ReservedPage> {
    let reserved = |path: &Path| Ok((Page::reserve(path).map_err(Error::local(path.display()))?, path.to_owned()));
    html.map(reserved).transpose()
}

/// Why nothing real can be run: rights or devices are missing.
pub(crate) fn cannot_emulate(why: impl Display) -> Error {
    Error::refused("cannot emulate", why.to_string())
}

/// Writes the page, and prints the report, as an object or as `text` says it. The page comes first: what was
/// waited for is kept, whatever becomes of standard output. That nobody reads this is no error, and hides none.
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

/// That nobody reads what is printed at the end is no error: what else there is to say of the runs counts.
pub(crate) fn read_or_not(printed: Result) -> Result {
    match printed {
        Err(Error::Pipe) => Ok(()),
        other => other,
    }
}

/// An error if runs failed, so many.
pub(crate) fn failed(runs: usize) -> Result {
    match runs {
        0 => Ok(()),
        1 => Err(Error::refused("the laboratory", "a run failed")),
        n => Err(Error::refused("the laboratory", format!("{n} runs failed"))),
    }
}

/// Whether there are `seeds` seeds from `first` on.
pub(crate) fn there_are_seeds(first: u64, seeds: u64) -> Result<(), Error> {
    match first.checked_add(seeds.saturating_sub(1)) {
        Some(_) => Ok(()),
        None => Err(Error::Usage(format!(
            "--seed {first}: there are no {seeds} seeds from there on (the last is {})",
            u64::MAX
        ))),
    }
}
