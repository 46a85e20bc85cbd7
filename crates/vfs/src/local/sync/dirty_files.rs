//! Files that have been written to and not flushed since, held open by descriptors that saw it.
//!
//! That data could not be written back the kernel tells each descriptor that was open then, at its next flush, and
//! once. A descriptor that is opened later hears of it only if nobody has been told yet and the inode is still
//! in memory. So a flush speaks for those writes alone that came after its descriptor was opened, or was
//! flushed last, and no file may be closed while it owes one: a COMMIT would open it anew, hear nothing, and
//! call stable what is lost.
//!
//! One descriptor is enough for a file, whoever writes to it: the one by which the first write since the last flush
//! was done. Those that are being flushed stay here until that has ended, for others who are to flush the same.
//!
//! A client may die, or forget, before it commits. So what nobody has written to for [`IDLE`] is flushed without
//! being asked for, and closed.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Result;

use crate::local::fd_cache::weak_fd::{self, WeakFd};
use crate::local::handles::file_id::InodeKey;

/// What nobody has written to for so long is flushed though nobody commits it: open for writing it could not be run as
/// a program, nor its file system be made read-only. Clients that are alive commit sooner. By then the kernel has
/// begun to write it back by itself (after 30 s, looking every 5 s), so the flush finds little to do.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct DirtyFiles {
    state: Mutex<State>,
    max: usize,
}

#[derive(Default)]
struct State {
    by_file: HashMap<InodeKey, Vec<DirtyFd>>,
    /// Those that nobody is flushing, one a file at most, the oldest first.
    unflushed: BTreeMap<u64, Unflushed>,
    next: u64,
}

#[derive(Clone)]
struct DirtyFd {
    number: u64,
    fd: Arc<OwnedFd>,
}

struct Unflushed {
    key: InodeKey,
    /// When the file was last written to.
    written_at: Instant,
}

/// What a file owes, while it is being flushed.
#[must_use]
pub(crate) struct DirtySet {
    key: InodeKey,
    fds: Vec<DirtyFd>,
}

impl DirtyFiles {
    /// At most `max` files owe (range: from 1), beside those that are being flushed.
    pub(crate) fn new(max: usize) -> DirtyFiles {
        DirtyFiles { state: Mutex::default(), max: max.max(1) }
    }

    /// The file was written to by `fd`, by somebody who has kept others from writing to it until now. If too
    /// many owe then, the oldest is to be flushed.
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

    /// A flush begins now of a file that nobody has written to for as long as `idle`, if there is one.
    pub(crate) fn begin_idle_flush(&self, idle: Duration) -> Option<DirtySet> {
        let mut state = self.lock();
        let now = Instant::now();
        let key =
            state.unflushed.values().find(|unflushed| now.saturating_duration_since(unflushed.written_at) >= idle)?.key;
        Some(state.begin_flush(key))
    }

    /// A flush of the file begins now.
    pub(crate) fn begin_flush(&self, key: InodeKey) -> DirtySet {
        self.lock().begin_flush(key)
    }

    /// It has ended. If it failed, too: the verifier tells of all that was written before.
    pub(crate) fn end_flush(&self, set: DirtySet) {
        let mut state = self.lock();
        if let Some(fds) = state.by_file.get_mut(&set.key) {
            fds.retain(|dirty_fd| set.fds.iter().all(|flushed| flushed.number != dirty_fd.number));
            if fds.is_empty() {
                state.by_file.remove(&set.key);
            }
        }
    }

    /// The file is gone, and owes nothing to anybody.
    pub(crate) fn forget(&self, key: InodeKey) {
        let mut state = self.lock();
        let last = state.begin_flush(key);
        state.by_file.remove(&key);
        drop(state);
        // Here, without the lock: it may give back much room.
        drop(last);
    }

    /// Closes what has no name any more, as its `links` tell; whether there was any. What cannot be looked at owes
    /// as before: if it were closed and its data lost, nobody would be told.
    pub(crate) fn close_removed(&self, links: impl Fn(&OwnedFd) -> Result<u32>) -> bool {
        let open = self.lock().open();
        let gone = weak_fd::filter_open(open, |fd| links(fd) == Ok(0));
        let mut state = self.lock();
        let closed: Vec<_> = gone.iter().filter_map(|gone| state.forget(gone)).collect();
        drop(state);
        // Here, without the lock: it may give back much room.
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

    /// The file is gone, if it still owes by this descriptor: what is to be closed.
    fn forget(&mut self, gone: &WeakFd<InodeKey>) -> Option<Vec<DirtyFd>> {
        let owes = self.by_file.get(&gone.key)?.iter().any(|dirty_fd| gone.is(&dirty_fd.fd));
        let fds = if owes { self.by_file.remove(&gone.key)? } else { return None };
        for dirty_fd in &fds {
            self.unflushed.remove(&dirty_fd.number);
        }
        Some(fds)
    }

    fn mark_dirty(&mut self, key: InodeKey, fd: &Arc<OwnedFd>) {
        let (fds, written_at) = (self.by_file.entry(key).or_default(), Instant::now());
        if let Some(unflushed) = fds.last().and_then(|last| self.unflushed.get_mut(&last.number)) {
            unflushed.written_at = written_at;
            return;
        }
        // What is being flushed may not cover this any more.
        fds.push(DirtyFd { number: self.next, fd: fd.clone() });
        self.unflushed.insert(self.next, Unflushed { key, written_at });
        self.next += 1;
    }

    fn begin_flush(&mut self, key: InodeKey) -> DirtySet {
        let fds = self.by_file.get(&key).cloned().unwrap_or_default();
        for dirty_fd in &fds {
            self.unflushed.remove(&dirty_fd.number);
        }
        DirtySet { key, fds }
    }
}

impl DirtySet {
    /// What to flush.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.fds.iter().map(|dirty_fd| &*dirty_fd.fd)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// By how many this descriptor is held on account of the set.
    pub(crate) fn holders(&self, fd: &Arc<OwnedFd>) -> usize {
        // The list's and this one.
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
    fn the_first_descriptor_is_held_until_a_flush_that_began_later_has_ended() {
        let (dirty, first, second) = (DirtyFiles::new(2), open(), open());
        assert!(dirty.mark_dirty(A, &first).is_none() && dirty.mark_dirty(A, &second).is_none());
        let set = dirty.begin_flush(A);
        assert!(is(&set, &[&first]), "it was there before either write");
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
    fn the_oldest_is_flushed_if_too_many_owe() {
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
    fn what_is_written_to_is_not_idle_and_the_others_are_flushed_one_by_one() {
        let (dirty, hour) = (DirtyFiles::new(8), Duration::from_secs(3600));
        let write = |key| assert!(dirty.mark_dirty(key, &open()).is_none());
        write(A);
        write(B);
        assert!(dirty.begin_idle_flush(hour).is_none(), "both were written to just now");
        dirty.lock().unflushed.values_mut().for_each(|unflushed| unflushed.written_at -= hour);
        write(A);
        let set = dirty.begin_idle_flush(hour).unwrap();
        assert_eq!((set.key, owing(&dirty)), (B, (2, 1)));
        write(B);
        assert!(dirty.begin_idle_flush(hour).is_none(), "A was written to, and B again while it is flushed");
        dirty.end_flush(set);
        let others = [dirty.begin_idle_flush(Duration::ZERO), dirty.begin_idle_flush(Duration::ZERO)];
        assert_eq!(others.each_ref().map(|other| other.as_ref().unwrap().key), [A, B]);
        assert!(dirty.begin_idle_flush(Duration::ZERO).is_none());
        others.into_iter().flatten().for_each(|other| dirty.end_flush(other));
        assert_eq!(owing(&dirty), (0, 0));
    }

    #[test]
    fn what_was_removed_owes_nothing() {
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
    fn what_cannot_be_looked_at_owes_as_before() {
        let (dirty, fd) = (DirtyFiles::new(8), open());
        assert!(dirty.mark_dirty(A, &fd).is_none());
        assert!(!dirty.close_removed(|_| Err(Errno::IO)));
        assert!(is(&dirty.begin_flush(A), &[&fd]));
    }
}
