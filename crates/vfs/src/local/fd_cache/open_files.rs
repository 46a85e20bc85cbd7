//! The cache of files that are open for their data.
//!
//! An open file serves the credential for which it was opened, as a local descriptor would. It is trusted for a while
//! only: another program may have moved the file out of the export, or revoked the permission. Files with dirty data
//! stay open in [`DirtyFiles`], whatever this cache evicts.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use rustix::fs::OFlags;

use crate::local::fd_cache::weak_fd::{self, WeakFd};
use crate::local::inode::stat::{self, InodeKey};
use crate::local::sync::dirty_files::DirtyFiles;
use crate::local::sys::lru_cache::lru_cache;
use crate::types::Cred;

/// A file is closed for writing when it has not been used for this long.
pub(crate) const WRITE_IDLE_MAX: Duration = Duration::from_secs(5);

/// What a file is open for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OpenMode {
    Read,
    Write,
}

impl OpenMode {
    pub(crate) fn flags(self) -> OFlags {
        match self {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::WRONLY,
        }
    }
}

/// A file that is open for its data.
#[derive(Clone)]
pub(crate) struct OpenFile {
    pub(crate) fd: Arc<OwnedFd>,
    /// The credential for which it was opened.
    cred: Cred,
    /// How often it was taken from the cache.
    uses: u64,
    /// When its path was last resolved.
    verified_at: Instant,
    /// When it was last taken from the cache.
    used_at: Instant,
}

impl OpenFile {
    pub(crate) fn new(fd: Arc<OwnedFd>, cred: &Cred) -> OpenFile {
        let now = Instant::now();
        OpenFile { fd, cred: cred.clone(), uses: 0, verified_at: now, used_at: now }
    }
}

type FileKey = (InodeKey, OpenMode);

/// The open files of an export.
pub(crate) struct FileCache {
    cache: Mutex<LruCache<FileKey, OpenFile>>,
    /// Files that must stay open until they are flushed.
    pub(crate) dirty: DirtyFiles,
    revalidate_after: Duration,
}

impl FileCache {
    /// Keeps at most `open_max` files open, and `dirty_max` dirty ones. Each is valid for `revalidate_after`.
    pub(crate) fn new(open_max: usize, dirty_max: usize, revalidate_after: Duration) -> FileCache {
        FileCache { cache: Mutex::new(lru_cache(open_max)), dirty: DirtyFiles::new(dirty_max), revalidate_after }
    }

    /// Whether the path of `file` need not be resolved again.
    pub(crate) fn is_fresh(&self, file: &OpenFile) -> bool {
        file.verified_at.elapsed() < self.revalidate_after
    }

    /// The path of the file was resolved just now.
    pub(crate) fn mark_verified(&self, key: InodeKey, mode: OpenMode) {
        if let Some(file) = self.lock().get((key, mode)) {
            file.verified_at = Instant::now();
        }
    }

    /// Closes files that another program removed, which frees their blocks. Returns whether there were any.
    pub(crate) fn close_removed(&self) -> bool {
        self.close_unlinked(|fd| stat::links(fd))
    }

    /// Closes files whose link count is 0. Returns whether there were any.
    pub(crate) fn close_unlinked(&self, links: impl Fn(&OwnedFd) -> rustix::io::Result<u32>) -> bool {
        let open = self.lock().select(|_, _| true);
        let removed = weak_fd::filter_open(open, |fd| links(fd) == Ok(0));
        let some = self.lock().remove_all(&removed);
        // The dirty ones last: only then are their blocks freed.
        self.dirty.close_removed(links) | some
    }

    /// Closes files that have been open for writing without use for `idle` and are not dirty. While a file is open for
    /// writing, this machine cannot execute it nor remount its file system read-only.
    pub(crate) fn close_idle_writers(&self, idle: Duration) {
        let is_idle = |file: &OpenFile| file.used_at.elapsed() >= idle && Arc::strong_count(&file.fd) == 1;
        let mut files = self.lock();
        let unused = files.select(|mode, file| mode == OpenMode::Write && is_idle(file));
        files.remove_all(&unused);
    }

    /// Closes files that have been open for reading without use for `idle`.
    pub(crate) fn close_idle_readers(&self, idle: Duration) {
        let mut files = self.lock();
        let unused = files.select(|mode, file| mode == OpenMode::Read && file.used_at.elapsed() >= idle);
        files.remove_all(&unused);
    }

    /// The file, if it was opened for `cred`.
    pub(crate) fn get(&self, key: InodeKey, mode: OpenMode, cred: &Cred) -> Option<OpenFile> {
        let mut files = self.lock();
        let file = files.get((key, mode)).filter(|file| file.cred == *cred)?;
        file.uses += 1;
        file.used_at = Instant::now();
        Some(file.clone())
    }

    /// The number of uses of the file so far, if nothing holds it but the cache and `holders` (those that wait for its
    /// flush, and the flush itself). Any later use increases the number.
    pub(crate) fn idle_uses(&self, key: InodeKey, file: &OpenFile, holders: usize) -> Option<u64> {
        let mut files = self.lock();
        let cached = files.get((key, OpenMode::Write)).filter(|cached| Arc::ptr_eq(&cached.fd, &file.fd))?;
        (Arc::strong_count(&cached.fd) <= 1 + holders).then_some(cached.uses)
    }

    /// Closes the file unless it has been used since [`idle_uses`](FileCache::idle_uses) returned `uses`.
    pub(crate) fn close_unless_used(&self, key: InodeKey, file: &OpenFile, uses: u64) {
        let mut files = self.lock();
        let cached = files.get((key, OpenMode::Write));
        if cached.is_some_and(|cached| Arc::ptr_eq(&cached.fd, &file.fd) && cached.uses == uses) {
            files.remove((key, OpenMode::Write));
        }
    }

    /// A descriptor of the file in any mode, to identify it.
    pub(crate) fn any_fd(&self, key: InodeKey) -> Option<Arc<OwnedFd>> {
        let mut files = self.lock();
        [OpenMode::Write, OpenMode::Read]
            .into_iter()
            .find_map(|mode| files.get((key, mode)).map(|file| file.fd.clone()))
    }

    pub(crate) fn put(&self, key: InodeKey, mode: OpenMode, file: OpenFile) {
        self.lock().insert((key, mode), file);
    }

    /// Closes a file that lost its last name, dirty or not.
    pub(crate) fn forget(&self, key: InodeKey) {
        self.close(key);
        self.dirty.forget(key);
    }

    /// Closes the file as soon as it is unused and clean.
    pub(crate) fn close(&self, key: InodeKey) {
        let mut files = self.lock();
        files.remove((key, OpenMode::Read));
        files.remove((key, OpenMode::Write));
    }

    fn lock(&self) -> LockedFiles<'_> {
        LockedFiles { cache: self.cache.lock().unwrap_or_else(PoisonError::into_inner), evicted: Vec::new() }
    }
}

/// The locked cache. Evicted files are closed after it is unlocked (fields drop in order), because closing a large
/// removed file may take seconds.
struct LockedFiles<'a> {
    cache: MutexGuard<'a, LruCache<FileKey, OpenFile>>,
    evicted: Vec<OpenFile>,
}

impl LockedFiles<'_> {
    fn get(&mut self, key: FileKey) -> Option<&mut OpenFile> {
        self.cache.get_mut(&key)
    }

    fn insert(&mut self, key: FileKey, file: OpenFile) {
        self.evicted.extend(self.cache.push(key, file).map(|(_, evicted)| evicted));
    }

    fn remove(&mut self, key: FileKey) {
        self.evicted.extend(self.cache.pop(&key));
    }

    fn select(&self, wanted: impl Fn(OpenMode, &OpenFile) -> bool) -> Vec<WeakFd<FileKey>> {
        let selected = self.cache.iter().filter(|((_, mode), file)| wanted(*mode, file));
        selected.map(|(key, file)| WeakFd::new(*key, &file.fd)).collect()
    }

    /// Removes those of `files` that are still in the cache. Returns whether there were any.
    fn remove_all(&mut self, files: &[WeakFd<FileKey>]) -> bool {
        for weak in files {
            if self.cache.peek(&weak.key).is_some_and(|file| weak.is(&file.fd)) {
                self.remove(weak.key);
            }
        }
        !self.evicted.is_empty()
    }
}
