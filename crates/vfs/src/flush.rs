//! Changes now, stable storage a moment later: what makes group commit possible.
//!
//! Whoever wants to wait for a disk only once for many changes works on the view that
//! [`Vfs::deferring`](crate::Vfs::deferring) gives. It does the changes at once and notes in a
//! [`Ledger`] what must be flushed before they may be called stable. Changes whose flushes
//! have the same [`FlushKey`] are served by one of them, as long as it begins after them all.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Result;

/// Which flushes do the work of one another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlushKey {
    /// The file system, by a number that no other has while this one lives.
    pub disk: u64,
    /// What of it, in the file system's own words.
    pub object: u128,
    /// How thoroughly, likewise.
    pub depth: u8,
}

/// How a file system does a flush.
pub trait Flushing: Any + Send + Sync {
    /// Which flushes this one can stand in for.
    fn key(&self) -> FlushKey;

    /// Whether one takes so much longer than the changes it is for that it pays to wait a moment for
    /// more of them.
    fn is_dear(&self) -> bool;

    /// Puts on stable storage what this flush and `others`, which have the same key, are to. Blocks.
    fn run(&self, others: &[&Flush]) -> Result<()>;

    /// Fails if a flush has failed since the change was begun that this one is for: what that
    /// flush lost may be this change, and the system tells only once.
    fn verdict(&self) -> Result<()>;
}

/// What a change still owes to stable storage.
pub struct Flush(Box<dyn Flushing>);

impl Flush {
    /// Around a file system's own.
    pub fn new(flushing: impl Flushing + 'static) -> Flush {
        Flush(Box::new(flushing))
    }

    /// Which flushes this one can stand in for.
    pub fn key(&self) -> FlushKey {
        self.0.key()
    }

    /// Whether it pays to wait a moment for more changes that can share this one.
    pub fn is_dear(&self) -> bool {
        self.0.is_dear()
    }

    /// Does this one, for `others` that have the same key, too. Blocks. Each of
    /// them then has to ask for its own [`verdict`](Flush::verdict).
    pub fn run(&self, others: &[&Flush]) -> Result<()> {
        self.0.run(others)
    }

    /// The file system's own, if it is one of those. Flushes with the same [key](Flush::key) are of one kind.
    pub fn flushing<T: Flushing>(&self) -> Option<&T> {
        let flushing: &dyn Any = &*self.0;
        flushing.downcast_ref()
    }

    /// Whether the change is stable, now that a flush with its key which began after it has
    /// come to `shared`.
    pub fn verdict(&self, shared: Result<()>) -> Result<()> {
        shared.and_then(|()| self.0.verdict())
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

/// Where flushes are noted, in the order they are to be done.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Vec<Flush>>);

impl Ledger {
    /// Adds one at the end.
    pub fn note(&self, flush: Flush) {
        self.lock().push(flush);
    }

    /// Takes all of them.
    pub fn take(&self) -> Vec<Flush> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Flush>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
