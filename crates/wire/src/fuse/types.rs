//! Types that requests and replies share.

use std::time::Duration;

use bytes::Bytes;

use super::fields::{Fields, RequestError, Structure};

/// A name in a directory, or the target of a symbolic link, without NUL.
pub type Name = Bytes;

/// Node number of the root directory.
pub const ROOT_ID: u64 = 1;

/// Length of a reply's header (`fuse_out_header`) in bytes.
pub(super) const OUT_HEADER_LEN: usize = 16;

/// The first 40 bytes of a request (`fuse_in_header`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Number of the request, which its reply repeats.
    pub unique: u64,
    /// The object of the operation: for a new name, its directory.
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    /// The calling thread; 0 if it is in another PID namespace, or if the kernel calls by itself.
    pub pid: u32,
    pub opcode: u32,
}

impl Header {
    /// Length in bytes.
    pub const LEN: usize = 40;

    /// Decodes the header of a request. The request may be one that
    /// [`Request::decode`](super::request::Request::decode) refuses; it still needs a reply.
    pub fn decode(request: &Bytes) -> Result<Header, RequestError> {
        Header::with_body(request).map(|(header, _)| header)
    }

    /// The header, and the fields after it without extensions.
    pub(super) fn with_body(request: &Bytes) -> Result<(Header, Fields), RequestError> {
        let mut fields = Fields::of(request.clone());
        let stated = fields.u32()?;
        let opcode = fields.u32()?;
        let (unique, nodeid) = (fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        // Extensions stand at the end, in units of eight bytes.
        let extensions = usize::from(fields.u16()?) * 8;
        fields.skip(2)?;
        if stated as usize != request.len() {
            return Err(RequestError::Length { stated, received: request.len() });
        }
        let body = fields.remaining().checked_sub(extensions).ok_or(RequestError::Truncated)?;
        Ok((Header { unique, nodeid, uid, gid, pid, opcode }, Fields::of(fields.slice(body)?)))
    }
}

/// A time since 1970; before it, `secs` is negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp {
    pub secs: i64,
    /// Less than 1,000,000,000.
    pub nanos: u32,
}

/// Type of a file, numbered as in `d_type` of readdir(3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum FileKind {
    Unknown = 0,
    Fifo = 1,
    CharDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    Regular = 8,
    SymLink = 10,
    Socket = 12,
}

impl FileKind {
    /// The type in the upper bits of `mode`.
    pub fn of_mode(mode: u32) -> FileKind {
        match (mode & 0o170_000) >> 12 {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::SymLink,
            12 => FileKind::Socket,
            _ => FileKind::Unknown,
        }
    }

    /// The upper bits of `mode`, such as `S_IFREG`.
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// Attributes of an object (`fuse_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attr {
    /// File number that `stat` shows.
    pub ino: u64,
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Permissions, with the type in the upper bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
}

impl Attr {
    pub(super) fn encode(&self, out: &mut Structure) {
        out.u64(self.ino).u64(self.size).u64(self.blocks);
        let Attr { atime, mtime, ctime, .. } = self;
        out.u64(atime.secs as u64).u64(mtime.secs as u64).u64(ctime.secs as u64);
        out.u32(atime.nanos).u32(mtime.nanos).u32(ctime.nanos);
        out.u32(self.mode).u32(self.nlink).u32(self.uid).u32(self.gid).u32(self.rdev).u32(self.blksize);
        // Flags: neither a submount nor DAX.
        out.u32(0);
    }
}

/// A name's object, and how long the kernel may use both (`fuse_entry_out`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Entry {
    /// Node number; 0 means that the name does not exist, for `entry_valid`.
    pub nodeid: u64,
    /// Distinguishes the objects that have had this node number.
    pub generation: u64,
    pub attr: Attr,
    pub entry_valid: Duration,
    pub attr_valid: Duration,
}

impl Entry {
    /// Length in bytes.
    pub(super) const LEN: usize = 128;

    pub(super) fn encode(&self, out: &mut Structure) {
        out.u64(self.nodeid).u64(self.generation);
        out.u64(self.entry_valid.as_secs()).u64(self.attr_valid.as_secs());
        out.u32(self.entry_valid.subsec_nanos()).u32(self.attr_valid.subsec_nanos());
        self.attr.encode(out);
    }
}

/// A lock on a range of bytes (`fuse_file_lock`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLock {
    pub start: u64,
    /// The last byte.
    pub end: u64,
    /// `F_RDLCK` (0), `F_WRLCK` (1) or `F_UNLCK` (2).
    pub kind: u32,
    pub pid: u32,
}

impl FileLock {
    pub(super) fn decode(fields: &mut Fields) -> Result<FileLock, RequestError> {
        Ok(FileLock { start: fields.u64()?, end: fields.u64()?, kind: fields.u32()?, pid: fields.u32()? })
    }

    pub(super) fn encode(&self, out: &mut Structure) {
        out.u64(self.start).u64(self.end).u32(self.kind).u32(self.pid);
    }
}

/// Size and use of the file system (`fuse_kstatfs`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StatFs {
    /// Blocks of `frsize` bytes: all, free, and free for unprivileged users.
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    /// Objects: all, and free.
    pub files: u64,
    pub ffree: u64,
    /// Preferred block size of transfers.
    pub bsize: u32,
    /// Maximum length of a name in bytes.
    pub namelen: u32,
    /// Size of a block in bytes.
    pub frsize: u32,
}

impl StatFs {
    pub(super) fn encode(&self, out: &mut Structure) {
        out.u64(self.blocks).u64(self.bfree).u64(self.bavail).u64(self.files).u64(self.ffree);
        out.u32(self.bsize).u32(self.namelen).u32(self.frsize).zeros(7 * 4);
    }
}
