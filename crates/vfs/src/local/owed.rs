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

use super::ids::Key;
use super::looking::{self, Open};

/// What nobody has written to for so long is flushed though nobody commits it: open for writing it could not be run as
/// a program, nor its file system be made read-only. Clients that are alive commit sooner. By then the kernel has
/// begun to write it back by itself (after 30 s, looking every 5 s), so the flush finds little to do.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Owed {
    state: Mutex<State>,
    max: usize,
}

#[derive(Default)]
struct State {
    by_file: HashMap<Key, Vec<Debt>>,
    /// Those that nobody is flushing, one a file at most, the oldest first.
    unpaid: BTreeMap<u64, Unpaid>,
    next: u64,
}

#[derive(Clone)]
struct Debt {
    number: u64,
    fd: Arc<OwnedFd>,
}

struct Unpaid {
    key: Key,
    /// When the file was last written to.
    touched: Instant,
}

/// What a file owes, while it is being flushed.
#[must_use]
pub(super) struct Payment {
    key: Key,
    debts: Vec<Debt>,
}

impl Owed {
    /// At most `max` files owe (range: from 1), beside those that are being flushed.
    pub(super) fn new(max: usize) -> Owed {
        Owed { state: Mutex::default(), max: max.max(1) }
    }

    /// The file was written to by `fd`, by somebody who has kept others from writing to it until now. If too
    /// many owe then, the oldest is to be flushed.
    #[must_use]
    pub(super) fn note(&self, key: Key, fd: &Arc<OwnedFd>) -> Option<Payment> {
        let mut state = self.lock();
        state.note(key, fd);
        if state.unpaid.len() <= self.max {
            return None;
        }
        let (_, oldest) = state.unpaid.pop_first()?;
        Some(state.begin(oldest.key))
    }

    /// A flush begins now of a file that nobody has written to for as long as `idle`, if there is one.
    pub(super) fn begin_idle(&self, idle: Duration) -> Option<Payment> {
        let mut state = self.lock();
        let now = Instant::now();
        let key = state.unpaid.values().find(|unpaid| now.saturating_duration_since(unpaid.touched) >= idle)?.key;
        Some(state.begin(key))
    }

    /// A flush of the file begins now.
    pub(super) fn begin(&self, key: Key) -> Payment {
        self.lock().begin(key)
    }

    /// It has ended. If it failed, too: the verifier tells of all that was written before.
    pub(super) fn end(&self, payment: Payment) {
        let mut state = self.lock();
        if let Some(debts) = state.by_file.get_mut(&payment.key) {
            debts.retain(|debt| payment.debts.iter().all(|paid| paid.number != debt.number));
            if debts.is_empty() {
                state.by_file.remove(&payment.key);
            }
        }
    }

    /// The file is gone, and owes nothing to anybody.
    pub(super) fn forget(&self, key: Key) {
        let mut state = self.lock();
        let last = state.begin(key);
        state.by_file.remove(&key);
        drop(state);
        // Here, without the lock: it may give back much room.
        drop(last);
    }

    /// Closes what has no name any more, as its `links` tell; whether there was any. What cannot be looked at owes
    /// as before: if it were closed and its data lost, nobody would be told.
    pub(super) fn close_removed(&self, links: impl Fn(&OwnedFd) -> Result<u32>) -> bool {
        let open = self.lock().open();
        let gone = looking::select(open, |fd| links(fd) == Ok(0));
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
    fn open(&self) -> Vec<Open<Key>> {
        let debts = self.by_file.iter().flat_map(|(key, debts)| debts.iter().map(|debt| Open::new(*key, &debt.fd)));
        debts.collect()
    }

    /// The file is gone, if it still owes by this descriptor: what is to be closed.
    fn forget(&mut self, gone: &Open<Key>) -> Option<Vec<Debt>> {
        let owes = self.by_file.get(&gone.key)?.iter().any(|debt| gone.is(&debt.fd));
        let debts = if owes { self.by_file.remove(&gone.key)? } else { return None };
        for debt in &debts {
            self.unpaid.remove(&debt.number);
        }
        Some(debts)
    }

    fn note(&mut self, key: Key, fd: &Arc<OwnedFd>) {
        let (debts, touched) = (self.by_file.entry(key).or_default(), Instant::now());
        if let Some(unpaid) = debts.last().and_then(|last| self.unpaid.get_mut(&last.number)) {
            unpaid.touched = touched;
            return;
        }
        // What is being flushed may not cover this any more.
        debts.push(Debt { number: self.next, fd: fd.clone() });
        self.unpaid.insert(self.next, Unpaid { key, touched });
        self.next += 1;
    }

    fn begin(&mut self, key: Key) -> Payment {
        let debts = self.by_file.get(&key).cloned().unwrap_or_default();
        for debt in &debts {
            self.unpaid.remove(&debt.number);
        }
        Payment { key, debts }
    }
}

impl Payment {
    /// What to flush.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.debts.iter().map(|debt| &*debt.fd)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.debts.is_empty()
    }

    /// By how many this descriptor is held on account of the payment.
    pub(super) fn holders(&self, fd: &Arc<OwnedFd>) -> usize {
        // The list's and this one.
        2 * self.debts.iter().filter(|debt| Arc::ptr_eq(&debt.fd, fd)).count()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::io::Errno;

    use super::super::stat;
    use super::*;

    const A: Key = Key { ino: 1, born_ns: 0 };
    const B: Key = Key { ino: 2, born_ns: 0 };

    fn open() -> Arc<OwnedFd> {
        Arc::new(File::open("/dev/null").unwrap().into())
    }

    fn is(payment: &Payment, wanted: &[&Arc<OwnedFd>]) -> bool {
        payment.debts.iter().map(|debt| Arc::as_ptr(&debt.fd)).eq(wanted.iter().map(|fd| Arc::as_ptr(fd)))
    }

    fn owing(owed: &Owed) -> (usize, usize) {
        let state = owed.lock();
        (state.by_file.values().map(Vec::len).sum(), state.unpaid.len())
    }

    #[test]
    fn the_first_descriptor_is_held_until_a_flush_that_began_later_has_ended() {
        let (owed, first, second) = (Owed::new(2), open(), open());
        assert!(owed.note(A, &first).is_none() && owed.note(A, &second).is_none());
        let payment = owed.begin(A);
        assert!(is(&payment, &[&first]), "it was there before either write");
        assert_eq!((payment.holders(&first), Arc::strong_count(&first)), (2, 3));
        assert_eq!((payment.holders(&second), Arc::strong_count(&second)), (0, 1));
        assert!(owed.note(A, &second).is_none(), "written after the flush began");
        let other = owed.begin(A);
        assert!(is(&other, &[&first, &second]), "the first flush has not ended");
        owed.end(payment);
        assert_eq!(owing(&owed), (1, 0));
        owed.end(other);
        assert_eq!((owing(&owed), Arc::strong_count(&first), Arc::strong_count(&second)), ((0, 0), 1, 1));
        assert!(owed.begin(A).is_empty());
    }

    #[test]
    fn the_oldest_is_flushed_if_too_many_owe() {
        let owed = Owed::new(1);
        assert!(owed.note(A, &open()).is_none());
        let oldest = owed.note(B, &open()).unwrap();
        assert_eq!((oldest.key, owing(&owed)), (A, (2, 1)));
        let written_meanwhile = owed.note(A, &open()).unwrap();
        assert_eq!((written_meanwhile.key, owing(&owed)), (B, (3, 1)));
        owed.end(oldest);
        owed.end(written_meanwhile);
        assert_eq!(owing(&owed), (1, 1));
        owed.forget(A);
        assert_eq!(owing(&owed), (0, 0));
    }

    #[test]
    fn what_is_written_to_is_not_idle_and_the_others_are_flushed_one_by_one() {
        let (owed, hour) = (Owed::new(8), Duration::from_secs(3600));
        let write = |key| assert!(owed.note(key, &open()).is_none());
        write(A);
        write(B);
        assert!(owed.begin_idle(hour).is_none(), "both were written to just now");
        owed.lock().unpaid.values_mut().for_each(|unpaid| unpaid.touched -= hour);
        write(A);
        let payment = owed.begin_idle(hour).unwrap();
        assert_eq!((payment.key, owing(&owed)), (B, (2, 1)));
        write(B);
        assert!(owed.begin_idle(hour).is_none(), "A was written to, and B again while it is flushed");
        owed.end(payment);
        let others = [owed.begin_idle(Duration::ZERO), owed.begin_idle(Duration::ZERO)];
        assert_eq!(others.each_ref().map(|other| other.as_ref().unwrap().key), [A, B]);
        assert!(owed.begin_idle(Duration::ZERO).is_none());
        others.into_iter().flatten().for_each(|other| owed.end(other));
        assert_eq!(owing(&owed), (0, 0));
    }

    #[test]
    fn what_was_removed_owes_nothing() {
        let (owed, dir) = (Owed::new(8), tempfile::tempdir().unwrap());
        for key in [A, B] {
            let path = dir.path().join(key.ino.to_string());
            assert!(owed.note(key, &Arc::new(File::create(path).unwrap().into())).is_none());
        }
        let close_removed = || owed.close_removed(|fd| stat::links(fd));
        assert!(!close_removed());
        std::fs::remove_file(dir.path().join("1")).unwrap();
        assert!(close_removed());
        assert_eq!(owing(&owed), (1, 1));
        assert!(owed.begin(A).is_empty() && !owed.begin(B).is_empty());
    }

    #[test]
    fn what_cannot_be_looked_at_owes_as_before() {
        let (owed, fd) = (Owed::new(8), open());
        assert!(owed.note(A, &fd).is_none());
        assert!(!owed.close_removed(|_| Err(Errno::IO)));
        assert!(is(&owed.begin(A), &[&fd]));
    }
}
