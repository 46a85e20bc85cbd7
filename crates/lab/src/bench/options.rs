use std::time::Duration;

use remora_host::client::{ClientError, Target};
use remora_wire::rpc::AuthUnix;

use super::operations::Operation;
use super::socket::Fault;

/// The most calls outstanding.
pub const OUTSTANDING_MAX: usize = 1024;
/// The most connections.
pub const CONNECTIONS_MAX: usize = 64;
/// The most files of the directory that is listed.
pub const FILES_MAX: u64 = 1_000_000;
/// The most rounds.
pub const ROUNDS_MAX: usize = 1000;
/// Listings in a run of `readdirplus`, which may each take longer than a run is to take.
pub(super) const LISTINGS: u64 = 3;
/// Calls under way while the directory of many files is filled.
pub(super) const FILL_OUTSTANDING: usize = 64;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers: one, or two to be compared.
    pub targets: Vec<Place>,
    /// What to measure on them.
    pub operations: Vec<Operation>,
    /// Calls outstanding on all connections together, 1 to [`OUTSTANDING_MAX`].
    pub outstanding: usize,
    /// Connections, 1 to [`CONNECTIONS_MAX`], and no more than calls outstanding.
    pub connections: usize,
    /// How long each run takes.
    pub duration: Duration,
    /// How long a server is loaded before that counts.
    pub warm_up: Duration,
    /// Instead of a time: so many operations a run, without warming up.
    pub count: Option<u64>,
    /// Runs of each operation on each server.
    pub rounds: usize,
    /// Files in the directory that `readdirplus` lists.
    pub files: u64,
    /// How long a server may be silent.
    pub patience: Duration,
    /// Draws the order of runs, files and offsets.
    pub seed: u64,
    /// In whose name to call.
    pub cred: AuthUnix,
    /// Whether to show a progress bar (on a terminal only).
    pub bar: bool,
}

/// A server and a directory on it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The URL as it was given.
    pub url: String,
    /// What it means; its transport is to be set.
    pub target: Target,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Preparing or tidying up failed.
    #[error("{url}: {source}")]
    Client {
        /// Which server.
        url: String,
        /// Why.
        source: ClientError,
    },
    /// A run failed.
    #[error("{url}: {operation}: {source}")]
    Run {
        /// Which server.
        url: String,
        /// What was measured.
        operation: &'static str,
        /// Why.
        source: Fault,
    },
    /// Something on this machine failed.
    #[error("{0}")]
    Local(&'static str),
    /// `stop` was set.
    #[error("interrupted")]
    Interrupted,
}
