//! The contract of a file system that a server can export.

use std::sync::Arc;

use bytes::Bytes;
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Status, Wcc,
};

use crate::flush::Ledger;
use crate::types::{Acls, Cred, DirEnd, DirEntry, DirQuery, Features, FileId, Made, NameIn, OFFSET_MAX, Result};

/// A file system that can be exported.
///
/// * A [`FileId`] names an object while it exists, across renames and restarts. Operations on the id of a removed
///   object fail with [`Status::Stale`](remora_wire::nfs3::Status::Stale) and never reach another object.
/// * A change of a directory or of attributes is on stable storage when the call returns. [`write`](Vfs::write) returns
///   its stability; [`commit`](Vfs::commit) makes all earlier writes of the file stable.
/// * Names are single components. Empty names and names with `/` or NUL fail; `.` and `..` fail except in
///   [`lookup`](Vfs::lookup). Nothing leaves the exported tree, and symbolic links are never followed.
/// * `Wcc::before` is present only if no other operation of this `Vfs` came between.
pub trait Vfs: Send + Sync {
    /// The exported directory.
    fn root(&self) -> FileId;

    /// The write verifier. It changes when unstable writes may have been lost: at a restart, and when a flush fails.
    fn verifier(&self) -> [u8; 8];

    /// The maximum size of a file in bytes (range: up to [`OFFSET_MAX`]).
    fn file_max(&self) -> u64 {
        OFFSET_MAX
    }

    /// A view of this file system for one request. Its changes become stable when the flushes that it adds to `ledger`
    /// have run, in that order. A failed change may add flushes, too; they need not run. `None` if the file system does
    /// not defer flushes.
    fn deferring(&self, ledger: &Arc<Ledger>) -> Option<Box<dyn Vfs>> {
        let _ = ledger;
        None
    }

    /// Releases idle caches and the space of files that other programs removed. The server calls this every few
    /// seconds. May block.
    fn tidy(&self) {}

    /// The attributes of an object.
    fn getattr(&self, id: &FileId) -> Result<Attr>;

    /// Sets attributes. With `guard`, fails with [`Status::NotSync`](remora_wire::nfs3::Status::NotSync) unless it
    /// equals the object's ctime.
    fn setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc>;

    /// The POSIX ACLs of an object, as far as it has any.
    fn acls(&self, cred: &Cred, id: &FileId) -> Result<Acls> {
        let _ = (cred, id);
        Ok(Acls::default())
    }

    /// Sets the ACLs that are present and removes those without entries. Fails with
    /// [`Status::NotSupp`](remora_wire::nfs3::Status::NotSupp) if the file system has no ACLs.
    fn set_acls(&self, cred: &Cred, id: &FileId, acls: &Acls) -> Result<()> {
        let _ = (cred, id, acls);
        Err(Status::NotSupp)
    }

    /// The object `name` in `dir`. `.` is `dir` itself, `..` its parent; the parent of the root is the root.
    fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)>;

    /// The subset of the `ACCESS_*` bits in `wanted` that the caller is granted.
    fn access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32>;

    /// The target of a symbolic link.
    fn readlink(&self, cred: &Cred, id: &FileId) -> Result<Bytes>;

    /// At most `count` bytes from `offset`, and whether they reach the end of the file. Beyond the end: no bytes, true.
    fn read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)>;

    /// Writes all of `data` at `offset`. Returns its stability, at least `stable`. A partial write is an error.
    fn write(&self, cred: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)>;

    /// Creates a regular file. A repeated exclusive CREATE with the same verifier succeeds.
    fn create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made>;

    /// Creates a directory.
    fn mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made>;

    /// Creates a symbolic link.
    fn symlink(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made>;

    /// Creates a device, socket or pipe.
    fn mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made>;

    /// Removes a name of an object other than a directory.
    fn remove(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc>;

    /// Removes an empty directory.
    fn rmdir(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc>;

    /// Renames an object. Replaces a target of the same kind; a target directory must be empty.
    fn rename(&self, cred: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs>;

    /// Creates a hard link to a file.
    fn link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs>;

    /// Lists a directory, `.` and `..` included: passes entries to `take` until it returns false (which rejects that
    /// entry) or the directory ends. Entries that exist from the first page to the last are listed exactly once.
    fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd>;

    /// What the file system supports.
    fn features(&self) -> Features {
        Features::ALL
    }

    /// Total and free space; `attr` is `None`.
    fn fsstat(&self, id: &FileId) -> Result<FsStatOk>;

    /// Limits on names and links; `attr` is `None`.
    fn pathconf(&self, id: &FileId) -> Result<PathConfOk>;

    /// Makes stable all writes of the file that have returned. `offset` and `count` (0: to the end) name the range that
    /// the caller needs; an implementation may flush more.
    fn commit(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<Wcc>;
}
