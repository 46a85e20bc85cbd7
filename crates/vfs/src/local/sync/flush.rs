//! Flushes of the local disk, and the write verifier that changes when one fails.

use std::collections::BTreeMap;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remora_wire::nfs3::{Stable, Status};
use rustix::io::Errno;

use crate::flush::{Flush, FlushKey, Flushing, Ledger};
use crate::local::fd_cache::open_files::{FileCache, OpenFile};
use crate::local::inode::fs_caps::FsCaps;
use crate::local::inode::inode_locks::{InodeGuards, InodeLocks};
use crate::local::inode::stat::InodeKey;
use crate::local::sync::dirty_files::DirtySet;
use crate::local::sync::syncfs_policy::SyncfsPolicy;
use crate::local::sys::errors::{self, DiskFailure, FailureHook};
use crate::local::sys::syscalls::{fdatasync, fsync, syncfs};
use crate::types::Result;

/// This many fsync(2) take about as long as one syncfs(2), which also writes the dirty data of other programs.
const SEPARATE_MAX: usize = 2;

/// The [`FlushKey::depth`] of a flush of the whole file system.
pub(crate) const DEPTH_ALL: u8 = 3;

/// What the flushes of an export share.
pub(crate) struct FlushContext {
    pub(crate) root: Arc<OwnedFd>,
    pub(crate) caps: FsCaps,
    pub(crate) files: FileCache,
    pub(crate) failure_hook: FailureHook,
    policy: SyncfsPolicy,
    /// Serialises the flushes of each descriptor.
    fd_locks: InodeLocks,
    verifier: AtomicU64,
}

/// Makes the operations of a view add their flushes to a ledger.
pub(crate) struct Deferral {
    ledger: Arc<Ledger>,
    /// The verifier before the changes.
    verifier: u64,
}

/// What a flush covers.
pub(crate) enum FlushTarget {
    /// The data of a file. With `closes`, the file is closed if it is idle afterwards.
    Data { file: OpenFile, stable: Stable, closes: bool },
    /// An object's data and attributes, or a directory's names.
    Object(Arc<OwnedFd>),
    /// The names in `dir` and a new object in it, or the attributes of a file (`dir`): each by itself if few changes
    /// wait, or with the whole file system.
    Names { dir: Arc<OwnedFd>, new: Option<Arc<OwnedFd>> },
    /// The whole file system.
    All,
}

struct LocalFlush {
    ctx: Arc<FlushContext>,
    key: InodeKey,
    target: FlushTarget,
    /// The verifier before the change.
    verifier: u64,
}

impl FlushContext {
    pub(crate) fn new(
        root: Arc<OwnedFd>,
        caps: FsCaps,
        files: FileCache,
        failure_hook: FailureHook,
        verifier: [u8; 8],
    ) -> FlushContext {
        let (policy, fd_locks) = (SyncfsPolicy::new(), InodeLocks::new());
        let verifier = AtomicU64::new(u64::from_be_bytes(verifier));
        FlushContext { root, caps, files, failure_hook, policy, fd_locks, verifier }
    }

    /// The write verifier.
    pub(crate) fn verifier(&self) -> [u8; 8] {
        self.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    /// Makes changes from now on add their flushes to `ledger`.
    pub(crate) fn defer(&self, ledger: &Arc<Ledger>) -> Deferral {
        Deferral { ledger: ledger.clone(), verifier: self.verifier.load(Ordering::Acquire) }
    }

    /// Flushes `target` of the object `key`, or adds the flush to the ledger of `deferral`.
    pub(crate) fn flush(
        self: &Arc<Self>,
        key: InodeKey,
        target: FlushTarget,
        deferral: Option<&Deferral>,
    ) -> Result<()> {
        let verifier = deferral.map_or_else(|| self.verifier.load(Ordering::Acquire), |deferral| deferral.verifier);
        let flush = LocalFlush { ctx: self.clone(), key, target, verifier };
        match deferral {
            Some(deferral) => {
                deferral.ledger.note(Flush::new(flush));
                Ok(())
            }
            None => flush.run(&[]),
        }
    }

    /// Flushes the oldest dirty file because there are too many. A failure changes the verifier, which tells its
    /// writers.
    pub(crate) fn flush_overdue(&self, set: DirtySet) {
        let _ = self.flush_dirty(set, |fd| fdatasync(fd));
    }

    /// Flushes the files that have not been written for `idle`. Returns whether there were any.
    pub(crate) fn flush_idle(&self, idle: Duration) -> bool {
        let mut some = false;
        while let Some(set) = self.files.dirty.begin_idle_flush(idle) {
            self.flush_overdue(set);
            some = true;
        }
        some
    }

    /// Flushes a file that is about to lose a name. Returns the error without changing the verifier.
    pub(crate) fn flush_before_unlink(&self, key: InodeKey) -> rustix::io::Result<()> {
        let set = self.files.dirty.begin_flush(key);
        let done = set.descriptors().try_for_each(|fd| {
            let _guard = self.lock_fd(fd);
            fdatasync(fd)
        });
        self.files.dirty.end_flush(set);
        done
    }

    /// Reports that written data may be lost: changes the verifier and calls the failure hook.
    pub(crate) fn report_loss(&self, error: Errno) {
        self.verifier.fetch_add(1, Ordering::AcqRel);
        self.failure_hook.report(DiskFailure::Flush(error.into()));
    }

    /// Flushes a file through the descriptors that report a loss of its dirty data.
    fn flush_dirty(&self, set: DirtySet, flush: impl Fn(&OwnedFd) -> rustix::io::Result<()>) -> Result<()> {
        let done = set.descriptors().try_for_each(|fd| self.flush_fd(fd, &flush));
        self.files.dirty.end_flush(set);
        done
    }

    /// Flushes these one after the other. If one cannot be flushed by itself, flushes the whole file system.
    fn flush_each<'a>(&self, fds: impl IntoIterator<Item = &'a OwnedFd>) -> Result<()> {
        for fd in fds {
            let mut possible = true;
            self.flush_fd(fd, |fd| match fsync(fd) {
                Err(Errno::INVAL) => {
                    possible = false;
                    Ok(())
                }
                done => done,
            })?;
            if !possible {
                return self.flush_all();
            }
        }
        Ok(())
    }

    /// Flushes the whole file system.
    ///
    /// Without a journal, syncfs(2) of ext4 sends the device's cache flush while the last metadata is still under way.
    /// An fsync(2) sends another one, even if nothing is left to write.
    fn flush_all(&self) -> Result<()> {
        self.flush_fd(&self.root, |root| {
            syncfs(root)?;
            if self.caps.has_journal {
                return Ok(());
            }
            match fsync(root) {
                Err(Errno::INVAL) => Ok(()),
                flushed => flushed,
            }
        })
    }

    fn lock_fd(&self, fd: &OwnedFd) -> InodeGuards<'_> {
        self.fd_locks.lock(&[fd.as_raw_fd() as u64])
    }

    /// Flushes one descriptor. A failure may have lost all data written since the last good flush, so it changes the
    /// verifier.
    ///
    /// The kernel reports a loss once per descriptor, so flushes of one descriptor are serialised: the next one reports
    /// nothing, but sees the changed verifier.
    fn flush_fd(&self, fd: &OwnedFd, flush: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>) -> Result<()> {
        let _guard = self.lock_fd(fd);
        flush(fd).map_err(|error| {
            self.report_loss(error);
            match errors::status(error) {
                // Some file systems allocate blocks only at the flush.
                full @ (Status::NoSpc | Status::DQuot) => full,
                _ => Status::Io,
            }
        })
    }
}

impl LocalFlush {
    /// The descriptors of this flush and `others`, each once, new objects before names. `None` unless all targets are
    /// names.
    fn separate_fds<'a>(&'a self, others: &[&'a Flush]) -> Option<Vec<&'a OwnedFd>> {
        let (mut fds, mut dirs) = (Vec::new(), BTreeMap::new());
        for flush in iter::once(Some(self)).chain(others.iter().map(|other| other.flushing())) {
            let LocalFlush { key, target: FlushTarget::Names { dir, new }, .. } = flush? else { return None };
            fds.extend(new.as_deref());
            dirs.insert(*key, &**dir);
        }
        fds.extend(dirs.into_values());
        Some(fds)
    }

    /// Whether an fsync(2) for each of this many objects is better than a syncfs(2).
    fn prefers_separate(&self, objects: usize) -> bool {
        objects <= SEPARATE_MAX || !self.ctx.policy.is_worthwhile()
    }

    fn flush_data(&self, file: &OpenFile, stable: Stable, closes: bool, sharing: usize) -> Result<()> {
        let files = &self.ctx.files;
        let set = files.dirty.begin_flush(self.key);
        let holders = 1 + sharing + set.holders(&file.fd);
        let idle_uses = closes.then(|| files.idle_uses(self.key, file, holders)).flatten();
        let flush = |fd: &OwnedFd| match stable {
            Stable::DataSync => fdatasync(fd),
            Stable::FileSync | Stable::Unstable => fsync(fd),
        };
        if set.is_empty() { self.ctx.flush_fd(&file.fd, flush) } else { self.ctx.flush_dirty(set, flush) }?;
        if let Some(uses) = idle_uses {
            files.close_unless_used(self.key, file, uses);
        }
        Ok(())
    }
}

impl Flushing for LocalFlush {
    fn key(&self) -> FlushKey {
        let disk = Arc::as_ptr(&self.ctx) as usize as u64;
        let object = u128::from(self.key.ino) << 64 | u128::from(self.key.birth_ns);
        match &self.target {
            FlushTarget::Data { stable: Stable::DataSync, .. } => FlushKey { disk, object, depth: 0 },
            // Both flush the whole object.
            FlushTarget::Data { .. } | FlushTarget::Object(_) => FlushKey { disk, object, depth: 1 },
            FlushTarget::Names { .. } => FlushKey { disk, object: 0, depth: 2 },
            FlushTarget::All => FlushKey { disk, object: 0, depth: DEPTH_ALL },
        }
    }

    /// Changes of names are small. Writing data mostly takes as long as flushing it.
    fn is_expensive(&self) -> bool {
        !matches!(self.target, FlushTarget::Data { .. })
    }

    fn run(&self, others: &[&Flush]) -> Result<()> {
        match &self.target {
            FlushTarget::Data { file, stable, closes } => self.flush_data(file, *stable, *closes, others.len()),
            // A flush of data may have the same key.
            FlushTarget::Object(fd) => match self.ctx.files.dirty.begin_flush(self.key) {
                set if set.is_empty() => self.ctx.flush_each([&**fd]),
                set => self.ctx.flush_dirty(set, |fd| fsync(fd)),
            },
            FlushTarget::Names { .. } => {
                match self.separate_fds(others).filter(|fds| self.prefers_separate(fds.len())) {
                    Some(fds) => self.ctx.flush_each(fds),
                    None => self.ctx.policy.time(|| self.ctx.flush_all()),
                }
            }
            FlushTarget::All => self.ctx.flush_all(),
        }
    }

    fn verdict(&self) -> Result<()> {
        if self.ctx.verifier.load(Ordering::Acquire) == self.verifier { Ok(()) } else { Err(Status::Io) }
    }
}

/// The number of descriptors that `flushes` would flush separately, and whether they would. For tests.
#[cfg(test)]
pub(crate) fn separate_flushes(flushes: &[Flush]) -> (usize, bool) {
    let [first, others @ ..] = flushes else { panic!("no flush") };
    let others: Vec<&Flush> = others.iter().collect();
    let flush: &LocalFlush = first.flushing().unwrap();
    let objects = flush.separate_fds(&others).unwrap().len();
    (objects, flush.prefers_separate(objects))
}
