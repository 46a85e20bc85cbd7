//! A progress bar for each racer.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Way;

/// The bars of one way; drawn on standard error, if that is a terminal.
pub(super) struct Bars {
    all: MultiProgress,
    bytes: u64,
}

impl Bars {
    pub(super) fn new(way: Way, bytes: u64, shown: bool) -> Bars {
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let all = MultiProgress::with_draw_target(target);
        let title = match way {
            Way::Write => "Writing to the server",
            Way::Read => "Reading from the server",
        };
        // A hidden target takes the line and shows nothing.
        let _ = all.println(title);
        Bars { all, bytes }
    }

    pub(super) fn bar(&self, name: &'static str) -> ProgressBar {
        let bar = self.all.add(ProgressBar::new(self.bytes));
        let style = "{prefix:21} {wide_bar:.green} {bytes:>10} {bytes_per_sec:>12} {msg}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name);
        bar
    }
}
