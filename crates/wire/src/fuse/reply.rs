//! Replies to requests, and the pages of a directory.

use std::io::IoSlice;
use std::time::Duration;

use bytes::Bytes;

use super::errno::Errno;
use super::fields::Structure;
use super::init::InitOut;
use super::types::{Attr, Entry, FileKind, FileLock, OUT_HEADER_LEN, StatFs};

const FOPEN_DIRECT_IO: u32 = 1 << 0;
const FOPEN_KEEP_CACHE: u32 = 1 << 1;
const FOPEN_NONSEEKABLE: u32 = 1 << 2;
const FOPEN_CACHE_DIR: u32 = 1 << 3;
const FOPEN_NOFLUSH: u32 = 1 << 5;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// Length of `fuse_dirent` without the name.
const DIRENT_LEN: usize = 24;
/// Alignment of directory entries.
const ALIGNMENT: usize = 8;

/// A successful reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Success of an operation without results.
    Empty,
    Init(InitOut),
    /// Reply to LOOKUP, SYMLINK, MKNOD, MKDIR and LINK. The kernel then holds one more lookup of the
    /// node, which it gives back by FORGET.
    Entry(Entry),
    /// Reply to GETATTR and SETATTR.
    Attr {
        attr: Attr,
        valid: Duration,
    },
    /// Reply to READLINK.
    Target(Bytes),
    /// Reply to OPEN and OPENDIR.
    Opened(Opened),
    /// Reply to CREATE; a lookup as for [`Reply::Entry`].
    Created(Entry, Opened),
    /// Reply to READ; less than asked for is the end of the file.
    Data(Bytes),
    Written {
        size: u32,
    },
    /// Reply to READDIR and READDIRPLUS: a [`DirectoryPage`]; an empty one is the end.
    Directory(Bytes),
    StatFs(StatFs),
    /// Reply to GETLK.
    Lock(FileLock),
    /// Reply to LSEEK: the offset.
    Lseek(u64),
}

/// An open file or directory (`fuse_open_out`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opened {
    /// Number of the open file, which its requests repeat.
    pub fh: u64,
    /// Reads and writes bypass the kernel's cache.
    pub direct_io: bool,
    /// The kernel keeps the pages that it has of the file.
    pub keep_cache: bool,
    pub nonseekable: bool,
    /// The kernel may cache the entries of the directory.
    pub cache_dir: bool,
    /// No FLUSH on close(2).
    pub no_flush: bool,
    /// Several direct writes at a time.
    pub parallel_direct_writes: bool,
}

impl Opened {
    fn encode(&self, out: &mut Structure) {
        let flags = [
            (self.direct_io, FOPEN_DIRECT_IO),
            (self.keep_cache, FOPEN_KEEP_CACHE),
            (self.nonseekable, FOPEN_NONSEEKABLE),
            (self.cache_dir, FOPEN_CACHE_DIR),
            (self.no_flush, FOPEN_NOFLUSH),
            (self.parallel_direct_writes, FOPEN_PARALLEL_DIRECT_WRITES),
        ];
        let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        out.u64(self.fh).u32(flags).u32(0);
    }
}

/// A message to the kernel in two parts, which one vectored write carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// Header and results.
    pub head: Vec<u8>,
    /// Data after them, not copied.
    pub data: Bytes,
}

impl Encoded {
    /// Both parts, for writev(2).
    pub fn slices(&self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(&self.head), IoSlice::new(&self.data)]
    }
}

impl Reply {
    /// The reply to request `unique`.
    pub fn encode(&self, unique: u64) -> Encoded {
        let mut body = Structure::default();
        let mut data = Bytes::new();
        match self {
            Reply::Empty => {}
            Reply::Init(init) => init.encode(&mut body),
            Reply::Entry(entry) => entry.encode(&mut body),
            Reply::Attr { attr, valid } => {
                body.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
                attr.encode(&mut body);
            }
            Reply::Opened(opened) => opened.encode(&mut body),
            Reply::Created(entry, opened) => {
                entry.encode(&mut body);
                opened.encode(&mut body);
            }
            Reply::Target(bytes) | Reply::Data(bytes) | Reply::Directory(bytes) => data = bytes.clone(),
            Reply::Written { size } => _ = body.u32(*size).u32(0),
            Reply::StatFs(statfs) => statfs.encode(&mut body),
            Reply::Lock(lock) => lock.encode(&mut body),
            Reply::Lseek(offset) => _ = body.u64(*offset),
        }
        let mut head = Structure(Vec::with_capacity(OUT_HEADER_LEN + body.0.len()));
        let len = OUT_HEADER_LEN + body.0.len() + data.len();
        head.u32(len as u32).u32(0).u64(unique).bytes(&body.0);
        Encoded { head: head.0, data }
    }
}

/// The reply to request `unique` that it failed.
pub fn encode_error(unique: u64, errno: Errno) -> [u8; OUT_HEADER_LEN] {
    let mut message = [0; OUT_HEADER_LEN];
    message[..4].copy_from_slice(&(OUT_HEADER_LEN as u32).to_ne_bytes());
    message[4..8].copy_from_slice(&errno.0.wrapping_neg().to_ne_bytes());
    message[8..].copy_from_slice(&unique.to_ne_bytes());
    message
}

/// Entries of a directory, as many as fit into one reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryPage {
    entries: Vec<u8>,
    size: usize,
}

impl DirectoryPage {
    /// An empty page for a request of `size` bytes.
    pub fn new(size: u32) -> DirectoryPage {
        DirectoryPage { entries: Vec::new(), size: size as usize }
    }

    /// Appends an entry of READDIR; `false` if it does not fit. The next request begins at `cookie`
    /// if the kernel takes this entry as its last.
    pub fn push(&mut self, ino: u64, cookie: u64, kind: FileKind, name: &[u8]) -> bool {
        self.fits(0, name) && self.append(ino, cookie, kind, name)
    }

    /// Appends an entry of READDIRPLUS; `false` if it does not fit. The kernel then holds one more
    /// lookup of the node, unless the node number is 0 or the name is `.` or `..`.
    pub fn push_plus(&mut self, entry: &Entry, cookie: u64, name: &[u8]) -> bool {
        if !self.fits(Entry::LEN, name) {
            return false;
        }
        let mut out = Structure(std::mem::take(&mut self.entries));
        entry.encode(&mut out);
        self.entries = out.0;
        self.append(entry.attr.ino, cookie, FileKind::of_mode(entry.attr.mode), name)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The page, for [`Reply::Directory`].
    pub fn into_bytes(self) -> Bytes {
        self.entries.into()
    }

    fn fits(&self, before: usize, name: &[u8]) -> bool {
        let len = (before + DIRENT_LEN + name.len()).next_multiple_of(ALIGNMENT);
        self.entries.len() + len <= self.size
    }

    fn append(&mut self, ino: u64, cookie: u64, kind: FileKind, name: &[u8]) -> bool {
        let mut out = Structure(std::mem::take(&mut self.entries));
        out.u64(ino).u64(cookie).u32(name.len() as u32).u32(kind as u32).bytes(name);
        let len = out.0.len();
        out.zeros(len.next_multiple_of(ALIGNMENT) - len);
        self.entries = out.0;
        true
    }
}
