//! Procedures and constants of NFS version 3.

/// RPC program number.
pub const PROGRAM: u32 = 100_003;
/// RPC program version.
pub const VERSION: u32 = 3;
/// Customary port of servers.
pub const PORT: u16 = 2049;
/// Maximum length of a file handle in bytes (NFS3_FHSIZE).
pub const FH_MAX: u32 = 64;

/// The procedures, by their RFC names and numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the RFC's")]
#[repr(u32)]
pub enum Proc {
    Null = 0,
    GetAttr = 1,
    SetAttr = 2,
    Lookup = 3,
    Access = 4,
    ReadLink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    MkDir = 9,
    SymLink = 10,
    MkNod = 11,
    Remove = 12,
    RmDir = 13,
    Rename = 14,
    Link = 15,
    ReadDir = 16,
    ReadDirPlus = 17,
    FsStat = 18,
    FsInfo = 19,
    PathConf = 20,
    Commit = 21,
}

impl Proc {
    /// All procedures in numerical order.
    pub const ALL: [Proc; 22] = [
        Proc::Null,
        Proc::GetAttr,
        Proc::SetAttr,
        Proc::Lookup,
        Proc::Access,
        Proc::ReadLink,
        Proc::Read,
        Proc::Write,
        Proc::Create,
        Proc::MkDir,
        Proc::SymLink,
        Proc::MkNod,
        Proc::Remove,
        Proc::RmDir,
        Proc::Rename,
        Proc::Link,
        Proc::ReadDir,
        Proc::ReadDirPlus,
        Proc::FsStat,
        Proc::FsInfo,
        Proc::PathConf,
        Proc::Commit,
    ];

    /// Procedure of this number.
    pub fn from_number(n: u32) -> Option<Proc> {
        Proc::ALL.get(n as usize).copied()
    }

    /// Whether a repeated execution can have another effect (DRC 89, table 1, and MKNOD, which
    /// NFSv2 lacks).
    pub fn is_non_idempotent(self) -> bool {
        use Proc::*;
        matches!(self, SetAttr | Write | Create | MkDir | SymLink | MkNod | Remove | RmDir | Rename | Link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedure_number_is_that_of_the_rfc() {
        for (i, p) in Proc::ALL.into_iter().enumerate() {
            assert_eq!(p as usize, i);
            assert_eq!(Proc::from_number(i as u32), Some(p));
        }
        assert_eq!(Proc::from_number(22), None);
    }
}
