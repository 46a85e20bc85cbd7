//! A file system in memory, for the simulator and for tests.
//!
//! Pure and deterministic: numbers, cookies and verifiers follow from the seed and the calls,
//! time stamps from [`MemFs::set_time`] (a change later than the one before, by a nanosecond
//! if the clock stood still; reading leaves atime alone).
//!
//! It models a disk with a volatile cache (RFC 1813, sections 3.3.7 and 3.3.21), as harshly
//! as the protocol allows:
//! * UNSTABLE writes are visible at once and durable after COMMIT only.
//! * A DATA_SYNC or FILE_SYNC write makes its own bytes durable, and no earlier ones.
//! * After [`MemFs::defer`], and through a deferring view only, such a write is volatile, too,
//!   until the flush it owes.
//! * Everything else is durable when it returns. A truncation makes the size durable, not the
//!   volatile bytes below it.
//! * [`MemFs::crash`] brings back what is durable and changes the verifier. A failing flush
//!   ([`OpKind::Flush`]) does the same to its file.
//!
//! Permissions are those of the mode bits, with root let through and owners let through for
//! data, as servers do. The root directory is root's, mode 0777.

mod content;
mod deferred;
mod fault;
mod files;
mod inspect;
mod namespace;
mod node;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Status, Wcc,
};

use crate::{Cred, DirEnd, DirEntry, DirQuery, FileId, Ledger, Made, Result, Vfs, names, perm};
use deferred::Later;
pub use fault::OpKind;
pub use inspect::TreeNode;
use state::{ROOT, State};

/// See the [module](self).
pub struct MemFs {
    root: FileId,
    state: Arc<Mutex<State>>,
    later: Option<Later>,
}

impl MemFs {
    /// An empty file system. Different seeds give different ids and verifiers.
    pub fn new(seed: u64) -> MemFs {
        let state = State::new(seed);
        let root = state.id(ROOT).expect("the root is there and its id is 16 bytes");
        MemFs { root, state: Arc::new(Mutex::new(state)), later: None }
    }

    /// Sets the clock for the changes to come; it never goes backwards.
    pub fn set_time(&self, now: Time) {
        self.lock().set_time(now);
    }

    /// Limits the data held to `bytes` (whole blocks of 4096 count; unlimited at first).
    /// Writes beyond fail with [`Status::NoSpc`].
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// Limits the size of a file to `bytes` (range: up to 2^63 - 1; 1 GiB at first). Writes
    /// beyond fail with [`Status::FBig`].
    pub fn set_file_max(&self, bytes: u64) {
        self.lock().file_max = bytes.min(i64::MAX as u64);
    }

    /// The machine goes down and comes back: volatile writes are lost, the verifier changes.
    pub fn crash(&self) {
        let mut state = self.lock();
        state.revert_all();
        state.rotate_verifier();
    }

    /// The server process alone goes down and comes back: nothing is lost, but it cannot
    /// know that, so the verifier changes.
    pub fn restart(&self) {
        self.lock().rotate_verifier();
    }

    /// The next `count` operations of this kind fail with `status`, before they do anything.
    pub fn fail_next(&self, kind: OpKind, status: Status, count: u32) {
        self.lock().faults.fail_next(kind, status, count);
    }

    /// Asks `hook` before every operation whether, and how, it is to fail. The hook must not
    /// call this file system.
    pub fn set_fault(&self, hook: impl FnMut(OpKind) -> Option<Status> + Send + 'static) {
        self.lock().faults.set_hook(Some(Box::new(hook)));
    }

    /// Takes the hook of [`MemFs::set_fault`] away.
    pub fn clear_fault(&self) {
        self.lock().faults.set_hook(None);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an operation, unless a fault is due.
    fn enter(&self, kind: OpKind) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.faults.check(kind)?;
        Ok(state)
    }
}

impl Vfs for MemFs {
    fn root(&self) -> FileId {
        self.root
    }

    fn verifier(&self) -> [u8; 8] {
        self.lock().verifier
    }

    fn deferring(&self, ledger: &Arc<Ledger>) -> Option<Box<dyn Vfs>> {
        Some(Box::new(self.later(ledger)?))
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
        let written = self.enter(OpKind::Write)?.write(cred, id, offset, data, self.at_once(stable))?;
        self.owe(id, stable, written)
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

    fn rename(&self, cred: &Cred, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<RenameDirs> {
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
            name_max: names::NAME_MAX as u32,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })
    }

    fn commit(&self, cred: &Cred, id: &FileId, _offset: u64, _count: u32) -> Result<Wcc> {
        let mut state = self.enter(OpKind::Commit)?;
        let Some(later) = &self.later else { return state.commit(cred, id) };
        let wcc = state.may_commit(cred, id)?;
        drop(state);
        self.note(later, id)?;
        Ok(wcc)
    }
}
