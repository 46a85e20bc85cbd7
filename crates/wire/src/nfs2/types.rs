//! What NFSv2's procedures share (RFC 1094, section 2.3).

use crate::{Error, Reader, Xdr};

use super::FH_SIZE;

pub use crate::nfs3::Name;

/// A file handle: 32 bytes that mean something to the server alone.
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
    /// Why a procedure failed (`stat` without NFS_OK).
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
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// Is a directory.
        IsDir = 21,
        /// Invalid argument. Not in RFC 1094: Linux's and Solaris' servers send it, and U-Boot knows a symbolic link by it.
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
        /// Quota exceeded.
        DQuot = 69,
        /// The handle's file is gone.
        Stale = 70,
        /// The server's write cache was flushed to disk.
        WFlush = 99,
    }
}

xdr_enum! {
    /// What kind of object (`ftype`).
    pub enum FileType {
        /// Not a file.
        None = 0,
        /// Regular file.
        Regular = 1,
        /// Directory.
        Directory = 2,
        /// Block device.
        Block = 3,
        /// Character device. A named pipe is one, too, with [`Attr::NO_DEVICE`]: the RFC has
        /// no word for it.
        Char = 4,
        /// Symbolic link.
        SymLink = 5,
        /// Socket: not in the RFC, but what servers say (X/Open XNFS).
        Socket = 6,
    }
}

xdr_struct! {
    /// A time since 1970.
    pub struct Time {
        /// Seconds.
        pub secs: u32,
        /// Microseconds, 0 to 999,999; [`Time::SERVER`] in a SETATTR.
        pub micros: u32,
    }

    /// A file's attributes (`fattr`).
    pub struct Attr {
        /// Type.
        pub kind: FileType,
        /// Type, as `st_mode` has it, and permission bits.
        pub mode: u32,
        /// Hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Bytes in the file.
        pub size: u32,
        /// Best size of READ and WRITE in bytes.
        pub block_size: u32,
        /// Device numbers of a device, else [`Attr::NO_DEVICE`].
        pub rdev: u32,
        /// Blocks of 512 bytes on the disk.
        pub blocks: u32,
        /// File system.
        pub fsid: u32,
        /// Number of the file in it.
        pub fileid: u32,
        /// Last read.
        pub atime: Time,
        /// Last change of the data.
        pub mtime: Time,
        /// Last change of the attributes.
        pub ctime: Time,
    }
}

impl Copy for Time {}

impl Time {
    /// Microseconds that no time has: in a SETATTR's mtime, by a convention of Sun's that
    /// clients follow, "the server's present time, for both times".
    pub const SERVER: u32 = 1_000_000;
}

impl Attr {
    /// `rdev` of what is no device.
    pub const NO_DEVICE: u32 = u32::MAX;
}

/// New attributes (`sattr`); what is `None` stays. On the wire that is a value of all ones,
/// which can therefore not be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAttr {
    /// Permission bits; in CREATE a type may stand above them.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: cut off, or filled up with zeros.
    pub size: Option<u32>,
    /// Last read.
    pub atime: Option<Time>,
    /// Last change of the data.
    pub mtime: Option<Time>,
}

/// The value of what stays.
const KEEP: u32 = u32::MAX;

impl SetAttr {
    /// Leaves everything as it is.
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
