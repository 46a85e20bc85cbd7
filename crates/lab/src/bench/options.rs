use std::time::Duration;

use remora_host::client::{ClientError, Target};
use remora_wire::rpc::AuthUnix;

use super::operations::Operation;
use super::socket::Fault;

pub const OUTSTANDING_MAX: usize = 1024;
pub const CONNECTIONS_MAX: usize = 64;
/// The most files of the directory that is listed.
pub const FILES_MAX: u64 = 1_000_000;
pub const ROUNDS_MAX: usize = 1000;
/// Listings in a run of `readdirplus`, which may each take longer than a run is to take.
pub(super) const LISTINGS: u64 = 3;
/// Calls under way while the directory of many files is filled.
pub(super) const FILL_OUTSTANDING: usize = 64;

#[derive(Clone, Debug)]
pub struct Options {
    /// One server, or two to compare.
    pub targets: Vec<Place>,
    pub operations: Vec<Operation>,
    /// Calls outstanding on all connections together, 1 to [`OUTSTANDING_MAX`].
    pub outstanding: usize,
    /// Connections, 1 to [`CONNECTIONS_MAX`], and no more than calls outstanding.
    pub connections: usize,
    pub duration: Duration,
    /// How long a server is loaded before that counts.
    pub warm_up: Duration,
    /// Instead of a time: so many operations a run, without warming up.
    pub count: Option<u64>,
    /// Runs of each operation on each server.
    pub rounds: usize,
    /// Files in the directory that `readdirplus` lists.
    pub files: u64,
    pub patience: Duration,
    /// Draws the order of runs, files and offsets.
    pub seed: u64,
    pub cred: AuthUnix,
    /// Whether to show a progress bar (on a terminal only).
    pub bar: bool,
}

#[derive(Clone, Debug)]
pub struct Place {
    pub url: String,
    /// What it means; its transport is to be set.
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
