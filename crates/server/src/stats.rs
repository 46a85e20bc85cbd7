//! What a server has counted.

use crate::cache;

/// Counters since the server was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Messages that came in, of whatever kind.
    pub messages: u64,
    /// Replies sent, replays included.
    pub replies: u64,
    /// Calls of the NFS program that could be read.
    pub nfs_calls: u64,
    /// Those of them in version 2.
    pub nfs2_calls: u64,
    /// Calls of the portmapper that could be read.
    pub portmap_calls: u64,
    /// Calls of the MOUNT program that could be read.
    pub mount_calls: u64,
    /// Jobs handed out to be executed.
    pub executed: u64,

    /// Messages that are no RPC call, dropped.
    pub not_calls: u64,
    /// Calls of another RPC version.
    pub bad_rpc_version: u64,
    /// Calls whose credential could not be read, or is of a flavor not accepted.
    pub bad_auth: u64,
    /// Calls of a program or version that is not here.
    pub bad_program: u64,
    /// Calls of a procedure that does not exist.
    pub bad_procedure: u64,
    /// Calls whose arguments could not be read.
    pub bad_arguments: u64,

    /// Calls refused for the client's address.
    pub denied: u64,
    /// Calls with a handle that this server did not make, or whose object is gone.
    pub bad_handles: u64,
    /// Datagram requests dropped because too much was in flight.
    pub overload_dropped: u64,
    /// Stream requests put off with JUKEBOX because too much was in flight: the host did not
    /// hold its streams back.
    pub overload_deferred: u64,
    /// Replies dropped because their connection was gone.
    pub unreachable: u64,
    /// Answers to tickets that were not outstanding.
    pub stray_answers: u64,

    /// What the duplicate request cache did.
    pub cache: cache::Stats,
}
