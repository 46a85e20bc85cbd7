//! Bounds on concurrent searches.
//!
//! A search occupies one executor thread. Short searches are unlimited; of long ones only a few run at a time, so that
//! threads remain for requests whose objects need no search.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

use remora_wire::nfs3::Status;

use crate::types::Result;

/// Most long searches at a time.
const LONG_MAX: usize = 2;
/// A search is long beyond this many entries, which take some tens of milliseconds.
const SHORT_MAX: usize = 100_000;
/// The cost of opening a directory, in entries.
pub(crate) const DIR_COST: usize = 16;

/// The searches of an export that are running.
#[derive(Default)]
pub(crate) struct SearchLimit {
    long: AtomicUsize,
    exclusive: Mutex<()>,
}

impl SearchLimit {
    /// Permission to examine very many entries, for one search at a time. Fails with [`Status::Jukebox`] if another has
    /// it.
    pub(crate) fn exclusive(&self) -> Result<MutexGuard<'_, ()>> {
        match self.exclusive.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Status::Jukebox),
        }
    }

    fn begin_long(&self) -> Result<LongSearch<'_>> {
        let more = |running| (running < LONG_MAX).then_some(running + 1);
        self.long.fetch_update(Relaxed, Relaxed, more).map_err(|_| Status::Jukebox)?;
        Ok(LongSearch(&self.long))
    }
}

/// Permission for a long search, while the value exists.
struct LongSearch<'a>(&'a AtomicUsize);

impl Drop for LongSearch<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The work of one search so far.
pub(crate) struct SearchBudget<'a> {
    limit: &'a SearchLimit,
    long: Option<LongSearch<'a>>,
    spent: usize,
}

impl<'a> SearchBudget<'a> {
    pub(crate) fn new(limit: &'a SearchLimit) -> SearchBudget<'a> {
        SearchBudget { limit, long: None, spent: 0 }
    }

    /// Accounts for `entries` more. Fails with [`Status::Jukebox`] if the search becomes long and too many are.
    pub(crate) fn spend(&mut self, entries: usize) -> Result<()> {
        self.spent = self.spent.saturating_add(entries);
        if self.spent > SHORT_MAX && self.long.is_none() {
            self.long = Some(self.limit.begin_long()?);
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
    fn long_searches_are_limited() {
        let limit = SearchLimit::default();
        let after = |entries| {
            let mut budget = SearchBudget::new(&limit);
            budget.spend(entries).map(|()| budget)
        };
        let mut long: Vec<_> = (0..LONG_MAX).map(|_| after(SHORT_MAX + 1).unwrap()).collect();
        assert_eq!(after(SHORT_MAX + 1).err(), Some(Status::Jukebox));
        assert!(after(SHORT_MAX).is_ok(), "a short search");
        assert_eq!(long[0].spend(SHORT_MAX), Ok(()), "a running long search");
        long.pop();
        assert!(after(SHORT_MAX + 1).is_ok(), "after another one ended");
    }
}
