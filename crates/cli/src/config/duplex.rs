//! Whether both directions of a hop share its medium, as flags and files say it.

use clap::ValueEnum;
use serde::Deserialize;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Duplex {
    Half,
    Full,
}
