//! Deferred flushes, which make group commit possible.
//!
//! A server that wants one disk flush for many changes works on the view of [`Vfs::deferring`](crate::Vfs::deferring).
//! The view applies changes at once and adds the flushes that they need to a [`Ledger`]. One flush serves all changes
//! with the same [`FlushKey`] that were made before it began.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::types::Result;

/// Identifies flushes that can stand in for each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlushKey {
    /// The file system: a number that is unique while it is open.
    pub disk: u64,
    /// What is flushed, in the file system's own terms.
    pub object: u128,
    /// How much is flushed, in the file system's own terms.
    pub depth: u8,
}

/// A flush of a file system.
pub trait Flushing: Any + Send + Sync {
    /// Identifies the flushes that this one can stand in for.
    fn key(&self) -> FlushKey;

    /// Whether the flush takes much longer than the changes that it serves, so that waiting for more of them pays.
    fn is_expensive(&self) -> bool;

    /// Puts the changes of this flush and of `others`, which have the same key, on stable storage. Blocks.
    fn run(&self, others: &[&Flush]) -> Result<()>;

    /// Fails if any flush failed since this change began. The failed flush may have lost this change, and the kernel
    /// reports a loss only once.
    fn verdict(&self) -> Result<()>;
}

/// A flush that a change still needs.
pub struct Flush(Box<dyn Flushing>);

impl Flush {
    /// Wraps the flush of a file system.
    pub fn new(flushing: impl Flushing + 'static) -> Flush {
        Flush(Box::new(flushing))
    }

    /// Identifies the flushes that this one can stand in for.
    pub fn key(&self) -> FlushKey {
        self.0.key()
    }

    /// Whether waiting for more changes that can share this flush pays.
    pub fn is_expensive(&self) -> bool {
        self.0.is_expensive()
    }

    /// Runs this flush, also for `others`, which have the same key. Blocks. Afterwards ask each of them for its own
    /// [`verdict`](Flush::verdict).
    pub fn run(&self, others: &[&Flush]) -> Result<()> {
        self.0.run(others)
    }

    /// The wrapped flush, if its type is `T`. Flushes with the same [key](Flush::key) have one type.
    pub fn flushing<T: Flushing>(&self) -> Option<&T> {
        let flushing: &dyn Any = &*self.0;
        flushing.downcast_ref()
    }

    /// Whether the change is stable, given the result `shared` of a flush with its key that began after the change.
    pub fn verdict(&self, shared: Result<()>) -> Result<()> {
        shared.and_then(|()| self.0.verdict())
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

/// The flushes of a request, in the order in which they must run.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Vec<Flush>>);

impl Ledger {
    /// Appends a flush.
    pub fn note(&self, flush: Flush) {
        self.lock().push(flush);
    }

    /// Removes and returns all flushes.
    pub fn take(&self) -> Vec<Flush> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Flush>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
