//! Directories kept open for a moment, so that what is in them is reached by one system call.
//!
//! An open descriptor is the directory itself, wherever it goes. That it is still inside the
//! export is what the way from the root showed when that was last gone, which may be some time
//! ago ([`Options::trust_for`](super::Options::trust_for)).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use super::ids::Key;
use super::looking::{self, Open};
use super::lru_cache::lru_cache;
use super::stat;

/// An open directory.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) fd: Arc<OwnedFd>,
    /// When the way from the root was gone.
    pub(super) since: Instant,
}

impl Way {
    /// By a way gone just now.
    pub(super) fn now(fd: Arc<OwnedFd>) -> Way {
        Way { fd, since: Instant::now() }
    }
}

#[derive(Clone)]
struct Kept {
    way: Way,
    /// Opened so that it can be synced.
    syncable: Option<Arc<OwnedFd>>,
}

/// See the module.
pub(super) struct Dirs {
    kept: Mutex<LruCache<Key, Kept>>,
    trust_for: Duration,
}

impl Dirs {
    /// Keeps at most `limit` directories open, with one or two descriptors each, and goes the
    /// way to them again after `trust_for`.
    pub(super) fn new(limit: usize, trust_for: Duration) -> Dirs {
        Dirs { kept: Mutex::new(lru_cache(limit)), trust_for }
    }

    /// The directory, if the way to it has been gone of late.
    pub(super) fn get(&self, key: Key) -> Option<Way> {
        let mut dirs = self.lock();
        dirs.get(key).filter(|kept| kept.way.since.elapsed() < self.trust_for).map(|kept| kept.way.clone())
    }

    /// The directory was reached by this way.
    pub(super) fn put(&self, key: Key, way: Way) {
        let mut dirs = self.lock();
        let syncable = dirs.get(key).and_then(|kept| kept.syncable.clone());
        dirs.insert(key, Kept { way, syncable });
    }

    /// The directory to sync, opened by `open` unless it is.
    pub(super) fn syncable(&self, key: Key, open: impl FnOnce() -> Option<OwnedFd>) -> Option<Arc<OwnedFd>> {
        if let Some(fd) = self.lock().get(key).and_then(|kept| kept.syncable.clone()) {
            return Some(fd);
        }
        let fd = Arc::new(open()?);
        if let Some(kept) = self.lock().get(key) {
            kept.syncable = Some(fd.clone());
        }
        Some(fd)
    }

    /// The directory was removed, or is not where it was.
    pub(super) fn close(&self, key: Key) {
        self.lock().remove(key);
    }

    /// Closes what is no more; whether there was any. Somebody else removed it.
    pub(super) fn close_removed(&self) -> bool {
        self.close_without(|fd| stat::links(fd))
    }

    /// Closes what has no `links`, or cannot be looked at; whether there was any.
    pub(super) fn close_without(&self, links: impl Fn(&OwnedFd) -> rustix::io::Result<u32>) -> bool {
        let open = self.lock().kept.iter().map(|(key, kept)| Open::new(*key, &kept.way.fd)).collect();
        let gone = looking::select(open, |fd| !links(fd).is_ok_and(|links| links > 0));
        let mut dirs = self.lock();
        gone.iter().for_each(|gone| dirs.remove_if(gone.key, |kept| gone.is(&kept.way.fd)));
        !dirs.leaving.is_empty()
    }

    fn lock(&self) -> Locked<'_> {
        Locked { kept: self.kept.lock().unwrap_or_else(PoisonError::into_inner), leaving: Vec::new() }
    }
}

/// The directories, locked. What leaves them is closed when the lock is free again, for its place is behind the lock's: a
/// large directory that was removed takes its time.
struct Locked<'a> {
    kept: MutexGuard<'a, LruCache<Key, Kept>>,
    leaving: Vec<Kept>,
}

impl Locked<'_> {
    fn get(&mut self, key: Key) -> Option<&mut Kept> {
        self.kept.get_mut(&key)
    }

    fn insert(&mut self, key: Key, kept: Kept) {
        self.leaving.extend(self.kept.push(key, kept).map(|(_, left)| left));
    }

    fn remove(&mut self, key: Key) {
        self.leaving.extend(self.kept.pop(&key));
    }

    fn remove_if(&mut self, key: Key, which: impl FnOnce(&Kept) -> bool) {
        if self.kept.peek(&key).is_some_and(which) {
            self.remove(key);
        }
    }
}
