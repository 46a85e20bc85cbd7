//! The link, the clients and the settings of the demonstration.

use std::path::PathBuf;
use std::time::Duration;

use remora_base::Time;
use remora_channel::{Config, ErrorModel, Side};
use remora_client as client;
use serde::Serialize;

pub(super) const SAMPLE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Options {
    /// `None`: a sample of 1 MiB.
    pub file: Option<PathBuf>,
    /// Draws the channel's errors and the sample.
    pub seed: u64,
    /// Mean length of the link's bad periods.
    pub bad_mean: Duration,
    pub report: PathBuf,
    /// Time limit of one copy.
    pub limit: Duration,
    /// Show progress bars on a terminal.
    pub bars: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyDirection {
    Write,
    Read,
}

#[derive(Clone, Debug)]
pub struct Racer {
    pub name: &'static str,
    pub config: client::ClientConfig,
}

pub fn racers() -> [Racer; 3] {
    [
        Racer { name: "stock 1990s client", config: client::ClientConfig::stock() },
        Racer { name: "the papers' settings", config: client::ClientConfig::paper() },
        Racer { name: "Remora's defaults", config: client::ClientConfig::new(client::Transport::Udp) },
    ]
}

/// The link: 1 Mbit/s, half duplex, good periods of 1 s in the mean, bad ones of `bad_mean`.
pub(super) fn link(bad_mean: Duration) -> Config {
    Config { errors: ErrorModel::bursts(bad_mean), ..Config::default() }
}

/// Time from `start` to the floor of a copy that begins then; `None` if the copy would never end.
pub(super) fn floor_seconds(link: &Config, seed: u64, bytes: u64, start: Time) -> Option<f64> {
    // The floor is the same in both directions: the link has no recorded trace.
    let end = remora_channel::floor(link, seed, Side::Base, bytes, start).ok()??;
    Some(end.since(start).as_secs_f64())
}
