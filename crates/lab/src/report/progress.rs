//! Progress bars on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
    let style = style("{wide_bar:.green} {pos} of {len} {prefix}, {eta} left  {msg}");
    ProgressBar::with_draw_target(Some(total), target(shown)).with_style(style).with_prefix(things.to_owned())
}
