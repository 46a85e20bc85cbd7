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
    /// Jobs that failed, but for those refused for the client's address or the handle.
    pub failed: u64,

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
    /// Requests dropped: datagrams and MNTs because too much was in flight, and MNTs and datagrams of NFSv2 because the
    /// file system was busy.
    pub overload_dropped: u64,
    /// Stream requests put off with JUKEBOX (NFSv2: NFSERR_IO) because too much was in flight: the host did not
    /// hold its streams back.
    pub overload_deferred: u64,
    /// READs and directory pages cut short because the address of a datagram has not proved that it receives.
    pub unvalidated_cut: u64,
    /// Replies not sent for the same reason.
    pub unvalidated_dropped: u64,
    /// Replies dropped because their connection was gone.
    pub unreachable: u64,
    /// Answers to tickets that were not outstanding.
    pub stray_answers: u64,

    /// What the duplicate request cache did.
    pub cache: cache::Stats,
}

impl Stats {
    /// Both together.
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
