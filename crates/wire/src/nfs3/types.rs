//! Constants, procedures, and the types shared by NFSv3's procedures (RFC 1813, sections 2.5 and 2.6).

use bytes::Bytes;

use crate::{Error, Reader, Xdr};

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

    /// The name in RFC 1813, without `NFSPROC3_`.
    pub fn name(self) -> &'static str {
        use Proc::*;
        match self {
            Null => "NULL",
            GetAttr => "GETATTR",
            SetAttr => "SETATTR",
            Lookup => "LOOKUP",
            Access => "ACCESS",
            ReadLink => "READLINK",
            Read => "READ",
            Write => "WRITE",
            Create => "CREATE",
            MkDir => "MKDIR",
            SymLink => "SYMLINK",
            MkNod => "MKNOD",
            Remove => "REMOVE",
            RmDir => "RMDIR",
            Rename => "RENAME",
            Link => "LINK",
            ReadDir => "READDIR",
            ReadDirPlus => "READDIRPLUS",
            FsStat => "FSSTAT",
            FsInfo => "FSINFO",
            PathConf => "PATHCONF",
            Commit => "COMMIT",
        }
    }
}

/// A file handle: at most 64 bytes, opaque to the client.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fh(pub Bytes);

impl Xdr for Fh {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Fh, Error> {
        r.opaque(FH_MAX).map(Fh)
    }
}

/// A file name: arbitrary bytes, which the server validates.
pub type Name = Bytes;

xdr_enum! {
    /// Error of a procedure (`nfsstat3` without NFS3_OK).
    pub enum Status {
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        Io = 5,
        /// No such device or address.
        NxIo = 6,
        Access = 13,
        Exist = 17,
        /// A link across devices.
        XDev = 18,
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// Is a directory.
        IsDir = 21,
        Inval = 22,
        /// File too large.
        FBig = 27,
        /// No space left on the device.
        NoSpc = 28,
        /// Read-only file system.
        RoFs = 30,
        /// Too many links.
        MLink = 31,
        /// Name too long.
        NameTooLong = 63,
        /// Directory not empty.
        NotEmpty = 66,
        DQuot = 69,
        /// The handle's file no longer exists.
        Stale = 70,
        /// Too many levels of remote in the path.
        Remote = 71,
        /// Invalid file handle.
        BadHandle = 10001,
        /// The guard's ctime differs from the object's.
        NotSync = 10002,
        /// The directory cookie is stale.
        BadCookie = 10003,
        NotSupp = 10004,
        /// The results exceed the size allowed.
        TooSmall = 10005,
        ServerFault = 10006,
        /// The server does not support this type.
        BadType = 10007,
        /// Try again later.
        Jukebox = 10008,
    }
}

impl Status {
    /// The name in RFC 1813, without `NFS3ERR_`.
    pub fn name(self) -> &'static str {
        match self {
            Status::Perm => "PERM",
            Status::NoEnt => "NOENT",
            Status::Io => "IO",
            Status::NxIo => "NXIO",
            Status::Access => "ACCES",
            Status::Exist => "EXIST",
            Status::XDev => "XDEV",
            Status::NoDev => "NODEV",
            Status::NotDir => "NOTDIR",
            Status::IsDir => "ISDIR",
            Status::Inval => "INVAL",
            Status::FBig => "FBIG",
            Status::NoSpc => "NOSPC",
            Status::RoFs => "ROFS",
            Status::MLink => "MLINK",
            Status::NameTooLong => "NAMETOOLONG",
            Status::NotEmpty => "NOTEMPTY",
            Status::DQuot => "DQUOT",
            Status::Stale => "STALE",
            Status::Remote => "REMOTE",
            Status::BadHandle => "BADHANDLE",
            Status::NotSync => "NOT_SYNC",
            Status::BadCookie => "BAD_COOKIE",
            Status::NotSupp => "NOTSUPP",
            Status::TooSmall => "TOOSMALL",
            Status::ServerFault => "SERVERFAULT",
            Status::BadType => "BADTYPE",
            Status::Jukebox => "JUKEBOX",
        }
    }
}

xdr_enum! {
    /// Type of an object (`ftype3`).
    pub enum FileType {
        Regular = 1,
        Directory = 2,
        Block = 3,
        Char = 4,
        SymLink = 5,
        Socket = 6,
        Fifo = 7,
    }

    /// Stability of written data (`stable_how`).
    pub enum Stable {
        /// Not on stable storage: COMMIT follows.
        Unstable = 0,
        /// Data and the metadata needed to read it on stable storage.
        DataSync = 1,
        /// Data and all metadata on stable storage.
        FileSync = 2,
    }
}

xdr_struct! {
    /// A time since 1970.
    pub struct NfsTime {
        pub secs: u32,
        /// Nanoseconds, 0 to 999,999,999.
        pub nanos: u32,
    }

    pub struct SpecData {
        pub major: u32,
        pub minor: u32,
    }

    /// A file's attributes (`fattr3`).
    pub struct Attr {
        pub kind: FileType,
        pub mode: u32,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        /// Size in bytes.
        pub size: u64,
        pub used: u64,
        /// Device numbers, of devices only.
        pub rdev: SpecData,
        /// File system identifier.
        pub fsid: u64,
        /// File identifier within the file system.
        pub fileid: u64,
        /// Time of the last access.
        pub atime: NfsTime,
        /// Time of the last change of the data.
        pub mtime: NfsTime,
        /// Time of the last change of the attributes.
        pub ctime: NfsTime,
    }

    /// Attributes by which a client detects changes by others (`wcc_attr`).
    pub struct WccAttr {
        /// Size in bytes.
        pub size: u64,
        /// Time of the last change of the data.
        pub mtime: NfsTime,
        /// Time of the last change of the attributes.
        pub ctime: NfsTime,
    }

    /// Attributes before and after an operation: weak cache consistency (`wcc_data`).
    #[derive(Default)]
    pub struct Wcc {
        pub before: Option<WccAttr>,
        pub after: Option<Attr>,
    }

    /// New attributes (`sattr3`); `None` keeps the value.
    pub struct SetAttr {
        pub mode: Option<u32>,
        pub uid: Option<u32>,
        pub gid: Option<u32>,
        /// Size in bytes: truncates, or extends with zeros.
        pub size: Option<u64>,
        /// Time of the last access.
        pub atime: SetTime,
        /// Time of the last change of the data.
        pub mtime: SetTime,
    }
}

impl Copy for NfsTime {}
impl Copy for SpecData {}
impl Copy for WccAttr {}

impl PartialOrd for NfsTime {
    fn partial_cmp(&self, other: &NfsTime) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NfsTime {
    fn cmp(&self, other: &NfsTime) -> std::cmp::Ordering {
        (self.secs, self.nanos).cmp(&(other.secs, other.nanos))
    }
}

impl Attr {
    /// The part for weak cache consistency.
    pub fn wcc(&self) -> WccAttr {
        WccAttr { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

impl Wcc {
    pub const NONE: Wcc = Wcc { before: None, after: None };
}

impl SetAttr {
    pub const NONE: SetAttr =
        SetAttr { mode: None, uid: None, gid: None, size: None, atime: SetTime::Keep, mtime: SetTime::Keep };
}

/// New value of a time (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Keeps the value.
    Keep,
    /// The server's current time.
    Server,
    To(NfsTime),
}

impl Xdr for SetTime {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::Keep => 0u32.encode(out),
            SetTime::Server => 1u32.encode(out),
            SetTime::To(t) => {
                2u32.encode(out);
                t.encode(out);
            }
        }
    }
    fn decode(r: &mut Reader) -> Result<SetTime, Error> {
        Ok(match u32::decode(r)? {
            0 => SetTime::Keep,
            1 => SetTime::Server,
            2 => SetTime::To(NfsTime::decode(r)?),
            value => return Err(Error::BadDiscriminant { what: "time_how", value }),
        })
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
