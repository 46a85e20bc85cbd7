//! Locks on inodes, which make "attributes before, operation, attributes after" atomic.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

const STRIPES: usize = 256;

/// Striped locks: inode numbers with the same remainder share one. Not held while the disk flushes.
pub(crate) struct InodeLocks(Vec<Mutex<()>>);

/// Locks of several inodes, held.
pub(crate) type InodeGuards<'a> = Vec<MutexGuard<'a, ()>>;

impl InodeLocks {
    pub(crate) fn new() -> InodeLocks {
        InodeLocks((0..STRIPES).map(|_| Mutex::new(())).collect())
    }

    /// Locks these inode numbers, in an order that is the same for all callers.
    pub(crate) fn lock(&self, inos: &[u64]) -> InodeGuards<'_> {
        let mut stripes: Vec<usize> = inos.iter().map(|ino| stripe(*ino)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|s| self.0[s].lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Locks `other` for a caller that holds only the lock of `held`. Returns false instead of waiting, because waiting
    /// out of order could deadlock.
    pub(crate) fn try_lock_too<'a>(&'a self, guards: &mut InodeGuards<'a>, held: u64, other: u64) -> bool {
        if stripe(held) == stripe(other) {
            return true;
        }
        match self.0[stripe(other)].try_lock() {
            Ok(guard) => guards.push(guard),
            Err(TryLockError::Poisoned(poisoned)) => guards.push(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }
}

fn stripe(ino: u64) -> usize {
    (ino % STRIPES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_lock_too_never_waits_out_of_order() {
        let (a, same, b) = (1, 1 + STRIPES as u64, 2);
        let locks = InodeLocks::new();
        let mut guards = locks.lock(&[a]);
        assert!(locks.try_lock_too(&mut guards, a, same), "the same stripe");
        assert!(locks.try_lock_too(&mut guards, a, b), "a free stripe");
        let mut others = Vec::new();
        assert!(!locks.try_lock_too(&mut others, same, b), "a stripe that is held");
        drop(guards);
        assert!(locks.try_lock_too(&mut others, same, b), "a stripe that was released");
    }
}
