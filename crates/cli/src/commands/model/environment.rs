//! Properties of this machine: the terminal's width and the number of processors.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use crate::output::stdio;

/// Where output does not go to a terminal, lines are this wide.
const WIDTH: usize = 120;

pub(crate) fn width() -> usize {
    stdio::terminal_width().unwrap_or(WIDTH)
}

/// The number of processors.
pub(crate) fn threads() -> NonZeroUsize {
    available_parallelism().unwrap_or(NonZeroUsize::MIN)
}
