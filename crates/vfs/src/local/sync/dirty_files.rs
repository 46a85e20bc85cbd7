//! Files with unflushed data, each held open by a descriptor that will report its loss.
//!
//! The kernel reports a write-back error once to each descriptor that was open at that time, at its next flush. A
//! descriptor that is opened later reports it only if no other has, and the inode is still in memory. So a flush
//! vouches for those writes only that came after its descriptor was opened or last flushed. If a dirty file were
//! closed, a COMMIT would open it anew, report nothing, and call lost data stable.
//!
//! One descriptor per file is enough: that of the first write since the last flush. Descriptors stay here until their
//! flush has ended, so that concurrent flushes of the file use them, too.
//!
//! A client may die before it commits. So files that are not written for [`DIRTY_IDLE_MAX`] are flushed and closed.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Result;

use crate::local::fd_cache::weak_fd::{self, WeakFd};
use crate::local::inode::stat::InodeKey;

/// A file that is not written for this long is flushed without a COMMIT: while it is open for writing, this machine
/// cannot execute it nor remount its file system read-only. Live clients commit sooner. The kernel's own write-back
/// begins after 30 s, so the flush finds little to do.
pub(crate) const DIRTY_IDLE_MAX: Duration = Duration::from_secs(60);

/// The dirty files of an export.
pub(crate) struct DirtyFiles {
    state: Mutex<State>,
    max: usize,
}

#[derive(Default)]
struct State {
    by_file: HashMap<InodeKey, Vec<DirtyFd>>,
    /// The descriptors that no flush covers, at most one per file, the oldest first.
    unflushed: BTreeMap<u64, Unflushed>,
    next_seq: u64,
}

#[derive(Clone)]
struct DirtyFd {
    seq: u64,
    fd: Arc<OwnedFd>,
}

struct Unflushed {
    key: InodeKey,
    /// When the file was last written.
    written_at: Instant,
}

/// The dirty descriptors of a file during a flush.
#[must_use]
pub(crate) struct DirtySet {
    key: InodeKey,
    fds: Vec<DirtyFd>,
}

impl DirtyFiles {
    /// Holds at most `max` dirty files (range: from 1) beside those that are being flushed.
    pub(crate) fn new(max: usize) -> DirtyFiles {
        DirtyFiles { state: Mutex::default(), max: max.max(1) }
    }

    /// The file was written through `fd`; the caller holds the file's lock. Returns the oldest dirty file if there are
    /// too many: the caller must flush it.
    #[must_use]
    pub(crate) fn mark_dirty(&self, key: InodeKey, fd: &Arc<OwnedFd>) -> Option<DirtySet> {
        let mut state = self.lock();
        state.mark_dirty(key, fd);
        if state.unflushed.len() <= self.max {
            return None;
        }
        let (_, oldest) = state.unflushed.pop_first()?;
        Some(state.begin_flush(oldest.key))
    }

    /// Begins a flush of a file that has not been written for `idle`, if there is one.
    pub(crate) fn begin_idle_flush(&self, idle: Duration) -> Option<DirtySet> {
        let mut state = self.lock();
        let now = Instant::now();
        let key =
            state.unflushed.values().find(|unflushed| now.saturating_duration_since(unflushed.written_at) >= idle)?.key;
        Some(state.begin_flush(key))
    }

    /// Begins a flush of the file.
    pub(crate) fn begin_flush(&self, key: InodeKey) -> DirtySet {
        self.lock().begin_flush(key)
    }

    /// Ends a flush, also a failed one: the new write verifier makes clients repeat all earlier writes.
    pub(crate) fn end_flush(&self, set: DirtySet) {
        let mut state = self.lock();
        if let Some(fds) = state.by_file.get_mut(&set.key) {
            fds.retain(|dirty_fd| set.fds.iter().all(|flushed| flushed.seq != dirty_fd.seq));
            if fds.is_empty() {
                state.by_file.remove(&set.key);
            }
        }
    }

    /// Drops a removed file. Nothing of it need be flushed.
    pub(crate) fn forget(&self, key: InodeKey) {
        let mut state = self.lock();
        let last = state.begin_flush(key);
        state.by_file.remove(&key);
        drop(state);
        // Without the lock, because freeing the blocks may take long.
        drop(last);
    }

    /// Closes files whose link count is 0. Returns whether there were any. A file whose link count is unknown stays
    /// open: otherwise a loss of its data would go unreported.
    pub(crate) fn close_removed(&self, links: impl Fn(&OwnedFd) -> Result<u32>) -> bool {
        let open = self.lock().open();
        let removed = weak_fd::filter_open(open, |fd| links(fd) == Ok(0));
        let mut state = self.lock();
        let closed: Vec<_> = removed.iter().filter_map(|removed| state.forget(removed)).collect();
        drop(state);
        // Without the lock, because freeing the blocks may take long.
        !closed.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&self) -> Vec<WeakFd<InodeKey>> {
        let fds = self.by_file.iter().flat_map(|(key, fds)| fds.iter().map(|dirty_fd| WeakFd::new(*key, &dirty_fd.fd)));
        fds.collect()
    }

    /// Drops the removed file if it is still dirty through this descriptor. Returns what to close.
    fn forget(&mut self, removed: &WeakFd<InodeKey>) -> Option<Vec<DirtyFd>> {
        let is_dirty = self.by_file.get(&removed.key)?.iter().any(|dirty_fd| removed.is(&dirty_fd.fd));
        let fds = if is_dirty { self.by_file.remove(&removed.key)? } else { return None };
        for dirty_fd in &fds {
            self.unflushed.remove(&dirty_fd.seq);
        }
        Some(fds)
    }

    fn mark_dirty(&mut self, key: InodeKey, fd: &Arc<OwnedFd>) {
        let (fds, written_at) = (self.by_file.entry(key).or_default(), Instant::now());
        if let Some(unflushed) = fds.last().and_then(|last| self.unflushed.get_mut(&last.seq)) {
            unflushed.written_at = written_at;
            return;
        }
        // A flush that has begun may not cover this write.
        fds.push(DirtyFd { seq: self.next_seq, fd: fd.clone() });
        self.unflushed.insert(self.next_seq, Unflushed { key, written_at });
        self.next_seq += 1;
    }

    fn begin_flush(&mut self, key: InodeKey) -> DirtySet {
        let fds = self.by_file.get(&key).cloned().unwrap_or_default();
        for dirty_fd in &fds {
            self.unflushed.remove(&dirty_fd.seq);
        }
        DirtySet { key, fds }
    }
}

impl DirtySet {
    /// The descriptors to flush.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.fds.iter().map(|dirty_fd| &*dirty_fd.fd)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// The number of references to `fd` that this set accounts for.
    pub(crate) fn holders(&self, fd: &Arc<OwnedFd>) -> usize {
        // One in the list and one here.
        2 * self.fds.iter().filter(|dirty_fd| Arc::ptr_eq(&dirty_fd.fd, fd)).count()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::io::Errno;

    use super::*;
    use crate::local::inode::stat;

    const A: InodeKey = InodeKey { ino: 1, birth_ns: 0 };
    const B: InodeKey = InodeKey { ino: 2, birth_ns: 0 };

    fn open() -> Arc<OwnedFd> {
        Arc::new(File::open("/dev/null").unwrap().into())
    }

    fn is(set: &DirtySet, wanted: &[&Arc<OwnedFd>]) -> bool {
        set.fds.iter().map(|dirty_fd| Arc::as_ptr(&dirty_fd.fd)).eq(wanted.iter().map(|fd| Arc::as_ptr(fd)))
    }

    fn owing(dirty: &DirtyFiles) -> (usize, usize) {
        let state = dirty.lock();
        (state.by_file.values().map(Vec::len).sum(), state.unflushed.len())
    }

    #[test]
    fn first_fd_is_held_until_a_later_flush_ends() {
        let (dirty, first, second) = (DirtyFiles::new(2), open(), open());
        assert!(dirty.mark_dirty(A, &first).is_none() && dirty.mark_dirty(A, &second).is_none());
        let set = dirty.begin_flush(A);
        assert!(is(&set, &[&first]), "it saw both writes");
        assert_eq!((set.holders(&first), Arc::strong_count(&first)), (2, 3));
        assert_eq!((set.holders(&second), Arc::strong_count(&second)), (0, 1));
        assert!(dirty.mark_dirty(A, &second).is_none(), "written after the flush began");
        let other = dirty.begin_flush(A);
        assert!(is(&other, &[&first, &second]), "the first flush has not ended");
        dirty.end_flush(set);
        assert_eq!(owing(&dirty), (1, 0));
        dirty.end_flush(other);
        assert_eq!((owing(&dirty), Arc::strong_count(&first), Arc::strong_count(&second)), ((0, 0), 1, 1));
        assert!(dirty.begin_flush(A).is_empty());
    }

    #[test]
    fn oldest_file_is_flushed_beyond_the_limit() {
        let dirty = DirtyFiles::new(1);
        assert!(dirty.mark_dirty(A, &open()).is_none());
        let oldest = dirty.mark_dirty(B, &open()).unwrap();
        assert_eq!((oldest.key, owing(&dirty)), (A, (2, 1)));
        let written_meanwhile = dirty.mark_dirty(A, &open()).unwrap();
        assert_eq!((written_meanwhile.key, owing(&dirty)), (B, (3, 1)));
        dirty.end_flush(oldest);
        dirty.end_flush(written_meanwhile);
        assert_eq!(owing(&dirty), (1, 1));
        dirty.forget(A);
        assert_eq!(owing(&dirty), (0, 0));
    }

    #[test]
    fn idle_files_are_flushed_one_by_one() {
        let (dirty, hour) = (DirtyFiles::new(8), Duration::from_secs(3600));
        let write = |key| assert!(dirty.mark_dirty(key, &open()).is_none());
        write(A);
        write(B);
        assert!(dirty.begin_idle_flush(hour).is_none(), "both were written just now");
        dirty.lock().unflushed.values_mut().for_each(|unflushed| unflushed.written_at -= hour);
        write(A);
        let set = dirty.begin_idle_flush(hour).unwrap();
        assert_eq!((set.key, owing(&dirty)), (B, (2, 1)));
        write(B);
        assert!(dirty.begin_idle_flush(hour).is_none(), "A was written, and B again during its flush");
        dirty.end_flush(set);
        let others = [dirty.begin_idle_flush(Duration::ZERO), dirty.begin_idle_flush(Duration::ZERO)];
        assert_eq!(others.each_ref().map(|other| other.as_ref().unwrap().key), [A, B]);
        assert!(dirty.begin_idle_flush(Duration::ZERO).is_none());
        others.into_iter().flatten().for_each(|other| dirty.end_flush(other));
        assert_eq!(owing(&dirty), (0, 0));
    }

    #[test]
    fn removed_file_is_dropped() {
        let (dirty, dir) = (DirtyFiles::new(8), tempfile::tempdir().unwrap());
        for key in [A, B] {
            let path = dir.path().join(key.ino.to_string());
            assert!(dirty.mark_dirty(key, &Arc::new(File::create(path).unwrap().into())).is_none());
        }
        let close_removed = || dirty.close_removed(|fd| stat::links(fd));
        assert!(!close_removed());
        std::fs::remove_file(dir.path().join("1")).unwrap();
        assert!(close_removed());
        assert_eq!(owing(&dirty), (1, 1));
        assert!(dirty.begin_flush(A).is_empty() && !dirty.begin_flush(B).is_empty());
    }

    #[test]
    fn file_with_unknown_link_count_stays_dirty() {
        let (dirty, fd) = (DirtyFiles::new(8), open());
        assert!(dirty.mark_dirty(A, &fd).is_none());
        assert!(!dirty.close_removed(|_| Err(Errno::IO)));
        assert!(is(&dirty.begin_flush(A), &[&fd]));
    }
}
