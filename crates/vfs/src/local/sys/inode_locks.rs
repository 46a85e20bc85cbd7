//! Locks that make "before, operation, after" one step.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::local::handles::file_id::InodeKey;

const STRIPES: usize = 256;

/// One lock for all objects whose inode numbers have the same remainder. Not held while
/// waiting for the disk to sync.
pub(crate) struct InodeLocks(Vec<Mutex<()>>);

impl InodeLocks {
    pub(crate) fn new() -> InodeLocks {
        InodeLocks((0..STRIPES).map(|_| Mutex::new(())).collect())
    }

    /// Locks these objects, in an order that is everybody's.
    pub(crate) fn lock(&self, keys: &[InodeKey]) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = keys.iter().map(|key| stripe(*key)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|s| self.0[s].lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Locks `other` as well for who has `held` locked alone, if nobody else has it: out of
    /// everybody's order nobody may wait.
    pub(crate) fn try_lock_too<'a>(
        &'a self,
        step: &mut Vec<MutexGuard<'a, ()>>,
        held: InodeKey,
        other: InodeKey,
    ) -> bool {
        if stripe(held) == stripe(other) {
            return true;
        }
        match self.0[stripe(other)].try_lock() {
            Ok(guard) => step.push(guard),
            Err(TryLockError::Poisoned(poisoned)) => step.push(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }
}

fn stripe(key: InodeKey) -> usize {
    (key.ino % STRIPES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_out_of_order() {
        let [a, same, b] = [1, 1 + STRIPES as u64, 2].map(|ino| InodeKey { ino, birth_ns: 0 });
        let stripes = InodeLocks::new();
        let mut step = stripes.lock(&[a]);
        assert!(stripes.try_lock_too(&mut step, a, same));
        assert!(stripes.try_lock_too(&mut step, a, b));
        let mut other = Vec::new();
        assert!(!stripes.try_lock_too(&mut other, same, b));
        drop(step);
        assert!(stripes.try_lock_too(&mut other, same, b));
    }
}
