//! The cache of open directories, which saves the walk from the root.
//!
//! An open descriptor stays on its directory wherever that moves. That the directory is in the export was last verified
//! by the walk from the root, at most [`Options::revalidate_after`](crate::local::Options::revalidate_after) ago.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::local::fd_cache::weak_fd::{self, WeakFd};
use crate::local::inode::stat::{self, InodeKey};
use crate::local::sys::lru_cache::lru_cache;

/// An open directory that was reached from the root.
#[derive(Clone)]
pub(crate) struct VerifiedDir {
    pub(crate) fd: Arc<OwnedFd>,
    /// When it was reached.
    pub(crate) verified_at: Instant,
}

impl VerifiedDir {
    /// A directory that was reached just now.
    pub(crate) fn now(fd: Arc<OwnedFd>) -> VerifiedDir {
        VerifiedDir { fd, verified_at: Instant::now() }
    }
}

#[derive(Clone)]
struct CachedDir {
    dir: VerifiedDir,
    /// The directory opened for reading, which fsync(2) needs.
    syncable: Option<Arc<OwnedFd>>,
}

/// The open directories of an export.
pub(crate) struct DirCache {
    cached: Mutex<LruCache<InodeKey, CachedDir>>,
    revalidate_after: Duration,
}

impl DirCache {
    /// Keeps at most `limit` directories open, with one or two descriptors each. Each is valid for `revalidate_after`.
    pub(crate) fn new(limit: usize, revalidate_after: Duration) -> DirCache {
        DirCache { cached: Mutex::new(lru_cache(limit)), revalidate_after }
    }

    /// The directory, unless it is due for revalidation.
    pub(crate) fn get(&self, key: InodeKey) -> Option<VerifiedDir> {
        let mut dirs = self.lock();
        let cached = dirs.get(key).filter(|cached| cached.dir.verified_at.elapsed() < self.revalidate_after)?;
        Some(cached.dir.clone())
    }

    pub(crate) fn put(&self, key: InodeKey, dir: VerifiedDir) {
        let mut dirs = self.lock();
        let syncable = dirs.get(key).and_then(|cached| cached.syncable.clone());
        dirs.insert(key, CachedDir { dir, syncable });
    }

    /// The directory opened for fsync(2). Calls `open` if it is not cached.
    pub(crate) fn syncable(&self, key: InodeKey, open: impl FnOnce() -> Option<OwnedFd>) -> Option<Arc<OwnedFd>> {
        if let Some(fd) = self.lock().get(key).and_then(|cached| cached.syncable.clone()) {
            return Some(fd);
        }
        let fd = Arc::new(open()?);
        if let Some(cached) = self.lock().get(key) {
            cached.syncable = Some(fd.clone());
        }
        Some(fd)
    }

    /// Closes a directory that was removed or moved.
    pub(crate) fn close(&self, key: InodeKey) {
        self.lock().remove(key);
    }

    /// Closes directories that another program removed. Returns whether there were any.
    pub(crate) fn close_removed(&self) -> bool {
        self.close_unlinked(|fd| stat::links(fd))
    }

    /// Closes directories whose link count is 0 or unknown. Returns whether there were any.
    pub(crate) fn close_unlinked(&self, links: impl Fn(&OwnedFd) -> rustix::io::Result<u32>) -> bool {
        let open = self.lock().cached.iter().map(|(key, cached)| WeakFd::new(*key, &cached.dir.fd)).collect();
        let removed = weak_fd::filter_open(open, |fd| !links(fd).is_ok_and(|links| links > 0));
        let mut dirs = self.lock();
        for weak in &removed {
            if dirs.cached.peek(&weak.key).is_some_and(|cached| weak.is(&cached.dir.fd)) {
                dirs.remove(weak.key);
            }
        }
        !dirs.evicted.is_empty()
    }

    fn lock(&self) -> LockedDirs<'_> {
        LockedDirs { cached: self.cached.lock().unwrap_or_else(PoisonError::into_inner), evicted: Vec::new() }
    }
}

/// The locked cache. Evicted directories are closed after it is unlocked (fields drop in order), because closing a
/// large removed directory takes long.
struct LockedDirs<'a> {
    cached: MutexGuard<'a, LruCache<InodeKey, CachedDir>>,
    evicted: Vec<CachedDir>,
}

impl LockedDirs<'_> {
    fn get(&mut self, key: InodeKey) -> Option<&mut CachedDir> {
        self.cached.get_mut(&key)
    }

    fn insert(&mut self, key: InodeKey, dir: CachedDir) {
        self.evicted.extend(self.cached.push(key, dir).map(|(_, evicted)| evicted));
    }

    fn remove(&mut self, key: InodeKey) {
        self.evicted.extend(self.cached.pop(&key));
    }
}
