//! How many searches for objects there are at once.
//!
//! Who asks for an object that must be searched for has a thread of the server's do nothing else meanwhile.
//! A short search is anybody's; of long ones there are few, so that threads are left for those who ask for what
//! is where it was.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

use remora_wire::nfs3::Status;

use crate::Result;

/// Long searches at once.
const LONG_MAX: usize = 2;
/// What a search may look at before it is a long one, in entries: that takes some tens of milliseconds.
const SHORT: usize = 100_000;
/// To open a directory takes as long as to look at so many entries.
pub(super) const DIRECTORY: usize = 16;

/// The searches under way.
#[derive(Default)]
pub(super) struct Searches {
    long: AtomicUsize,
    alone: Mutex<()>,
}

impl Searches {
    /// For who looks at a great many entries, one at a time. [`Status::Jukebox`] if somebody else does.
    pub(super) fn alone(&self) -> Result<MutexGuard<'_, ()>> {
        match self.alone.try_lock() {
            Ok(alone) => Ok(alone),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Status::Jukebox),
        }
    }

    fn long(&self) -> Result<Long<'_>> {
        let more = |running| (running < LONG_MAX).then_some(running + 1);
        self.long.fetch_update(Relaxed, Relaxed, more).map_err(|_| Status::Jukebox)?;
        Ok(Long(&self.long))
    }
}

/// Leave to search for long, while it lives.
struct Long<'a>(&'a AtomicUsize);

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What one search has done so far.
pub(super) struct Effort<'a> {
    searches: &'a Searches,
    long: Option<Long<'a>>,
    spent: usize,
}

impl<'a> Effort<'a> {
    pub(super) fn new(searches: &'a Searches) -> Effort<'a> {
        Effort { searches, long: None, spent: 0 }
    }

    /// It looks at so many more entries. [`Status::Jukebox`] if it becomes a long search and there are enough.
    pub(super) fn spend(&mut self, entries: usize) -> Result<()> {
        self.spent = self.spent.saturating_add(entries);
        if self.spent > SHORT && self.long.is_none() {
            self.long = Some(self.searches.long()?);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn spent(&self) -> usize {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_searches_there_are_few_at_once() {
        let searches = Searches::default();
        let after = |entries| {
            let mut effort = Effort::new(&searches);
            effort.spend(entries).map(|()| effort)
        };
        let mut long: Vec<_> = (0..LONG_MAX).map(|_| after(SHORT + 1).unwrap()).collect();
        assert_eq!(after(SHORT + 1).err(), Some(Status::Jukebox));
        assert!(after(SHORT).is_ok(), "a short one");
        assert_eq!(long[0].spend(SHORT), Ok(()), "it has begun");
        long.pop();
        assert!(after(SHORT + 1).is_ok());
    }
}
