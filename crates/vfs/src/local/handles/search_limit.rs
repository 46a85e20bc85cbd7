//! How many searches for objects there are at once.
//!
//! Who asks for an object that must be searched for has a thread of the server's do nothing else meanwhile.
//! A short search is anybody's; of long ones there are few, so that threads are left for those who ask for what
//! is where it was.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

use remora_wire::nfs3::Status;

use crate::Result;

/// LongSearch searches at once.
const LONG_MAX: usize = 2;
/// What a search may look at before it is a long one, in entries: that takes some tens of milliseconds.
const SHORT_MAX: usize = 100_000;
/// To open a directory takes as long as to look at so many entries.
pub(crate) const DIR_COST: usize = 16;

/// The searches under way.
#[derive(Default)]
pub(crate) struct SearchLimit {
    long: AtomicUsize,
    exclusive: Mutex<()>,
}

impl SearchLimit {
    /// OpenMode who looks at a great many entries, one at a time. [`Status::Jukebox`] if somebody else does.
    pub(crate) fn exclusive(&self) -> Result<MutexGuard<'_, ()>> {
        match self.exclusive.try_lock() {
            Ok(exclusive) => Ok(exclusive),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Status::Jukebox),
        }
    }

    fn long(&self) -> Result<LongSearch<'_>> {
        let more = |running| (running < LONG_MAX).then_some(running + 1);
        self.long.fetch_update(Relaxed, Relaxed, more).map_err(|_| Status::Jukebox)?;
        Ok(LongSearch(&self.long))
    }
}

/// Leave to search for long, while it lives.
struct LongSearch<'a>(&'a AtomicUsize);

impl Drop for LongSearch<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What one search has done so far.
pub(crate) struct SearchBudget<'a> {
    searches: &'a SearchLimit,
    long: Option<LongSearch<'a>>,
    spent: usize,
}

impl<'a> SearchBudget<'a> {
    pub(crate) fn new(searches: &'a SearchLimit) -> SearchBudget<'a> {
        SearchBudget { searches, long: None, spent: 0 }
    }

    /// It looks at so many more entries. [`Status::Jukebox`] if it becomes a long search and there are enough.
    pub(crate) fn spend(&mut self, entries: usize) -> Result<()> {
        self.spent = self.spent.saturating_add(entries);
        if self.spent > SHORT_MAX && self.long.is_none() {
            self.long = Some(self.searches.long()?);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn spent(&self) -> usize {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_searches_there_are_few_at_once() {
        let searches = SearchLimit::default();
        let after = |entries| {
            let mut budget = SearchBudget::new(&searches);
            budget.spend(entries).map(|()| budget)
        };
        let mut long: Vec<_> = (0..LONG_MAX).map(|_| after(SHORT_MAX + 1).unwrap()).collect();
        assert_eq!(after(SHORT_MAX + 1).err(), Some(Status::Jukebox));
        assert!(after(SHORT_MAX).is_ok(), "a short one");
        assert_eq!(long[0].spend(SHORT_MAX), Ok(()), "it has begun");
        long.pop();
        assert!(after(SHORT_MAX + 1).is_ok());
    }
}
