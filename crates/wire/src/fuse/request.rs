//! Requests of the kernel.

use bytes::Bytes;

use super::fields::{Fields, RequestError};
use super::init::InitIn;
use super::types::{FileLock, Header, Name, Timestamp};

/// Flag of WRITE: dirty pages of a shared mapping; the open file is a guess.
pub const WRITE_CACHE: u32 = 1 << 0;
/// Flag of WRITE: the file system clears the set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// Flag of RENAME: fail if the new name exists.
pub const RENAME_NOREPLACE: u32 = 1 << 0;
/// Flag of RENAME: exchange the two names.
pub const RENAME_EXCHANGE: u32 = 1 << 1;

const GETATTR_FH: u32 = 1 << 0;
const FSYNC_FDATASYNC: u32 = 1 << 0;
const LK_FLOCK: u32 = 1 << 0;

const FATTR_MODE: u32 = 1 << 0;
const FATTR_UID: u32 = 1 << 1;
const FATTR_GID: u32 = 1 << 2;
const FATTR_SIZE: u32 = 1 << 3;
const FATTR_ATIME: u32 = 1 << 4;
const FATTR_MTIME: u32 = 1 << 5;
const FATTR_FH: u32 = 1 << 6;
const FATTR_ATIME_NOW: u32 = 1 << 7;
const FATTR_MTIME_NOW: u32 = 1 << 8;
const FATTR_KILL_SUIDGID: u32 = 1 << 11;

/// Numbers of the operations (`enum fuse_opcode`).
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// A request: its caller and object, and the operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub header: Header,
    pub op: Operation,
}

/// An operation with its arguments. Operations that no file system of this program performs have
/// none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Init(InitIn),
    /// The file system is unmounted.
    Destroy,
    Lookup {
        name: Name,
    },
    /// The kernel gives `lookups` lookups of the node back. No reply.
    Forget {
        lookups: u64,
    },
    /// As [`Operation::Forget`], of many nodes.
    BatchForget(Vec<Forget>),
    GetAttr {
        fh: Option<u64>,
    },
    SetAttr(SetAttr),
    ReadLink,
    SymLink {
        name: Name,
        target: Name,
    },
    MkNod {
        name: Name,
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    MkDir {
        name: Name,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: Name,
    },
    RmDir {
        name: Name,
    },
    /// RENAME and RENAME2, with `RENAME_*` flags.
    Rename {
        name: Name,
        new_dir: u64,
        new_name: Name,
        flags: u32,
    },
    /// A new name for the object `nodeid`.
    Link {
        nodeid: u64,
        name: Name,
    },
    /// OPEN, with the flags of open(2).
    Open {
        flags: u32,
    },
    Create {
        name: Name,
        mode: u32,
        umask: u32,
        flags: u32,
    },
    /// READ, with the flags of the open file.
    Read {
        fh: u64,
        offset: u64,
        size: u32,
        flags: u32,
    },
    /// WRITE, with `WRITE_*` flags and those of the open file.
    Write {
        fh: u64,
        offset: u64,
        data: Bytes,
        write_flags: u32,
        flags: u32,
    },
    /// A close(2) of one of the descriptors of the open file.
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    /// The last descriptor is closed.
    Release {
        fh: u64,
        flags: u32,
    },
    Fsync {
        fh: u64,
        data_only: bool,
    },
    OpenDir {
        flags: u32,
    },
    ReadDir {
        fh: u64,
        offset: u64,
        size: u32,
    },
    ReadDirPlus {
        fh: u64,
        offset: u64,
        size: u32,
    },
    ReleaseDir {
        fh: u64,
    },
    FsyncDir {
        fh: u64,
        data_only: bool,
    },
    StatFs,
    /// ACCESS, with the mask of access(2).
    Access {
        mask: u32,
    },
    /// A signal for the thread that waits for request `unique`.
    Interrupt {
        unique: u64,
    },
    /// GETXATTR, SETXATTR, LISTXATTR and REMOVEXATTR.
    Xattr,
    GetLk(LockRequest),
    SetLk(LockRequest),
    /// As [`Operation::SetLk`], and waits for the lock.
    SetLkW(LockRequest),
    Lseek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    Fallocate,
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    CopyFileRange,
    Poll,
    Ioctl,
    SyncFs,
    TmpFile,
    Statx,
    /// The reply to a notification that this program does not send. No reply.
    NotifyReply,
    /// Any other operation.
    Unsupported,
}

/// Lookups of one node that the kernel gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forget {
    pub nodeid: u64,
    pub lookups: u64,
}

/// Attributes to change; `None` keeps one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SetAttr {
    pub fh: Option<u64>,
    pub size: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: TimeChange,
    pub mtime: TimeChange,
    /// The file system clears the set-id bits, too.
    pub kill_suidgid: bool,
}

/// Change of a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TimeChange {
    #[default]
    Keep,
    /// To the present time.
    Now,
    To(Timestamp),
}

/// Arguments of GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    pub fh: u64,
    pub owner: u64,
    pub lock: FileLock,
    /// A lock of flock(2), not of fcntl(2).
    pub is_flock: bool,
}

impl Request {
    /// Decodes one message. The data of a WRITE and all names are slices of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Request, RequestError> {
        let (header, mut fields) = Header::with_body(bytes)?;
        let op = match header.opcode {
            opcode::SYMLINK..=opcode::LINK | opcode::LOOKUP | opcode::RENAME2 | opcode::CREATE => {
                Operation::on_name(header.opcode, &mut fields)?
            }
            opcode::OPENDIR..=opcode::FSYNCDIR | opcode::READDIRPLUS => {
                Operation::on_directory(header.opcode, &mut fields)?
            }
            other => Operation::on_object(other, &mut fields)?,
        };
        Ok(Request { header, op })
    }

    /// Whether the kernel waits for a reply. INTERRUPT has none: an error in reply to it changes what
    /// the kernel does with later signals.
    pub fn needs_reply(&self) -> bool {
        !matches!(
            self.op,
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt { .. } | Operation::NotifyReply
        )
    }
}

impl Operation {
    /// Decodes an operation on a name in a directory.
    fn on_name(opcode: u32, r: &mut Fields) -> Result<Operation, RequestError> {
        Ok(match opcode {
            opcode::LOOKUP => Operation::Lookup { name: r.name()? },
            opcode::SYMLINK => Operation::SymLink { name: r.name()?, target: r.name()? },
            opcode::MKNOD => {
                let (mode, rdev, umask) = (r.u32()?, r.u32()?, r.u32()?);
                r.skip(4)?;
                Operation::MkNod { name: r.name()?, mode, rdev, umask }
            }
            opcode::MKDIR => {
                let (mode, umask) = (r.u32()?, r.u32()?);
                Operation::MkDir { name: r.name()?, mode, umask }
            }
            opcode::UNLINK => Operation::Unlink { name: r.name()? },
            opcode::RMDIR => Operation::RmDir { name: r.name()? },
            opcode::RENAME => {
                let new_dir = r.u64()?;
                Operation::Rename { name: r.name()?, new_dir, new_name: r.name()?, flags: 0 }
            }
            opcode::RENAME2 => {
                let (new_dir, flags) = (r.u64()?, r.u32()?);
                r.skip(4)?;
                Operation::Rename { name: r.name()?, new_dir, new_name: r.name()?, flags }
            }
            opcode::LINK => Operation::Link { nodeid: r.u64()?, name: r.name()? },
            opcode::CREATE => {
                let (flags, mode, umask) = (r.u32()?, r.u32()?, r.u32()?);
                r.skip(4)?;
                Operation::Create { name: r.name()?, mode, umask, flags }
            }
            _ => Operation::Unsupported,
        })
    }

    /// Decodes an operation on an open directory.
    fn on_directory(opcode: u32, r: &mut Fields) -> Result<Operation, RequestError> {
        Ok(match opcode {
            opcode::OPENDIR => Operation::OpenDir { flags: r.u32()? },
            opcode::READDIR => Operation::ReadDir { fh: r.u64()?, offset: r.u64()?, size: r.u32()? },
            opcode::READDIRPLUS => Operation::ReadDirPlus { fh: r.u64()?, offset: r.u64()?, size: r.u32()? },
            opcode::RELEASEDIR => Operation::ReleaseDir { fh: r.u64()? },
            opcode::FSYNCDIR => Operation::FsyncDir { fh: r.u64()?, data_only: r.u32()? & FSYNC_FDATASYNC != 0 },
            _ => Operation::Unsupported,
        })
    }

    /// Decodes any other operation.
    fn on_object(opcode: u32, r: &mut Fields) -> Result<Operation, RequestError> {
        Ok(match opcode {
            opcode::INIT => Operation::Init(InitIn::decode(r)?),
            opcode::DESTROY => Operation::Destroy,
            opcode::FORGET => Operation::Forget { lookups: r.u64()? },
            opcode::BATCH_FORGET => Operation::BatchForget(forgets(r)?),
            opcode::GETATTR => Operation::GetAttr { fh: get_attr_fh(r)? },
            opcode::SETATTR => Operation::SetAttr(SetAttr::decode(r)?),
            opcode::READLINK => Operation::ReadLink,
            opcode::OPEN => Operation::Open { flags: r.u32()? },
            opcode::READ => read(r)?,
            opcode::WRITE => write(r)?,
            opcode::STATFS => Operation::StatFs,
            opcode::RELEASE => Operation::Release { fh: r.u64()?, flags: r.u32()? },
            opcode::FSYNC => Operation::Fsync { fh: r.u64()?, data_only: r.u32()? & FSYNC_FDATASYNC != 0 },
            opcode::FLUSH => {
                let fh = r.u64()?;
                r.skip(8)?;
                Operation::Flush { fh, lock_owner: r.u64()? }
            }
            opcode::GETLK => Operation::GetLk(LockRequest::decode(r)?),
            opcode::SETLK => Operation::SetLk(LockRequest::decode(r)?),
            opcode::SETLKW => Operation::SetLkW(LockRequest::decode(r)?),
            opcode::ACCESS => Operation::Access { mask: r.u32()? },
            opcode::INTERRUPT => Operation::Interrupt { unique: r.u64()? },
            opcode::LSEEK => Operation::Lseek { fh: r.u64()?, offset: r.u64()?, whence: r.u32()? },
            opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => Operation::Xattr,
            opcode::IOCTL => Operation::Ioctl,
            opcode::POLL => Operation::Poll,
            opcode::NOTIFY_REPLY => Operation::NotifyReply,
            opcode::FALLOCATE => Operation::Fallocate,
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => Operation::CopyFileRange,
            opcode::SYNCFS => Operation::SyncFs,
            opcode::TMPFILE => Operation::TmpFile,
            opcode::STATX => Operation::Statx,
            _ => Operation::Unsupported,
        })
    }
}

fn forgets(r: &mut Fields) -> Result<Vec<Forget>, RequestError> {
    let count = r.u32()?;
    r.skip(4)?;
    if r.remaining() / 16 < count as usize {
        return Err(RequestError::Truncated);
    }
    (0..count).map(|_| Ok(Forget { nodeid: r.u64()?, lookups: r.u64()? })).collect()
}

fn get_attr_fh(r: &mut Fields) -> Result<Option<u64>, RequestError> {
    let flags = r.u32()?;
    r.skip(4)?;
    let fh = r.u64()?;
    Ok((flags & GETATTR_FH != 0).then_some(fh))
}

fn read(r: &mut Fields) -> Result<Operation, RequestError> {
    let (fh, offset, size) = (r.u64()?, r.u64()?, r.u32()?);
    // Flags of READ and the owner of its locks.
    r.skip(4 + 8)?;
    Ok(Operation::Read { fh, offset, size, flags: r.u32()? })
}

fn write(r: &mut Fields) -> Result<Operation, RequestError> {
    let (fh, offset, size, write_flags) = (r.u64()?, r.u64()?, r.u32()?, r.u32()?);
    r.skip(8)?;
    let flags = r.u32()?;
    r.skip(4)?;
    Ok(Operation::Write { fh, offset, data: r.slice(size as usize)?, write_flags, flags })
}

impl SetAttr {
    fn decode(r: &mut Fields) -> Result<SetAttr, RequestError> {
        let valid = r.u32()?;
        r.skip(4)?;
        let (fh, size) = (r.u64()?, r.u64()?);
        r.skip(8)?;
        // ctime has its place, but only a kernel that caches dirty pages sends it.
        let [atime, mtime, _] = [r.u64()? as i64, r.u64()? as i64, r.u64()? as i64];
        let [atime_nanos, mtime_nanos, _] = [r.u32()?, r.u32()?, r.u32()?];
        let mode = r.u32()?;
        r.skip(4)?;
        let (uid, gid) = (r.u32()?, r.u32()?);
        let has = |flag| valid & flag != 0;
        let time = |set, now, to| match (has(set), has(now)) {
            (_, true) => TimeChange::Now,
            (true, false) => TimeChange::To(to),
            (false, false) => TimeChange::Keep,
        };
        Ok(SetAttr {
            fh: has(FATTR_FH).then_some(fh),
            size: has(FATTR_SIZE).then_some(size),
            mode: has(FATTR_MODE).then_some(mode),
            uid: has(FATTR_UID).then_some(uid),
            gid: has(FATTR_GID).then_some(gid),
            atime: time(FATTR_ATIME, FATTR_ATIME_NOW, Timestamp { secs: atime, nanos: atime_nanos }),
            mtime: time(FATTR_MTIME, FATTR_MTIME_NOW, Timestamp { secs: mtime, nanos: mtime_nanos }),
            kill_suidgid: has(FATTR_KILL_SUIDGID),
        })
    }
}

impl LockRequest {
    fn decode(r: &mut Fields) -> Result<LockRequest, RequestError> {
        let (fh, owner) = (r.u64()?, r.u64()?);
        let lock = FileLock::decode(r)?;
        Ok(LockRequest { fh, owner, lock, is_flock: r.u32()? & LK_FLOCK != 0 })
    }
}
