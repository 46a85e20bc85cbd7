//! The demonstration: a real file over an emulated bursty wireless link, three ways.
//!
//! A server, three relays with the same weather and three clients run in this process on
//! loopback, without root: a stock client of the 1990s, the papers' settings (NFS/W 97) and
//! Remora's defaults. Each writes the file to the server and reads it back; a racer still on
//! the way after [`Options::limit`] is stopped and shown as such.

mod leg;
mod report;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use remora_base::Time;
use remora_channel::{Config, ErrorModel, Side};
use remora_client as client;
use serde::Serialize;

pub use leg::{Finish, LegResult};
pub use stage::DemoError;

/// The size of the sample file.
const SAMPLE_BYTES: usize = 1 << 20;

/// What to demonstrate.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file to copy; `None`: a sample of 1 MiB.
    pub file: Option<PathBuf>,
    /// Draws the channel's errors and the sample.
    pub seed: u64,
    /// Mean length of the link's bad periods.
    pub bad_mean: Duration,
    /// Where the report goes.
    pub report: PathBuf,
    /// How long a racer may take for one way.
    pub limit: Duration,
    /// Whether to show progress bars (on a terminal only).
    pub bars: bool,
}

/// Which way the file goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// To the server.
    Write,
    /// From the server.
    Read,
}

/// A client that takes part.
#[derive(Clone, Debug)]
pub struct Racer {
    /// What people call it.
    pub name: &'static str,
    /// How it behaves.
    pub config: client::Config,
}

/// The three clients.
pub fn racers() -> [Racer; 3] {
    [
        Racer { name: "stock 1990s client", config: client::Config::stock() },
        Racer { name: "the papers' settings", config: client::Config::paper() },
        Racer { name: "Remora's defaults", config: client::Config::new(client::Transport::Udp) },
    ]
}

/// The link: 1 Mbit/s, half duplex, good periods of 1 s in the mean, bad ones of `bad_mean`.
fn link(bad_mean: Duration) -> Config {
    Config { errors: ErrorModel::bursts(bad_mean), ..Config::default() }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Mean length of the link's bad periods, in milliseconds.
    pub bad_mean_ms: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Results, writes before reads, each in the order of [`racers`].
    pub legs: Vec<LegResult>,
    /// Where the report is.
    pub report: PathBuf,
}

impl Outcome {
    /// Whether every copy that finished has the right bytes.
    pub fn all_intact(&self) -> bool {
        self.legs.iter().all(|l| l.intact != Some(false))
    }
}

/// Runs the demonstration and writes its report.
pub async fn run(options: Options) -> Result<Outcome, DemoError> {
    let page = report::reserve(&options.report)?;
    let stage = stage::Stage::set_up(&options)?;
    let mut legs = Vec::new();
    for way in [Way::Write, Way::Read] {
        legs.extend(stage.race(way, &options).await?);
    }
    let bad_mean_ms = options.bad_mean.as_millis() as u64;
    let outcome = Outcome { seed: options.seed, bad_mean_ms, bytes: stage.len(), legs, report: options.report.clone() };
    report::write(page, &outcome)?;
    Ok(outcome)
}

/// Seconds from `start` to the floor of a copy that begins then; `None` if there is no end.
fn floor_seconds(link: &Config, seed: u64, bytes: u64, start: Time) -> Option<f64> {
    // The same both ways: no recorded trace tells them apart.
    let end = remora_channel::floor(link, seed, Side::Base, bytes, start).ok()??;
    Some(end.since(start).as_secs_f64())
}
