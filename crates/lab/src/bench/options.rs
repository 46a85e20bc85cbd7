//! Settings and errors of a benchmark.

use std::time::Duration;

use remora_host::client::{ClientError, Target};
use remora_wire::rpc::AuthUnix;

use super::operations::Operation;
use super::socket::Fault;

pub const OUTSTANDING_MAX: usize = 1024;
pub const CONNECTIONS_MAX: usize = 64;
pub const FILES_MAX: u64 = 1_000_000;
pub const ROUNDS_MAX: usize = 1000;
/// Listings in a run of `readdirplus`; one may take longer than a timed run.
pub(super) const LISTINGS: u64 = 3;
/// Outstanding calls while the large directory is filled.
pub(super) const FILL_OUTSTANDING: usize = 64;

#[derive(Clone, Debug)]
pub struct Options {
    /// One server, or two to compare.
    pub targets: Vec<BenchTarget>,
    pub operations: Vec<Operation>,
    /// Outstanding calls on all connections together, 1 to [`OUTSTANDING_MAX`].
    pub outstanding: usize,
    /// 1 to [`CONNECTIONS_MAX`], at most the outstanding calls.
    pub connections: usize,
    pub duration: Duration,
    /// Load before the measurement.
    pub warm_up: Duration,
    /// Operations of a run, instead of a duration and a warm-up.
    pub count: Option<u64>,
    /// Runs of each operation on each server.
    pub rounds: usize,
    /// Files in the directory that `readdirplus` lists.
    pub files: u64,
    pub patience: Duration,
    /// Draws the order of runs, files and offsets.
    pub seed: u64,
    pub cred: AuthUnix,
    /// Show a progress bar on a terminal.
    pub bar: bool,
}

#[derive(Clone, Debug)]
pub struct BenchTarget {
    pub url: String,
    /// The parsed URL with a transport.
    pub target: Target,
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{url}: {source}")]
    Client { url: String, source: ClientError },
    #[error("{url}: {operation}: {source}")]
    Run { url: String, operation: &'static str, source: Fault },
    #[error("{0}")]
    Local(&'static str),
    #[error("interrupted")]
    Interrupted,
}
