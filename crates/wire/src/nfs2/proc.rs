//! Procedures and constants of NFS version 2.

/// RPC program version.
pub const VERSION: u32 = 2;
/// Length of a file handle in bytes (FHSIZE).
pub const FH_SIZE: usize = 32;
/// Maximum bytes of data in a READ or WRITE (MAXDATA).
pub const DATA_MAX: u32 = 8192;
/// Maximum length of a path in bytes (MAXPATHLEN).
pub const PATH_MAX: u32 = 1024;

/// The procedures, by their RFC names and numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the RFC's")]
#[repr(u32)]
pub enum Proc {
    Null = 0,
    GetAttr = 1,
    SetAttr = 2,
    Root = 3,
    Lookup = 4,
    ReadLink = 5,
    Read = 6,
    WriteCache = 7,
    Write = 8,
    Create = 9,
    Remove = 10,
    Rename = 11,
    Link = 12,
    SymLink = 13,
    MkDir = 14,
    RmDir = 15,
    ReadDir = 16,
    StatFs = 17,
}

impl Proc {
    /// All procedures in numerical order.
    pub const ALL: [Proc; 18] = [
        Proc::Null,
        Proc::GetAttr,
        Proc::SetAttr,
        Proc::Root,
        Proc::Lookup,
        Proc::ReadLink,
        Proc::Read,
        Proc::WriteCache,
        Proc::Write,
        Proc::Create,
        Proc::Remove,
        Proc::Rename,
        Proc::Link,
        Proc::SymLink,
        Proc::MkDir,
        Proc::RmDir,
        Proc::ReadDir,
        Proc::StatFs,
    ];

    /// Procedure of this number.
    pub fn from_number(n: u32) -> Option<Proc> {
        Proc::ALL.get(n as usize).copied()
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
        assert_eq!(Proc::from_number(18), None);
    }
}
