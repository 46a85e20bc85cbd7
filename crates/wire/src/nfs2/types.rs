//! Constants, procedures, and the types shared by NFSv2's procedures (RFC 1094, section 2.3).

use crate::{Error, Reader, Xdr};

pub use crate::nfs3::Name;

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

/// A file handle: 32 bytes, opaque to the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fh(pub [u8; FH_SIZE]);

impl Xdr for Fh {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(r: &mut Reader) -> Result<Fh, Error> {
        let mut fh = [0; FH_SIZE];
        fh.copy_from_slice(&r.fixed(FH_SIZE)?);
        Ok(Fh(fh))
    }
}

xdr_enum! {
    /// Error of a procedure (`stat` without NFS_OK).
    pub enum Status {
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        Io = 5,
        /// No such device or address.
        NxIo = 6,
        Access = 13,
        Exist = 17,
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// Is a directory.
        IsDir = 21,
        /// Invalid argument. Not in RFC 1094: Linux and Solaris servers send it, and U-Boot
        /// recognises a symbolic link by it.
        Inval = 22,
        /// File too large.
        FBig = 27,
        /// No space left on the device.
        NoSpc = 28,
        /// Read-only file system.
        RoFs = 30,
        /// Name too long.
        NameTooLong = 63,
        /// Directory not empty.
        NotEmpty = 66,
        DQuot = 69,
        /// The handle's file no longer exists.
        Stale = 70,
        /// The server's write cache was flushed to disk.
        WFlush = 99,
    }
}

xdr_enum! {
    /// Type of an object (`ftype`).
    pub enum FileType {
        /// Not a file.
        None = 0,
        Regular = 1,
        Directory = 2,
        Block = 3,
        /// Character device. Also a named pipe, with [`Attr::NO_DEVICE`], for which the RFC has no
        /// type.
        Char = 4,
        SymLink = 5,
        /// Socket: not in the RFC, but sent by servers (X/Open XNFS).
        Socket = 6,
    }
}

xdr_struct! {
    /// A time since 1970.
    pub struct Time {
        pub secs: u32,
        /// Microseconds, 0 to 999,999; [`Time::SERVER`] in a SETATTR.
        pub micros: u32,
    }

    /// A file's attributes (`fattr`).
    pub struct Attr {
        pub kind: FileType,
        /// Permission bits, and the type as in `st_mode`.
        pub mode: u32,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        /// Size in bytes.
        pub size: u32,
        /// Preferred size of READ and WRITE in bytes.
        pub block_size: u32,
        /// Device numbers of a device, otherwise [`Attr::NO_DEVICE`].
        pub rdev: u32,
        /// Allocated blocks of 512 bytes.
        pub blocks: u32,
        /// File system identifier.
        pub fsid: u32,
        /// File identifier within the file system.
        pub fileid: u32,
        /// Time of the last access.
        pub atime: Time,
        /// Time of the last change of the data.
        pub mtime: Time,
        /// Time of the last change of the attributes.
        pub ctime: Time,
    }
}

impl Copy for Time {}

impl Time {
    /// Microseconds that no valid time has. In a SETATTR's mtime they mean, by a convention of
    /// Sun's, that the server sets both times to its current time.
    pub const SERVER: u32 = 1_000_000;
}

impl Attr {
    /// `rdev` of an object that is not a device.
    pub const NO_DEVICE: u32 = u32::MAX;
}

/// New attributes (`sattr`); `None` keeps the value. On the wire that is a value of all ones, which
/// therefore cannot be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAttr {
    /// Permission bits; in CREATE the type may stand above them.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Size in bytes: truncates, or extends with zeros.
    pub size: Option<u32>,
    /// Time of the last access.
    pub atime: Option<Time>,
    /// Time of the last change of the data.
    pub mtime: Option<Time>,
}

/// Wire value of an attribute to keep.
const KEEP: u32 = u32::MAX;

impl SetAttr {
    pub const NONE: SetAttr = SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None };
}

impl Xdr for SetAttr {
    fn encode(&self, out: &mut Vec<u8>) {
        for word in [self.mode, self.uid, self.gid, self.size] {
            word.unwrap_or(KEEP).encode(out);
        }
        for time in [self.atime, self.mtime] {
            time.unwrap_or(Time { secs: KEEP, micros: KEEP }).encode(out);
        }
    }
    fn decode(r: &mut Reader) -> Result<SetAttr, Error> {
        let word = |r: &mut Reader| u32::decode(r).map(|w| (w != KEEP).then_some(w));
        let time = |r: &mut Reader| Time::decode(r).map(|t| (t.secs != KEEP && t.micros != KEEP).then_some(t));
        Ok(SetAttr { mode: word(r)?, uid: word(r)?, gid: word(r)?, size: word(r)?, atime: time(r)?, mtime: time(r)? })
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
        assert_eq!((Proc::Write as u32, Proc::StatFs as u32, Proc::from_number(18)), (8, 17, None));
    }
}
