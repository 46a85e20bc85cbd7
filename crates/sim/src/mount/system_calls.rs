//! System calls as requests of the kernel, without the kernel's own caches.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::fuse::{Attr, Errno, Operation, Reply, SetAttr, TimeChange, Timestamp};

pub(super) const ROOT: u64 = 1;
const READ_MAX: u32 = 4096;
pub(super) const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
/// Type of a file in its mode, and that of a directory.
const S_IFMT: u32 = 0o170000;
const S_IFDIR: u32 = 0o040000;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;

const NO_CHANGE: SetAttr = SetAttr {
    fh: None,
    size: None,
    mode: None,
    uid: None,
    gid: None,
    atime: TimeChange::Keep,
    mtime: TimeChange::Keep,
    kill_suidgid: false,
};

/// What answers requests of the kernel.
pub(super) trait Kernel {
    /// Makes a request of the kernel of machine `mount` and waits for its answer. With `kill_after`, the caller is
    /// killed after this time.
    async fn call(
        &self,
        mount: usize,
        nodeid: u64,
        op: Operation,
        kill_after: Option<Duration>,
    ) -> Result<Reply, Errno>;
}

/// Programs of one machine.
#[derive(Clone)]
pub(super) struct Machine<K> {
    pub(super) world: K,
    pub(super) mount: usize,
    /// When the caller of the next requests is killed.
    pub(super) kill_after: Option<Duration>,
    /// Files that are open.
    pub(super) open: Rc<RefCell<Vec<OpenFile>>>,
}

/// An open file: the object and the handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFile {
    pub(super) nodeid: u64,
    pub(super) fh: u64,
}

fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl<K: Kernel + Clone> Machine<K> {
    pub(super) async fn call(&self, nodeid: u64, op: Operation) -> Result<Reply, Errno> {
        self.world.call(self.mount, nodeid, op, self.kill_after).await
    }

    pub(super) async fn lookup(&self, dir: u64, child: &str) -> Result<u64, Errno> {
        match self.call(dir, Operation::Lookup { name: name(child) }).await? {
            Reply::Entry(entry) if entry.nodeid == 0 => Err(Errno::ENOENT),
            Reply::Entry(entry) => Ok(entry.nodeid),
            other => panic!("LOOKUP is answered with {other:?}"),
        }
    }

    /// The file `child`, for open(2) to write.
    async fn lookup_file(&self, dir: u64, child: &str) -> Result<u64, Errno> {
        match self.call(dir, Operation::Lookup { name: name(child) }).await? {
            Reply::Entry(entry) if entry.nodeid == 0 => Err(Errno::ENOENT),
            Reply::Entry(entry) if entry.attr.mode & S_IFMT == S_IFDIR => Err(Errno::EISDIR),
            Reply::Entry(entry) => Ok(entry.nodeid),
            other => panic!("LOOKUP is answered with {other:?}"),
        }
    }

    fn opened(&self, nodeid: u64, fh: u64) -> OpenFile {
        let file = OpenFile { nodeid, fh };
        self.open.borrow_mut().push(file);
        file
    }

    /// The end of a process: its files are closed.
    pub(super) async fn exit(&self) {
        let open = std::mem::take(&mut *self.open.borrow_mut());
        for OpenFile { nodeid, fh } in open {
            let _ = self.call(nodeid, Operation::Release { fh, flags: 0 }).await;
        }
    }

    /// The directory of this name in the root, new if there is none.
    pub(super) async fn directory(&self, dir: &str) -> Result<u64, Errno> {
        match self.lookup(ROOT, dir).await {
            Err(Errno::ENOENT) => {}
            found => return found,
        }
        match self.call(ROOT, Operation::MkDir { name: name(dir), mode: 0o755, umask: 0 }).await {
            Ok(Reply::Entry(entry)) => Ok(entry.nodeid),
            Err(Errno::EEXIST) => self.lookup(ROOT, dir).await,
            other => panic!("MKDIR is answered with {other:?}"),
        }
    }

    /// open(2): as the kernel does, it looks a name up again after ESTALE.
    pub(super) async fn open_flags(&self, dir: u64, child: &str, flags: u32) -> Result<OpenFile, Errno> {
        for _ in 0..8 {
            let nodeid = self.lookup_file(dir, child).await?;
            match self.call(nodeid, Operation::Open { flags }).await {
                Ok(Reply::Opened(opened)) => return Ok(self.opened(nodeid, opened.fh)),
                Err(Errno::ESTALE) => {}
                Err(errno) => return Err(errno),
                other => panic!("OPEN is answered with {other:?}"),
            }
        }
        Err(Errno::ESTALE)
    }

    pub(super) async fn open(&self, dir: u64, child: &str) -> Result<OpenFile, Errno> {
        self.open_flags(dir, child, O_RDWR).await
    }

    /// open(2) with O_CREAT and O_TRUNC, or O_EXCL. After ESTALE the kernel begins again, once.
    pub(super) async fn create(&self, dir: u64, child: &str, is_exclusive: bool) -> Result<OpenFile, Errno> {
        match self.try_create(dir, child, is_exclusive).await {
            Err(Errno::ESTALE) => self.try_create(dir, child, is_exclusive).await,
            result => result,
        }
    }

    async fn try_create(&self, dir: u64, child: &str, is_exclusive: bool) -> Result<OpenFile, Errno> {
        match self.open_flags(dir, child, O_RDWR | O_TRUNC).await {
            Ok(file) if is_exclusive => {
                self.close(file).await?;
                return Err(Errno::EEXIST);
            }
            Err(Errno::ENOENT) => {}
            result => return result,
        }
        let flags = O_RDWR | if is_exclusive { O_EXCL } else { 0 };
        match self.call(dir, Operation::Create { name: name(child), mode: 0o644, umask: 0, flags }).await? {
            Reply::Created(entry, opened) => Ok(self.opened(entry.nodeid, opened.fh)),
            other => panic!("CREATE is answered with {other:?}"),
        }
    }

    pub(super) async fn write(&self, file: OpenFile, offset: u64, data: Bytes) -> Result<(), Errno> {
        let len = data.len() as u32;
        let op = Operation::Write { fh: file.fh, offset, data, write_flags: 0, flags: O_RDWR };
        match self.call(file.nodeid, op).await? {
            Reply::Written { size } if size == len => Ok(()),
            other => panic!("WRITE is answered with {other:?}"),
        }
    }

    /// The whole file, in pieces.
    pub(super) async fn read_open(&self, file: OpenFile) -> Result<Vec<u8>, Errno> {
        let mut data = Vec::new();
        loop {
            let op = Operation::Read { fh: file.fh, offset: data.len() as u64, size: READ_MAX, flags: O_RDONLY };
            match self.call(file.nodeid, op).await? {
                Reply::Data(part) if part.is_empty() => return Ok(data),
                Reply::Data(part) => data.extend_from_slice(&part),
                other => panic!("READ is answered with {other:?}"),
            }
        }
    }

    pub(super) async fn fsync(&self, file: OpenFile) -> Result<(), Errno> {
        self.call(file.nodeid, Operation::Fsync { fh: file.fh, data_only: false }).await.map(drop)
    }

    /// close(2): FLUSH, then RELEASE, even if FLUSH fails.
    pub(super) async fn close(&self, file: OpenFile) -> Result<(), Errno> {
        let flushed = self.call(file.nodeid, Operation::Flush { fh: file.fh, lock_owner: 0 }).await;
        let alive = Machine { kill_after: None, ..self.clone() };
        self.open.borrow_mut().retain(|open| open.fh != file.fh);
        alive.call(file.nodeid, Operation::Release { fh: file.fh, flags: 0 }).await?;
        flushed.map(drop)
    }

    pub(super) async fn read(&self, dir: u64, child: &str) -> Result<Vec<u8>, Errno> {
        let file = self.open_flags(dir, child, O_RDONLY).await?;
        let data = self.read_open(file).await;
        self.close(file).await?;
        data
    }

    /// Looks a name up and makes a request of its object; as the kernel does, once more after ESTALE.
    async fn call_by_name(
        &self,
        dir: u64,
        child: &str,
        request: impl Fn(u64) -> (u64, Operation),
    ) -> Result<Reply, Errno> {
        let mut result = Err(Errno::ESTALE);
        for _ in 0..2 {
            let found = self.lookup(dir, child).await?;
            let (nodeid, op) = request(found);
            result = self.call(nodeid, op).await;
            if result != Err(Errno::ESTALE) {
                break;
            }
        }
        result
    }

    pub(super) async fn size(&self, dir: u64, child: &str) -> Result<u64, Errno> {
        match self.call_by_name(dir, child, |nodeid| (nodeid, Operation::GetAttr { fh: None })).await? {
            Reply::Attr { attr, .. } => Ok(attr.size),
            other => panic!("GETATTR is answered with {other:?}"),
        }
    }

    pub(super) async fn truncate(&self, dir: u64, child: &str, size: u64) -> Result<(), Errno> {
        let set = SetAttr { size: Some(size), ..NO_CHANGE };
        self.call_by_name(dir, child, |nodeid| (nodeid, Operation::SetAttr(set.clone()))).await.map(drop)
    }

    pub(super) async fn rename(&self, dir: u64, from: &str, to: &str) -> Result<(), Errno> {
        self.rename_to(dir, from, dir, to).await
    }

    pub(super) async fn rename_to(&self, dir: u64, from: &str, new_dir: u64, to: &str) -> Result<(), Errno> {
        let op = Operation::Rename { name: name(from), new_dir, new_name: name(to), flags: 0 };
        self.call(dir, op).await.map(drop)
    }

    /// Makes the object with this nodeid known under one more name.
    pub(super) async fn link_node(&self, nodeid: u64, dir: u64, to: &str) -> Result<(), Errno> {
        self.call(dir, Operation::Link { nodeid, name: name(to) }).await.map(drop)
    }

    pub(super) async fn mkdir(&self, dir: u64, child: &str) -> Result<(), Errno> {
        self.call(dir, Operation::MkDir { name: name(child), mode: 0o755, umask: 0 }).await.map(drop)
    }

    pub(super) async fn rmdir(&self, dir: u64, child: &str) -> Result<(), Errno> {
        self.call(dir, Operation::RmDir { name: name(child) }).await.map(drop)
    }

    pub(super) async fn symlink(&self, dir: u64, child: &str, target: &str) -> Result<(), Errno> {
        self.call(dir, Operation::SymLink { name: name(child), target: name(target) }).await.map(drop)
    }

    pub(super) async fn readlink(&self, nodeid: u64) -> Result<Bytes, Errno> {
        match self.call(nodeid, Operation::ReadLink).await? {
            Reply::Target(target) => Ok(target),
            other => panic!("READLINK is answered with {other:?}"),
        }
    }

    pub(super) async fn attr(&self, nodeid: u64) -> Result<Attr, Errno> {
        match self.call(nodeid, Operation::GetAttr { fh: None }).await? {
            Reply::Attr { attr, .. } => Ok(attr),
            other => panic!("GETATTR is answered with {other:?}"),
        }
    }

    pub(super) async fn chmod(&self, nodeid: u64, mode: u32) -> Result<(), Errno> {
        self.call(nodeid, Operation::SetAttr(SetAttr { mode: Some(mode), ..NO_CHANGE })).await.map(drop)
    }

    /// Sets the mtime, in seconds since 1970.
    pub(super) async fn utimes(&self, nodeid: u64, secs: i64) -> Result<(), Errno> {
        let mtime = TimeChange::To(Timestamp { secs, nanos: 0 });
        self.call(nodeid, Operation::SetAttr(SetAttr { mtime, ..NO_CHANGE })).await.map(drop)
    }

    pub(super) async fn link(&self, dir: u64, from: &str, to: &str) -> Result<(), Errno> {
        self.call_by_name(dir, from, |nodeid| (dir, Operation::Link { nodeid, name: name(to) })).await.map(drop)
    }

    pub(super) async fn unlink(&self, dir: u64, child: &str) -> Result<(), Errno> {
        self.call(dir, Operation::Unlink { name: name(child) }).await.map(drop)
    }

    /// The names in a directory, in order, without `.`, `..` and removed files that are still open.
    pub(super) async fn list(&self, dir: u64) -> Result<Vec<String>, Errno> {
        let opened = match self.call(dir, Operation::OpenDir { flags: 0 }).await? {
            Reply::Opened(opened) => opened,
            other => panic!("OPENDIR is answered with {other:?}"),
        };
        let mut names = Vec::new();
        let mut offset = 0;
        loop {
            let op = Operation::ReadDir { fh: opened.fh, offset, size: 256 };
            let Reply::Directory(page) = self.call(dir, op).await? else { panic!("READDIR has another answer") };
            if page.is_empty() {
                break;
            }
            for entry in entries(&page) {
                offset = entry.cookie;
                names.push(entry.name);
            }
        }
        self.call(dir, Operation::ReleaseDir { fh: opened.fh }).await?;
        names.retain(|name| name != "." && name != ".." && !name.starts_with(".nfs"));
        names.sort();
        Ok(names)
    }
}

pub(super) struct DirectoryEntry {
    pub(super) cookie: u64,
    pub(super) name: String,
}

/// Decodes `fuse_dirent` structures.
pub(super) fn entries(page: &[u8]) -> Vec<DirectoryEntry> {
    let mut found = Vec::new();
    let mut rest = page;
    while rest.len() >= 24 {
        let cookie = u64::from_ne_bytes(rest[8..16].try_into().expect("8 bytes"));
        let len = u32::from_ne_bytes(rest[16..20].try_into().expect("4 bytes")) as usize;
        let name = String::from_utf8_lossy(&rest[24..24 + len]).into_owned();
        found.push(DirectoryEntry { cookie, name });
        rest = &rest[(24 + len).next_multiple_of(8)..];
    }
    found
}
