//! The server's statistics.

use crate::cache;

/// Counters since the server was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Messages received, well-formed or not.
    pub messages: u64,
    /// Replies sent, replays included.
    pub replies: u64,
    /// Decoded calls of the NFS program.
    pub nfs_calls: u64,
    /// Those of them in NFSv2.
    pub nfs2_calls: u64,
    /// Decoded calls of the portmapper.
    pub portmap_calls: u64,
    /// Decoded calls of the MOUNT program.
    pub mount_calls: u64,
    /// Jobs given to the executor.
    pub executed: u64,
    /// Jobs that failed, except those in `denied` and `bad_handles`.
    pub failed: u64,

    /// Messages dropped because they are not RPC calls.
    pub not_calls: u64,
    /// Calls of another RPC version.
    pub bad_rpc_version: u64,
    /// Calls with a malformed or unsupported credential.
    pub bad_auth: u64,
    /// Calls of an unknown program or version.
    pub bad_program: u64,
    /// Calls of an unknown procedure.
    pub bad_procedure: u64,
    /// Calls with malformed arguments.
    pub bad_arguments: u64,

    /// Calls denied to the client's address.
    pub denied: u64,
    /// Calls with an invalid handle, or whose object is gone.
    pub bad_handles: u64,
    /// Requests dropped: datagrams and MNT because too many requests executed, and MNT and NFSv2 datagrams because
    /// the file system was busy.
    pub overload_dropped: u64,
    /// Stream requests answered with JUKEBOX (NFSv2: NFSERR_IO) because too many requests executed: the host did not
    /// throttle its streams.
    pub overload_deferred: u64,
    /// READs and directory pages shortened because a datagram's address was not validated.
    pub unvalidated_cut: u64,
    /// Replies not sent for the same reason.
    pub unvalidated_dropped: u64,
    /// Replies dropped because their connection had ended.
    pub unreachable: u64,
    /// Answers with unknown tickets.
    pub stray_answers: u64,

    /// Counters of the duplicate request cache.
    pub cache: cache::Stats,
}

impl Stats {
    /// The sums of both.
    #[must_use]
    pub fn and(self, other: Stats) -> Stats {
        Stats {
            messages: self.messages + other.messages,
            replies: self.replies + other.replies,
            nfs_calls: self.nfs_calls + other.nfs_calls,
            nfs2_calls: self.nfs2_calls + other.nfs2_calls,
            portmap_calls: self.portmap_calls + other.portmap_calls,
            mount_calls: self.mount_calls + other.mount_calls,
            executed: self.executed + other.executed,
            failed: self.failed + other.failed,
            not_calls: self.not_calls + other.not_calls,
            bad_rpc_version: self.bad_rpc_version + other.bad_rpc_version,
            bad_auth: self.bad_auth + other.bad_auth,
            bad_program: self.bad_program + other.bad_program,
            bad_procedure: self.bad_procedure + other.bad_procedure,
            bad_arguments: self.bad_arguments + other.bad_arguments,
            denied: self.denied + other.denied,
            bad_handles: self.bad_handles + other.bad_handles,
            overload_dropped: self.overload_dropped + other.overload_dropped,
            overload_deferred: self.overload_deferred + other.overload_deferred,
            unvalidated_cut: self.unvalidated_cut + other.unvalidated_cut,
            unvalidated_dropped: self.unvalidated_dropped + other.unvalidated_dropped,
            unreachable: self.unreachable + other.unreachable,
            stray_answers: self.stray_answers + other.stray_answers,
            cache: self.cache.and(other.cache),
        }
    }
}
