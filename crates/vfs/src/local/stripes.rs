//! Locks that make "before, operation, after" one step.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ids::Key;

const STRIPES: usize = 256;

/// One lock for all objects whose inode numbers have the same remainder. Not held while
/// waiting for the disk to sync.
pub(super) struct Stripes(Vec<Mutex<()>>);

impl Stripes {
    pub(super) fn new() -> Stripes {
        Stripes((0..STRIPES).map(|_| Mutex::new(())).collect())
    }

    /// Locks these objects, in an order that is everybody's.
    pub(super) fn lock(&self, keys: &[Key]) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = keys.iter().map(|k| (k.ino % STRIPES as u64) as usize).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|s| self.0[s].lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }
}
