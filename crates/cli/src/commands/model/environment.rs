//! Properties of this machine: the terminal's width and the number of processors.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use ratatui::crossterm::terminal;

/// Where output does not go to a terminal, lines are this wide.
const WIDTH: usize = 120;

pub(crate) fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(|| terminal::size().ok()).flatten();
    terminal.map_or(WIDTH, |(columns, _)| usize::from(columns))
}

/// The number of processors.
pub(crate) fn threads() -> NonZeroUsize {
    available_parallelism().unwrap_or(NonZeroUsize::MIN)
}
