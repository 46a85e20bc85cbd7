//! What NFSv3's procedures share (RFC 1813, section 2.5 and 2.6).

use bytes::Bytes;

use crate::{Error, Reader, Xdr};

/// A file handle: at most 64 bytes that mean something to the server alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fh(pub Bytes);

impl Xdr for Fh {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Fh, Error> {
        r.opaque(super::FH_MAX).map(Fh)
    }
}

/// A file name. Any bytes: what a name may be is the server's to say.
pub type Name = Bytes;

xdr_enum! {
    /// Why a procedure failed (`nfsstat3` without NFS3_OK).
    pub enum Status {
        /// Not owner.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// I/O error.
        Io = 5,
        /// No such device or address.
        NxIo = 6,
        /// Permission denied.
        Access = 13,
        /// File exists.
        Exist = 17,
        /// A link across devices.
        XDev = 18,
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// Is a directory.
        IsDir = 21,
        /// Invalid argument.
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
        /// Quota exceeded.
        DQuot = 69,
        /// The handle's file is gone.
        Stale = 70,
        /// Too many levels of remote in the path.
        Remote = 71,
        /// Not a handle of this server.
        BadHandle = 10001,
        /// The guard's time is not the file's.
        NotSync = 10002,
        /// The directory cookie is stale.
        BadCookie = 10003,
        /// Not supported.
        NotSupp = 10004,
        /// The reply does not fit the size allowed.
        TooSmall = 10005,
        /// A failure on the server.
        ServerFault = 10006,
        /// This type cannot be made here.
        BadType = 10007,
        /// Try again later.
        Jukebox = 10008,
    }
}

xdr_enum! {
    /// What kind of object (`ftype3`).
    pub enum FileType {
        /// Regular file.
        Regular = 1,
        /// Directory.
        Directory = 2,
        /// Block device.
        Block = 3,
        /// Character device.
        Char = 4,
        /// Symbolic link.
        SymLink = 5,
        /// Socket.
        Socket = 6,
        /// Named pipe.
        Fifo = 7,
    }

    /// How far a WRITE must have gone before its reply (`stable_how`).
    pub enum Stable {
        /// Nowhere yet: COMMIT follows.
        Unstable = 0,
        /// The data, and what is needed to find it, on stable storage.
        DataSync = 1,
        /// Data and all metadata on stable storage.
        FileSync = 2,
    }
}

xdr_struct! {
    /// A time since 1970.
    pub struct NfsTime {
        /// Seconds.
        pub secs: u32,
        /// Nanoseconds, 0 to 999,999,999.
        pub nanos: u32,
    }

    /// A device's numbers.
    pub struct SpecData {
        /// Major.
        pub major: u32,
        /// Minor.
        pub minor: u32,
    }

    /// A file's attributes (`fattr3`).
    pub struct Attr {
        /// Type.
        pub kind: FileType,
        /// Permission bits.
        pub mode: u32,
        /// Hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Bytes in the file.
        pub size: u64,
        /// Bytes on the disk.
        pub used: u64,
        /// Device numbers, of a device.
        pub rdev: SpecData,
        /// File system.
        pub fsid: u64,
        /// Number of the file in it.
        pub fileid: u64,
        /// Last read.
        pub atime: NfsTime,
        /// Last change of the data.
        pub mtime: NfsTime,
        /// Last change of the attributes.
        pub ctime: NfsTime,
    }

    /// What a client needs to see whether others changed a file (`wcc_attr`).
    pub struct WccAttr {
        /// Bytes in the file.
        pub size: u64,
        /// Last change of the data.
        pub mtime: NfsTime,
        /// Last change of the attributes.
        pub ctime: NfsTime,
    }

    /// A file before and after an operation (`wcc_data`).
    pub struct Wcc {
        /// Before.
        pub before: Option<WccAttr>,
        /// After.
        pub after: Option<Attr>,
    }

    /// New attributes (`sattr3`); what is `None` stays.
    pub struct SetAttr {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Size: cut off, or filled up with zeros.
        pub size: Option<u64>,
        /// Last read.
        pub atime: SetTime,
        /// Last change of the data.
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
    /// The part that shows whether others changed the file.
    pub fn wcc(&self) -> WccAttr {
        WccAttr { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

impl Wcc {
    /// Nothing known.
    pub const NONE: Wcc = Wcc { before: None, after: None };
}

impl SetAttr {
    /// Leaves everything as it is.
    pub const NONE: SetAttr =
        SetAttr { mode: None, uid: None, gid: None, size: None, atime: SetTime::Keep, mtime: SetTime::Keep };
}

/// What to do with a time stamp (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Leave it.
    Keep,
    /// The server's present time.
    Server,
    /// This time.
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
