//! The progress bar of a laboratory: how much of it is done, and how long the rest will take.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of so many `things` (their name in the plural), on a terminal's standard error if it is
/// `shown`.
pub(crate) fn bar(all: u64, things: &str, shown: bool) -> ProgressBar {
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{wide_bar:.green} {pos} of {len} {prefix}, {eta} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(all), target).with_style(style).with_prefix(things.to_owned())
}
