//! How the commands of the laboratory end: what they print, where the page goes, what failed.

use std::path::{Path, PathBuf};

use remora_lab::{Html, Page};
use serde::Serialize;

use crate::exit::{Error, Result};
use crate::out;

/// A page that was asked for, and where.
pub(crate) type Wanted = Option<(Page, PathBuf)>;

/// Finds the page's place writable, before anybody has waited for what goes there.
pub(crate) fn reserve(html: Option<&Path>) -> Result<Wanted> {
    let reserved = |path: &Path| Ok((Page::reserve(path).map_err(Error::local(path.display()))?, path.to_owned()));
    html.map(reserved).transpose()
}

/// Prints the report, as an object or as `text` says it, and writes the page.
pub(crate) fn publish<R: Serialize + Html>(
    report: &R,
    text: impl FnOnce() -> String,
    json: bool,
    page: Wanted,
) -> Result {
    if json {
        out::json(report)?
    } else {
        out::text(&text())?
    }
    let Some((page, path)) = page else { return Ok(()) };
    page.write(report).map_err(Error::local(path.display()))?;
    if json { Ok(()) } else { out::text(&format!("The report, with drawings: {}\n", path.display())) }
}

/// An error if runs failed, so many.
pub(crate) fn failed(runs: usize) -> Result {
    match runs {
        0 => Ok(()),
        1 => Err(Error::refused("the laboratory", "a run failed")),
        n => Err(Error::refused("the laboratory", format!("{n} runs failed"))),
    }
}
