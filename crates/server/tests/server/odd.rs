//! A file system in memory that is unlike it in some ways.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use remora_vfs::{Cred, DirEnd, DirEntry, DirQuery, FileId, Made, MemFs, NameIn, Result, Vfs};
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Status, Wcc,
};

/// What is called so, and something behind, is listed with some 300 bytes, as there are on disks whose names have 255
/// UTF-16 units.
pub(crate) const LONG: &str = "long";

pub(crate) struct Odd {
    fs: MemFs,
    /// How far up cookies are moved.
    cookie_shift: u32,
    /// How many LOOKUPs from now on are to come again later.
    pub(crate) busy_lookups: AtomicU32,
    /// How many entries were listed.
    pub(crate) listed: AtomicU32,
}

impl Odd {
    pub(crate) fn new(cookie_shift: u32) -> Odd {
        Odd { fs: MemFs::new(1), cookie_shift, busy_lookups: AtomicU32::new(0), listed: AtomicU32::new(0) }
    }
}

impl Vfs for Odd {
    fn readdir(&self, c: &Cred, dir: &FileId, q: DirQuery, take: &mut dyn FnMut(DirEntry) -> bool) -> Result<DirEnd> {
        let query = DirQuery { cookie: q.cookie >> self.cookie_shift, ..q };
        self.fs.readdir(c, dir, query, &mut |e| {
            let long = e.name.starts_with(LONG.as_bytes());
            self.listed.fetch_add(1, Relaxed);
            let name = if long { e.name.repeat(300 / e.name.len()).into() } else { e.name };
            take(DirEntry { name, cookie: e.cookie << self.cookie_shift | 7, ..e })
        })
    }

    fn root(&self) -> FileId {
        self.fs.root()
    }
    fn verifier(&self) -> [u8; 8] {
        self.fs.verifier()
    }
    fn getattr(&self, id: &FileId) -> Result<Attr> {
        self.fs.getattr(id)
    }
    fn setattr(&self, c: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        self.fs.setattr(c, id, attr, guard)
    }
    fn lookup(&self, c: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        let is_busy = self.busy_lookups.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if is_busy { Err(Status::Jukebox) } else { self.fs.lookup(c, dir, name) }
    }
    fn access(&self, c: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        self.fs.access(c, id, wanted)
    }
    fn readlink(&self, c: &Cred, id: &FileId) -> Result<Bytes> {
        self.fs.readlink(c, id)
    }
    fn read(&self, c: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        self.fs.read(c, id, offset, count)
    }
    fn write(&self, c: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)> {
        self.fs.write(c, id, offset, data, stable)
    }
    fn create(&self, c: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        self.fs.create(c, dir, name, how)
    }
    fn mkdir(&self, c: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.fs.mkdir(c, dir, name, attr)
    }
    fn symlink(&self, c: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made> {
        self.fs.symlink(c, dir, name, attr, target)
    }
    fn mknod(&self, c: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        self.fs.mknod(c, dir, name, what)
    }
    fn remove(&self, c: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.fs.remove(c, dir, name)
    }
    fn rmdir(&self, c: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.fs.rmdir(c, dir, name)
    }
    fn rename(&self, c: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs> {
        self.fs.rename(c, from, to)
    }
    fn link(&self, c: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.fs.link(c, id, dir, name)
    }
    fn fsstat(&self, id: &FileId) -> Result<FsStatOk> {
        self.fs.fsstat(id)
    }
    fn pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        self.fs.pathconf(id)
    }
    fn commit(&self, c: &Cred, id: &FileId, offset: u64, count: u32) -> Result<Wcc> {
        self.fs.commit(c, id, offset, count)
    }
}
