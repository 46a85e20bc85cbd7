//! Procedures and constants of NFS version 2.

/// RPC program version.
pub const VERSION: u32 = 2;
/// Length of a file handle in bytes (FHSIZE).
pub const FH_SIZE: usize = 32;
/// Maximum bytes of data in a READ or WRITE (MAXDATA).
pub const DATA_MAX: u32 = 8192;
/// Maximum length of a path in bytes (MAXPATHLEN).
pub const PATH_MAX: u32 = 1024;

crate::xdr::procedures! {
    Null, GetAttr, SetAttr, Root, Lookup, ReadLink, Read, WriteCache, Write, Create, Remove, Rename, Link,
    SymLink, MkDir, RmDir, ReadDir, StatFs,
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
        assert_eq!((Proc::Write as u32, Proc::StatFs as u32, Proc::from_number(18)), (8, 17, None));
    }
}
