//! Which NFS a call is made in.

/// A version of NFS. What is done is the same in both; the messages are not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// NFSv2 (RFC 1094).
    V2,
    /// NFSv3 (RFC 1813).
    V3,
}
