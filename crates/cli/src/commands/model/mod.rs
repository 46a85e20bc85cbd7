//! `remora model`: what a network will do to packets and copies.

mod file;
mod tables;

use std::io::IsTerminal;
use std::path::Path;

use ratatui::crossterm::terminal;
use remora_model::nmt1989::Sheet;

use crate::args::{Compat, Model};
use crate::exit::{Error, Result};
use crate::out;

/// Where output does not go to a terminal, lines are this wide.
const WIDTH: usize = 120;

pub(crate) async fn run(args: Model) -> Result {
    let Some(path) = args.file.filter(|_| !args.example) else {
        return out::text(file::EXAMPLE);
    };
    // Solving keeps a processor busy and cannot be cut short: a signal ends the process around it.
    let work = tokio::task::spawn_blocking(move || match args.compat {
        None => solve(&path, args.json),
        Some(Compat::Nmt1989) => sheet(&path, args.json),
    });
    work.await.map_err(|e| Error::refused("no results", e.to_string()))?
}

fn solve(path: &Path, json: bool) -> Result {
    let (_, network) = file::read(path)?;
    let report = network.solve();
    if json { out::json(&report) } else { out::text(&tables::text(&report, width())) }
}

fn sheet(path: &Path, json: bool) -> Result {
    let (topology, _) = file::read(path)?;
    let wrong = |why| Error::Usage(format!("{}: nmt1989 cannot do this: {why}", path.display()));
    let results = Sheet::of(&topology).map_err(wrong)?.results();
    let results = results.ok_or_else(|| wrong("its formulas have no value here"))?;
    if json { out::json(&results) } else { out::text(&tables::sheet(&results)) }
}

fn width() -> usize {
    let terminal = std::io::stdout().is_terminal().then(|| terminal::size().ok()).flatten();
    terminal.map_or(WIDTH, |(columns, _)| usize::from(columns))
}
