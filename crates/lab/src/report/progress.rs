//! Progress bars on standard error.

use std::fmt::Write;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Where a bar is drawn: on standard error if that is a terminal and the bar is `shown`.
pub(crate) fn target(shown: bool) -> ProgressDrawTarget {
    if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

/// A style from a template that is a constant.
pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A bar of `total` things; `things` is their plural.
pub(crate) fn bar(total: u64, things: &str, shown: bool) -> ProgressBar {
    let style = style("{wide_bar:.green} {pos} of {len} {prefix}{left}  {msg}").with_key("left", left);
    ProgressBar::with_draw_target(Some(total), target(shown)).with_style(style).with_prefix(things.to_owned())
}

/// The time left, once the first thing is done.
fn left(state: &ProgressState, w: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = write!(w, ", {:#} left", HumanDuration(state.eta()));
    }
}
