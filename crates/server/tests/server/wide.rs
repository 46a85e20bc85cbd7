//! NFSv2's listings of a file system whose cookies do not fit 32 bits.

use std::sync::Arc;

use bytes::Bytes;
use remora_server::{Config, Export, Exports, Server, cache};
use remora_vfs::{Cred, DirEnd, DirEntry, DirQuery, FileId, Made, MemFs, Result, Vfs};
use remora_wire::nfs2::{Call, Entry, Fh, ReadDirArgs, Reply, Status};
use remora_wire::nfs3::{
    Attr, CreateHow, Entries, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Wcc,
};

use crate::v2;
use crate::world::{KEY, ROOT, World};

/// How far up cookies are moved.
const SHIFT: u32 = 40;

/// A file system in memory whose cookies are as large as ext4's.
struct Wide(MemFs);

impl Vfs for Wide {
    fn readdir(&self, c: &Cred, dir: &FileId, q: DirQuery, take: &mut dyn FnMut(DirEntry) -> bool) -> Result<DirEnd> {
        let query = DirQuery { cookie: q.cookie >> SHIFT, ..q };
        self.0.readdir(c, dir, query, &mut |e| take(DirEntry { cookie: e.cookie << SHIFT | 7, ..e }))
    }

    fn root(&self) -> FileId {
        self.0.root()
    }
    fn verifier(&self) -> [u8; 8] {
        self.0.verifier()
    }
    fn getattr(&self, id: &FileId) -> Result<Attr> {
        self.0.getattr(id)
    }
    fn setattr(&self, c: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        self.0.setattr(c, id, attr, guard)
    }
    fn lookup(&self, c: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        self.0.lookup(c, dir, name)
    }
    fn access(&self, c: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        self.0.access(c, id, wanted)
    }
    fn readlink(&self, c: &Cred, id: &FileId) -> Result<Bytes> {
        self.0.readlink(c, id)
    }
    fn read(&self, c: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        self.0.read(c, id, offset, count)
    }
    fn write(&self, c: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)> {
        self.0.write(c, id, offset, data, stable)
    }
    fn create(&self, c: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        self.0.create(c, dir, name, how)
    }
    fn mkdir(&self, c: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.0.mkdir(c, dir, name, attr)
    }
    fn symlink(&self, c: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made> {
        self.0.symlink(c, dir, name, attr, target)
    }
    fn mknod(&self, c: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        self.0.mknod(c, dir, name, what)
    }
    fn remove(&self, c: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.0.remove(c, dir, name)
    }
    fn rmdir(&self, c: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.0.rmdir(c, dir, name)
    }
    fn rename(&self, c: &Cred, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<RenameDirs> {
        self.0.rename(c, from, to)
    }
    fn link(&self, c: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.0.link(c, id, dir, name)
    }
    fn fsstat(&self, id: &FileId) -> Result<FsStatOk> {
        self.0.fsstat(id)
    }
    fn pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        self.0.pathconf(id)
    }
    fn commit(&self, c: &Cred, id: &FileId, offset: u64, count: u32) -> Result<Wcc> {
        self.0.commit(c, id, offset, count)
    }
}

/// A fresh server, as after a restart, of `fs`.
fn restart(w: &mut World, fs: &Arc<Wide>) {
    let exports = Arc::new(Exports::new(vec![Export::new("/", fs.clone())], &KEY).unwrap());
    let config = Config::new(exports);
    w.server = Server::new(config, 1, w.now);
}

fn page(w: &mut World, dir: Fh, cookie: u32) -> std::result::Result<Entries<Entry>, Status> {
    match v2::call(w, &Call::ReadDir(ReadDirArgs { dir, cookie, count: 400 })) {
        Reply::ReadDir(res) => res,
        other => panic!("{other:?}"),
    }
}

fn rest(w: &mut World, dir: Fh, mut cookie: u32, restarting: Option<&Arc<Wide>>) -> Vec<Bytes> {
    let mut seen = Vec::new();
    loop {
        let page = page(w, dir, cookie).unwrap();
        cookie = page.list.last().map_or(cookie, |e| e.cookie);
        seen.extend(page.list.into_iter().map(|e| e.name));
        if page.eof {
            return seen;
        }
        if let Some(fs) = restarting {
            restart(w, fs);
        }
    }
}

#[test]
fn cookies_lead_back_from_page_ends_from_between_and_after_a_restart() {
    let fs = Arc::new(Wide(MemFs::new(1)));
    for i in 0..100 {
        let attr = SetAttr { mode: Some(0o644), ..SetAttr::NONE };
        fs.create(&ROOT, &fs.root(), format!("name {i}").as_bytes(), &CreateHow::Guarded(attr)).unwrap();
    }
    let mut w = World::new(cache::Config::full());
    restart(&mut w, &fs);
    let root = v2::root(&mut w);
    let all = rest(&mut w, root, 0, None);
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 102);
    assert_eq!(rest(&mut w, root, 0, Some(&fs)), all, "a new server for every page");
    let first = page(&mut w, root, 0).unwrap();
    assert!(first.list.len() > 5 && !first.eof);
    for (i, entry) in first.list.iter().enumerate() {
        assert!(entry.cookie >> 31 == 1, "a hash");
        assert_eq!(rest(&mut w, root, entry.cookie, None), all[i + 1..], "from behind entry {i}");
    }
    assert_eq!(page(&mut w, root, 0xdead_beef), Err(Status::Io), "a cookie of nobody's");
}
