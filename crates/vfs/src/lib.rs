//! The file operations a server asks for, apart from any protocol's messages.
//!
//! [`Vfs`] is the contract; its vocabulary (attributes, errors, write stability) is NFSv3's
//! (RFC 1813), which is what every server here speaks. Calls block, so they run where
//! blocking is allowed: on the host's executor threads, or inline in virtual time.

mod attrs;
mod flush;
mod id;
#[cfg(target_os = "linux")]
pub mod local;
pub mod memory;
mod names;
mod perm;

use std::sync::Arc;

use bytes::Bytes;
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Status, Wcc,
};

pub use flush::{Flush, FlushKey, Flushing, Ledger};
pub use id::FileId;
#[cfg(target_os = "linux")]
pub use local::LocalDisk;
pub use memory::MemFs;
pub use names::NAME_MAX;

/// What an operation comes to. Errors are NFSv3's, so that each knows its place on the wire.
pub type Result<T> = std::result::Result<T, Status>;

/// On whose behalf an operation is done, after squashing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Further groups, at most 16.
    pub gids: Vec<u32>,
}

/// A new object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// Which it is.
    pub id: FileId,
    /// Its attributes.
    pub attr: Attr,
    /// The directory before and after.
    pub dir: Wcc,
}

/// An entry of a directory listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Number of the file.
    pub fileid: u64,
    /// Its name.
    pub name: Bytes,
    /// To go on behind it; never 0.
    pub cookie: u64,
    /// Which it is, and its attributes, when asked for and still there.
    pub object: Option<(FileId, Attr)>,
}

/// Where a directory listing begins and what it brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirQuery {
    /// Go on behind the entry with this cookie; 0 from the start.
    pub cookie: u64,
    /// The verifier that came with the cookie; zeros at the start.
    pub verf: [u8; 8],
    /// Whether entries bring their [`DirEntry::object`].
    pub objects: bool,
}

/// Where a directory listing ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEnd {
    /// The verifier to come back with.
    pub verf: [u8; 8],
    /// Whether the last entry taken is the directory's last.
    pub eof: bool,
}

/// What a file system can do (FSINFO: RFC 1813, section 3.3.19).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Times that a client sets are kept to this accuracy.
    pub time_delta: NfsTime,
    /// Files can have several names.
    pub links: bool,
    /// There are symbolic links.
    pub symlinks: bool,
    /// [`Vfs::pathconf`] is the same for all objects.
    pub homogeneous: bool,
}

impl Features {
    /// Everything, and times to the nanosecond.
    pub const ALL: Features =
        Features { time_delta: NfsTime { secs: 0, nanos: 1 }, links: true, symlinks: true, homogeneous: true };
}

/// Files end here: offsets above are not numbers to most systems.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// A file system that can be exported.
///
/// * A [`FileId`] names an object for as long as it exists, across renames and restarts.
///   Operations on an id whose object is gone fail with [`Status::Stale`], never reach
///   another object.
/// * Operations that change directories or attributes are on stable storage when they
///   return. [`write`](Vfs::write) is as stable as it says; [`commit`](Vfs::commit) makes all
///   earlier writes of the file stable.
/// * Names are single components. Empty names, names with `/` or NUL, and (but for
///   [`lookup`](Vfs::lookup)) `.` and `..` fail; nothing leaves the exported tree, and
///   symbolic links are never followed.
/// * `Wcc::before` is given only when no other operation of this `Vfs` came between.
pub trait Vfs: Send + Sync {
    /// The exported directory.
    fn root(&self) -> FileId;

    /// Changes when writes that were not stable may have been lost: at a restart, and when a
    /// flush fails.
    fn verifier(&self) -> [u8; 8];

    /// How large a file may become at most, in bytes (range: up to [`OFFSET_MAX`]).
    fn file_max(&self) -> u64 {
        OFFSET_MAX
    }

    /// The same file system for one caller whose changes are stable only when the flushes
    /// that they note in `ledger` have been done, in that order. A change that fails may have
    /// noted some, too; they need not be done. `None` if it has no use for that: its changes
    /// are then as stable as this trait says.
    fn deferring(&self, ledger: &Arc<Ledger>) -> Option<Box<dyn Vfs>> {
        let _ = ledger;
        None
    }

    /// Gives back what it holds for longer than anybody needs, such as the room of files that somebody
    /// else removed. Whoever serves it calls this now and then, since nobody else may call anything. May
    /// block, as everything here.
    fn tidy(&self) {}

    /// Attributes.
    fn getattr(&self, id: &FileId) -> Result<Attr>;

    /// Sets attributes; with `guard`, only if it is the object's ctime
    /// ([`Status::NotSync`] otherwise).
    fn setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc>;

    /// The object called `name` in `dir`. `.` is `dir` itself; `..` its parent, and at the
    /// root the root.
    fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)>;

    /// Which of the `ACCESS_*` bits in `wanted` the caller has.
    fn access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32>;

    /// What a symbolic link points at.
    fn readlink(&self, cred: &Cred, id: &FileId) -> Result<Bytes>;

    /// At most `count` bytes from `offset`, and whether they reach the end of the file.
    /// Beyond the end: no bytes, and the end.
    fn read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)>;

    /// Writes all of `data` at `offset`; returns how stable it is, at least as `stable` asks.
    /// A write that goes in partly (disk full in the middle) is an error.
    fn write(&self, cred: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)>;

    /// Makes a regular file. An exclusive one is found again by its verifier.
    fn create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made>;

    /// Makes a directory.
    fn mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made>;

    /// Makes a symbolic link.
    fn symlink(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made>;

    /// Makes a device, socket or pipe.
    fn mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made>;

    /// Removes a name that is not a directory's.
    fn remove(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc>;

    /// Removes an empty directory.
    fn rmdir(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc>;

    /// Renames, replacing a target of the same kind (an empty one, if a directory).
    fn rename(&self, cred: &Cred, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<RenameDirs>;

    /// Gives a file a further name.
    fn link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs>;

    /// Lists a directory: hands entries to `take` until it returns false (that entry does not
    /// count as taken) or the directory ends. `.` and `..` are listed. Entries that are there
    /// from the first page to the last are listed exactly once.
    fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd>;

    /// What the file system can do.
    fn features(&self) -> Features {
        Features::ALL
    }

    /// Room in the file system; its `attr` is `None`.
    fn fsstat(&self, id: &FileId) -> Result<FsStatOk>;

    /// Limits on names and links; its `attr` is `None`.
    fn pathconf(&self, id: &FileId) -> Result<PathConfOk>;

    /// Makes all writes of the file that have returned stable. `offset` and `count` (0: to
    /// the end) say which the caller cares about; more may be done.
    fn commit(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<Wcc>;
}
