//! The file system in memory: its [`Vfs`], faults, inspection and deferred flushes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Status, Wcc,
};

use crate::args::NAME_MAX;
use crate::flush::{Flush, FlushKey, Flushing, Ledger};
use crate::memory::fault::OpKind;
use crate::memory::node::{Body, Node};
use crate::memory::state::{ROOT, State};
use crate::perm;
use crate::types::{Cred, DirEnd, DirEntry, DirQuery, Features, FileId, Made, NameIn, Result};
use crate::vfs::Vfs;

/// A file system in memory: see the [module](crate::memory).
pub struct MemFs {
    root: FileId,
    state: Arc<Mutex<State>>,
    deferral: Option<MemDeferral>,
}

/// Makes the writes of a view add their flushes to a ledger.
struct MemDeferral {
    ledger: Arc<Ledger>,
    /// The verifier before the change.
    verifier: [u8; 8],
}

/// An object in a snapshot of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// The id of the object.
    pub id: FileId,
    /// Its attributes now.
    pub attr: Attr,
    /// A file's bytes or a link's target; empty for other objects.
    pub content: Bytes,
}

impl MemFs {
    /// An empty file system. Ids and verifiers depend on the seed.
    pub fn new(seed: u64) -> MemFs {
        let state = State::new(seed);
        let root = state.id(ROOT).expect("the root is there and its id is 16 bytes");
        MemFs { root, state: Arc::new(Mutex::new(state)), deferral: None }
    }

    /// Sets the clock for later changes. It never goes backwards.
    pub fn set_time(&self, now: Time) {
        self.lock().set_time(now);
    }

    /// Rounds the times of later changes down to multiples of `grain` (default: 1 ns, which no two changes share).
    pub fn set_time_grain(&self, grain: Duration) {
        self.lock().grain_ns = u64::try_from(grain.as_nanos()).unwrap_or(u64::MAX).max(1);
    }

    /// Limits the space to `bytes` in blocks of 4096 (default: unlimited). Writes beyond fail with [`Status::NoSpc`].
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// Limits the size of a file to `bytes` (range: up to 2^63 - 1; default: 1 GiB). Writes beyond fail with
    /// [`Status::FBig`].
    pub fn set_file_max(&self, bytes: u64) {
        self.lock().file_max = bytes.min(i64::MAX as u64);
    }

    /// Crashes and restarts the machine: volatile writes are lost, the verifier changes.
    pub fn crash(&self) {
        let mut state = self.lock();
        state.revert_all();
        state.rotate_verifier();
    }

    /// Writes all volatile data back, as sync(2) does; faults of single write-backs apply.
    pub fn sync(&self) {
        self.lock().flush_all();
    }

    /// Restarts the server process only: nothing is lost, but the verifier changes.
    pub fn restart(&self) {
        self.lock().rotate_verifier();
    }

    /// Makes the next `count` operations of this kind fail with `status` without effect.
    pub fn fail_next(&self, kind: OpKind, status: Status, count: u32) {
        self.lock().faults.fail_next(kind, status, count);
    }

    /// Calls `hook` before each operation, which fails with the status that it returns. The hook must not call this
    /// file system.
    pub fn set_fault(&self, hook: impl FnMut(OpKind) -> Option<Status> + Send + 'static) {
        self.lock().faults.set_hook(Some(Box::new(hook)));
    }

    /// Removes the hook of [`MemFs::set_fault`].
    pub fn clear_fault(&self) {
        self.lock().faults.set_hook(None);
    }

    // --- Inspection: without permissions and faults ---

    /// The bytes of a file, volatile ones included, or the target of a link.
    pub fn read_all(&self, id: &FileId) -> Result<Bytes> {
        let state = self.lock();
        Ok(visible(state.node(state.number(id)?)?))
    }

    /// The bytes of a file that survive a crash.
    pub fn read_durable(&self, id: &FileId) -> Result<Bytes> {
        let state = self.lock();
        let node = state.node(state.number(id)?)?;
        Ok(match &node.body {
            Body::File(content) => content.read_durable().into(),
            _ => visible(node),
        })
    }

    /// The number of files that a crash would change.
    pub fn volatile_files(&self) -> usize {
        let is_volatile = |node: &Node| matches!(&node.body, Body::File(content) if content.is_volatile());
        self.lock().nodes().filter(|(_, node)| is_volatile(node)).count()
    }

    /// All objects by their path from the root (`a/b/c`; the root's is empty). A file with several names appears under
    /// each.
    pub fn tree(&self) -> BTreeMap<Vec<u8>, TreeNode> {
        let state = self.lock();
        let mut tree = BTreeMap::new();
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((path, number)) = todo.pop() {
            let (Ok(id), Ok(attr), Ok(node)) = (state.id(number), state.attr(number), state.node(number)) else {
                continue;
            };
            if let Ok(dir) = node.dir() {
                todo.extend(dir.names().map(|(name, child)| (join(&path, name), child)));
            }
            tree.insert(path, TreeNode { id, attr, content: visible(node) });
        }
        tree
    }

    // --- Deferred flushes ---

    /// From now on [`Vfs::deferring`] returns views. Their stable writes and commits are volatile until the flush that
    /// they add to the ledger.
    pub fn defer(&self) {
        self.lock().defers = true;
    }

    /// The stability with which a write is executed at once.
    fn immediate(&self, stable: Stable) -> Stable {
        if self.deferral.is_some() { Stable::Unstable } else { stable }
    }

    /// Adds a flush of the file to the ledger.
    fn add_flush(&self, deferral: &MemDeferral, id: &FileId) -> Result<()> {
        let number = self.lock().number(id)?;
        let flush = MemFlush { state: self.state.clone(), id: *id, number, verifier: deferral.verifier };
        deferral.ledger.note(Flush::new(flush));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for an operation. Fails if a fault is due.
    fn enter(&self, kind: OpKind) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.faults.check(kind)?;
        Ok(state)
    }
}

impl Vfs for MemFs {
    fn features(&self) -> Features {
        let ns = self.lock().grain_ns;
        let grain = NfsTime { secs: (ns / 1_000_000_000) as u32, nanos: (ns % 1_000_000_000) as u32 };
        Features { time_delta: grain, ..Features::ALL }
    }

    fn root(&self) -> FileId {
        self.root
    }

    fn verifier(&self) -> [u8; 8] {
        self.lock().verifier
    }

    fn deferring(&self, ledger: &Arc<Ledger>) -> Option<Box<dyn Vfs>> {
        let verifier = Some(self.lock()).filter(|state| state.defers)?.verifier;
        let deferral = Some(MemDeferral { ledger: ledger.clone(), verifier });
        Some(Box::new(MemFs { root: self.root, state: self.state.clone(), deferral }))
    }

    fn getattr(&self, id: &FileId) -> Result<Attr> {
        let state = self.enter(OpKind::GetAttr)?;
        state.attr(state.number(id)?)
    }

    fn setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        self.enter(OpKind::SetAttr)?.setattr(cred, id, attr, guard)
    }

    fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        self.enter(OpKind::Lookup)?.lookup(cred, dir, name)
    }

    fn access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        let state = self.enter(OpKind::Access)?;
        let attr = state.attr(state.number(id)?)?;
        Ok(perm::access(perm::granted(cred, &attr), attr.kind) & wanted)
    }

    fn readlink(&self, _cred: &Cred, id: &FileId) -> Result<Bytes> {
        self.enter(OpKind::ReadLink)?.readlink(id)
    }

    fn read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        self.enter(OpKind::Read)?.read(cred, id, offset, count)
    }

    fn write(&self, cred: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)> {
        let (wcc, done) = self.enter(OpKind::Write)?.write(cred, id, offset, data, self.immediate(stable))?;
        match &self.deferral {
            Some(deferral) if stable != Stable::Unstable && done == Stable::Unstable => {
                self.add_flush(deferral, id)?;
                Ok((wcc, Stable::FileSync))
            }
            _ => Ok((wcc, done)),
        }
    }

    fn create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        self.enter(OpKind::Create)?.create(cred, dir, name, how)
    }

    fn mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.enter(OpKind::MkDir)?.mkdir(cred, dir, name, attr)
    }

    fn symlink(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made> {
        self.enter(OpKind::SymLink)?.symlink(cred, dir, name, attr, target)
    }

    fn mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        self.enter(OpKind::MkNod)?.mknod(cred, dir, name, what)
    }

    fn remove(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.enter(OpKind::Remove)?.remove(cred, dir, name)
    }

    fn rmdir(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.enter(OpKind::RmDir)?.rmdir(cred, dir, name)
    }

    fn rename(&self, cred: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs> {
        self.enter(OpKind::Rename)?.rename(cred, from, to)
    }

    fn link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.enter(OpKind::Link)?.link(cred, id, dir, name)
    }

    fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd> {
        self.enter(OpKind::ReadDir)?.readdir(cred, dir, query, take)
    }

    fn fsstat(&self, id: &FileId) -> Result<FsStatOk> {
        let state = self.enter(OpKind::FsStat)?;
        state.number(id)?;
        Ok(state.fsstat())
    }

    fn pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        let state = self.enter(OpKind::PathConf)?;
        state.number(id)?;
        Ok(PathConfOk {
            attr: None,
            link_max: u32::MAX,
            name_max: NAME_MAX as u32,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })
    }

    fn commit(&self, cred: &Cred, id: &FileId, _offset: u64, _count: u32) -> Result<Wcc> {
        let mut state = self.enter(OpKind::Commit)?;
        let Some(deferral) = &self.deferral else { return state.commit(cred, id) };
        let wcc = state.check_commit(cred, id)?;
        drop(state);
        self.add_flush(deferral, id)?;
        Ok(wcc)
    }
}

/// A flush of all data of a file.
struct MemFlush {
    state: Arc<Mutex<State>>,
    id: FileId,
    number: u64,
    /// The verifier before the change.
    verifier: [u8; 8],
}

impl Flushing for MemFlush {
    fn key(&self) -> FlushKey {
        FlushKey { disk: Arc::as_ptr(&self.state) as usize as u64, object: self.number.into(), depth: 0 }
    }

    fn is_expensive(&self) -> bool {
        false
    }

    fn run(&self, _others: &[&Flush]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.number(&self.id) {
            Ok(number) => state.flush(number),
            // Removed meanwhile.
            Err(_) => Ok(()),
        }
    }

    fn verdict(&self) -> Result<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.verifier == self.verifier { Ok(()) } else { Err(Status::Io) }
    }
}

fn visible(node: &Node) -> Bytes {
    match &node.body {
        Body::File(content) => content.read(0, u64::MAX).into(),
        Body::Link(target) => target.clone(),
        _ => Bytes::new(),
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    debug_assert!(name.len() <= NAME_MAX);
    if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') }
}
