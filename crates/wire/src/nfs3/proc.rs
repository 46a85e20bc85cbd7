//! Procedures and constants of NFS version 3.

/// RPC program number.
pub const PROGRAM: u32 = 100_003;
/// RPC program version.
pub const VERSION: u32 = 3;
/// Customary port of servers.
pub const PORT: u16 = 2049;
/// Maximum length of a file handle in bytes (NFS3_FHSIZE).
pub const FH_MAX: u32 = 64;

crate::xdr::procedures! {
    Null, GetAttr, SetAttr, Lookup, Access, ReadLink, Read, Write, Create, MkDir, SymLink, MkNod, Remove, RmDir,
    Rename, Link, ReadDir, ReadDirPlus, FsStat, FsInfo, PathConf, Commit,
}

impl Proc {
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
        assert_eq!((Proc::Write as u32, Proc::Commit as u32, Proc::from_number(22)), (7, 21, None));
    }
}
