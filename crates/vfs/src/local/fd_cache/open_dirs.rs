//! Directories cached open for a moment, so that what is in them is reached by one system call.
//!
//! An open descriptor is the directory itself, wherever it goes. That it is still inside the
//! export is what the way from the root showed when that was last gone, which may be some time
//! ago ([`Options::revalidate_after`](super::Options::revalidate_after)).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::local::fd_cache::weak_fd::{self, WeakFd};
use crate::local::handles::file_id::InodeKey;
use crate::local::inode::stat;
use crate::local::sys::lru_cache::lru_cache;

/// An open directory.
#[derive(Clone)]
pub(crate) struct VerifiedDir {
    pub(crate) fd: Arc<OwnedFd>,
    /// When the way from the root was gone.
    pub(crate) verified_at: Instant,
}

impl VerifiedDir {
    /// By a way gone just now.
    pub(crate) fn now(fd: Arc<OwnedFd>) -> VerifiedDir {
        VerifiedDir { fd, verified_at: Instant::now() }
    }
}

#[derive(Clone)]
struct CachedDir {
    way: VerifiedDir,
    /// Opened so that it can be synced.
    syncable: Option<Arc<OwnedFd>>,
}

/// See the module.
pub(crate) struct DirCache {
    cached: Mutex<LruCache<InodeKey, CachedDir>>,
    revalidate_after: Duration,
}

impl DirCache {
    /// Keeps at most `limit` directories open, with one or two descriptors each, and goes the
    /// way to them again after `revalidate_after`.
    pub(crate) fn new(limit: usize, revalidate_after: Duration) -> DirCache {
        DirCache { cached: Mutex::new(lru_cache(limit)), revalidate_after }
    }

    /// The directory, if the way to it has been gone of late.
    pub(crate) fn get(&self, key: InodeKey) -> Option<VerifiedDir> {
        let mut dirs = self.lock();
        dirs.get(key)
            .filter(|cached| cached.way.verified_at.elapsed() < self.revalidate_after)
            .map(|cached| cached.way.clone())
    }

    /// The directory was reached by this way.
    pub(crate) fn put(&self, key: InodeKey, way: VerifiedDir) {
        let mut dirs = self.lock();
        let syncable = dirs.get(key).and_then(|cached| cached.syncable.clone());
        dirs.insert(key, CachedDir { way, syncable });
    }

    /// The directory to sync, opened by `open` unless it is.
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

    /// The directory was removed, or is not where it was.
    pub(crate) fn close(&self, key: InodeKey) {
        self.lock().remove(key);
    }

    /// Closes what is no more; whether there was any. Somebody else removed it.
    pub(crate) fn close_removed(&self) -> bool {
        self.close_without(|fd| stat::links(fd))
    }

    /// Closes what has no `links`, or cannot be looked at; whether there was any.
    pub(crate) fn close_without(&self, links: impl Fn(&OwnedFd) -> rustix::io::Result<u32>) -> bool {
        let open = self.lock().cached.iter().map(|(key, cached)| WeakFd::new(*key, &cached.way.fd)).collect();
        let gone = weak_fd::filter_open(open, |fd| !links(fd).is_ok_and(|links| links > 0));
        let mut dirs = self.lock();
        gone.iter().for_each(|gone| dirs.remove_if(gone.key, |cached| gone.is(&cached.way.fd)));
        !dirs.evicted.is_empty()
    }

    fn lock(&self) -> LockedDirs<'_> {
        LockedDirs { cached: self.cached.lock().unwrap_or_else(PoisonError::into_inner), evicted: Vec::new() }
    }
}

/// The directories, locked. What leaves them is closed when the lock is free again, for its place is behind the lock's: a
/// large directory that was removed takes its time.
struct LockedDirs<'a> {
    cached: MutexGuard<'a, LruCache<InodeKey, CachedDir>>,
    evicted: Vec<CachedDir>,
}

impl LockedDirs<'_> {
    fn get(&mut self, key: InodeKey) -> Option<&mut CachedDir> {
        self.cached.get_mut(&key)
    }

    fn insert(&mut self, key: InodeKey, cached: CachedDir) {
        self.evicted.extend(self.cached.push(key, cached).map(|(_, left)| left));
    }

    fn remove(&mut self, key: InodeKey) {
        self.evicted.extend(self.cached.pop(&key));
    }

    fn remove_if(&mut self, key: InodeKey, which: impl FnOnce(&CachedDir) -> bool) {
        if self.cached.peek(&key).is_some_and(which) {
            self.remove(key);
        }
    }
}
