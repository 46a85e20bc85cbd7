//! NFS versions.

/// The NFS version of a call. Execution is the same for both; the messages differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// NFS version 2 (RFC 1094).
    V2,
    /// NFS version 3 (RFC 1813).
    V3,
}
