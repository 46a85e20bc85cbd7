//! A file system in memory that takes different names for one, or gives files another id with each name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use remora_host::server::{ServerOptions, Serving};
use remora_server::{Access, Config, Export, Exports, Squash, Terms};
use remora_vfs::{Cred, DirEnd, DirEntry, DirQuery, FileId, Made, MemFs, NameIn, Result, Vfs};
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Status, Wcc,
};

/// What different names have in common that are one.
pub(crate) type Fold = fn(&[u8]) -> Vec<u8>;

/// The root may do all.
const ROOT: Cred = Cred { uid: 0, gid: 0, gids: Vec::new() };

pub(crate) struct OddFs {
    pub(crate) inner: MemFs,
    /// Names that are the same in this way are one.
    pub(crate) fold: Fold,
    /// How often a file was renamed is part of its id.
    pub(crate) ids_follow_names: bool,
    /// How long each operation takes; SETATTR and WRITE take five times as long.
    pub(crate) delay: Duration,
    pub(crate) renames: Mutex<HashMap<FileId, u8>>,
    /// A rename is done, and the client is to try again.
    pub(crate) forgets_renames: bool,
    /// How often an id was used that a file had under a former name.
    pub(crate) stale: AtomicU32,
}

/// Serves it as `/`; the URL of that.
pub(crate) fn serve(fs: Arc<OddFs>, query: &str) -> (Serving, String) {
    let access = Access::everybody(Terms { squash: Squash::None, ..Terms::default() });
    let exports = Exports::new(vec![Export { access, ..Export::new("/", fs) }], &[7; 16]).unwrap();
    let core = Config::new(Arc::new(exports));
    let options = ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ServerOptions::new(core) };
    let serving = Serving::start(options).unwrap();
    let url = format!("nfs://{}/{query}", serving.local_addrs()[0]);
    (serving, url)
}

impl OddFs {
    pub(crate) fn new() -> OddFs {
        let (renames, stale) = (Mutex::new(HashMap::new()), AtomicU32::new(0));
        let fold = |name: &[u8]| name.to_vec();
        let (inner, ids_follow_names, forgets_renames) = (MemFs::new(1), false, false);
        OddFs { inner, fold, ids_follow_names, delay: Duration::ZERO, renames, forgets_renames, stale }
    }

    /// Paths and contents of all files, in order; of directories, with a slash behind.
    pub(crate) fn tree(&self) -> Vec<(String, Vec<u8>)> {
        let mut tree = Vec::new();
        self.walk(&self.inner.root(), "", &mut tree);
        tree.sort();
        tree
    }

    fn walk(&self, dir: &FileId, path: &str, tree: &mut Vec<(String, Vec<u8>)>) {
        for name in self.names(dir) {
            let (id, attr) = self.inner.lookup(&ROOT, dir, &name).unwrap();
            let path = format!("{path}{}", String::from_utf8_lossy(&name));
            if attr.kind == remora_wire::nfs3::FileType::Directory {
                tree.push((format!("{path}/"), Vec::new()));
                self.walk(&id, &format!("{path}/"), tree);
            } else {
                let content = self.inner.read(&ROOT, &id, 0, 1 << 20).map(|(data, _)| data.to_vec());
                tree.push((path, content.unwrap_or_default()));
            }
        }
    }

    /// Attributes of the file with this name in the root.
    pub(crate) fn attr(&self, name: &str) -> Attr {
        self.inner.lookup(&ROOT, &self.inner.root(), name.as_bytes()).unwrap().1
    }

    fn names(&self, dir: &FileId) -> Vec<Bytes> {
        let (mut names, query) = (Vec::new(), DirQuery { cookie: 0, verf: [0; 8], objects: false });
        let mut take = |entry: DirEntry| {
            names.extend(Some(entry.name).filter(|name| !matches!(&name[..], b"." | b"..")));
            true
        };
        self.inner.readdir(&ROOT, dir, query, &mut take).unwrap();
        names
    }

    /// The name by which the directory knows what has this one.
    fn name(&self, dir: &FileId, name: &[u8]) -> Vec<u8> {
        let is_it = |known: &Bytes| (self.fold)(known) == (self.fold)(name);
        self.names(dir).into_iter().find(is_it).map_or(name.to_vec(), |known| known.to_vec())
    }

    /// The inner id of an outer one.
    fn inner(&self, id: &FileId) -> Result<FileId> {
        thread::sleep(self.delay);
        if !self.ids_follow_names || *id == self.inner.root() {
            return Ok(*id);
        }
        let (count, bytes) = id.as_bytes().split_last().ok_or(Status::BadHandle)?;
        let inner = FileId::new(bytes).ok_or(Status::BadHandle)?;
        let now = self.renames.lock().unwrap().get(&inner).copied().unwrap_or(0);
        if now == *count {
            return Ok(inner);
        }
        self.stale.fetch_add(1, Relaxed);
        Err(Status::Stale)
    }

    fn outer(&self, inner: FileId) -> FileId {
        if !self.ids_follow_names || inner == self.inner.root() {
            return inner;
        }
        let count = self.renames.lock().unwrap().get(&inner).copied().unwrap_or(0);
        FileId::new(&[inner.as_bytes(), &[count]].concat()).unwrap()
    }

    fn made(&self, made: Made) -> Made {
        Made { id: self.outer(made.id), ..made }
    }
}

impl Vfs for OddFs {
    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn verifier(&self) -> [u8; 8] {
        self.inner.verifier()
    }

    fn getattr(&self, id: &FileId) -> Result<Attr> {
        self.inner.getattr(&self.inner(id)?)
    }

    fn setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        thread::sleep(self.delay * 4);
        self.inner.setattr(cred, &self.inner(id)?, attr, guard)
    }

    fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        let dir = self.inner(dir)?;
        let (id, attr) = self.inner.lookup(cred, &dir, &self.name(&dir, name))?;
        Ok((self.outer(id), attr))
    }

    fn access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        self.inner.access(cred, &self.inner(id)?, wanted)
    }

    fn readlink(&self, cred: &Cred, id: &FileId) -> Result<Bytes> {
        self.inner.readlink(cred, &self.inner(id)?)
    }

    fn read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        self.inner.read(cred, &self.inner(id)?, offset, count)
    }

    fn write(&self, cred: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)> {
        thread::sleep(self.delay * 4);
        self.inner.write(cred, &self.inner(id)?, offset, data, stable)
    }

    fn create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        let dir = self.inner(dir)?;
        self.inner.create(cred, &dir, &self.name(&dir, name), how).map(|made| self.made(made))
    }

    fn mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        let dir = self.inner(dir)?;
        self.inner.mkdir(cred, &dir, &self.name(&dir, name), attr).map(|made| self.made(made))
    }

    fn symlink(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made> {
        let dir = self.inner(dir)?;
        self.inner.symlink(cred, &dir, &self.name(&dir, name), attr, target).map(|made| self.made(made))
    }

    fn mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        self.inner.mknod(cred, &self.inner(dir)?, name, what).map(|made| self.made(made))
    }

    fn remove(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        let dir = self.inner(dir)?;
        self.inner.remove(cred, &dir, &self.name(&dir, name))
    }

    fn rmdir(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        let dir = self.inner(dir)?;
        self.inner.rmdir(cred, &dir, &self.name(&dir, name))
    }

    fn rename(&self, cred: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs> {
        let dirs = (self.inner(from.dir)?, self.inner(to.dir)?);
        let names = (self.name(&dirs.0, from.name), self.name(&dirs.1, to.name));
        let (id, _) = self.inner.lookup(cred, &dirs.0, &names.0)?;
        let renamed = self.inner.rename(cred, NameIn::new(&dirs.0, &names.0), NameIn::new(&dirs.1, &names.1))?;
        *self.renames.lock().unwrap().entry(id).or_default() += 1;
        if self.forgets_renames { Err(Status::Jukebox) } else { Ok(renamed) }
    }

    fn link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.inner.link(cred, &self.inner(id)?, &self.inner(dir)?, name)
    }

    fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd> {
        let mut outer = |entry: DirEntry| {
            let object = entry.object.map(|(id, attr)| (self.outer(id), attr));
            take(DirEntry { object, ..entry })
        };
        self.inner.readdir(cred, &self.inner(dir)?, query, &mut outer)
    }

    fn fsstat(&self, id: &FileId) -> Result<FsStatOk> {
        self.inner.fsstat(&self.inner(id)?)
    }

    /// It says nothing of what it does with names.
    fn pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        self.inner.pathconf(&self.inner(id)?)
    }

    fn commit(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<Wcc> {
        self.inner.commit(cred, &self.inner(id)?, offset, count)
    }
}
