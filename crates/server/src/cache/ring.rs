//! Slots used round robin and found by key: the store of the caches of 1989.

use std::collections::BTreeMap;

use super::key::XidKey;

/// The bytes of a slot and its key in the index, without what the value owns.
const SLOT_OVERHEAD: usize = 256;

#[derive(Debug)]
pub(super) struct Ring<T> {
    slots: Vec<(XidKey, T)>,
    index: BTreeMap<XidKey, usize>,
    next: usize,
    max: usize,
}

impl<T> Ring<T> {
    /// A ring of `max` free slots.
    pub(super) fn new(max: usize) -> Ring<T> {
        Ring { slots: Vec::new(), index: BTreeMap::new(), next: 0, max }
    }

    pub(super) fn find(&self, key: &XidKey) -> Option<usize> {
        self.index.get(key).copied()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slots.get_mut(at).map(|(_, value)| value)
    }

    /// Puts `value` into the next slot that is free or whose value `may_go`. `None` if there is none. `key` must be
    /// new.
    pub(super) fn insert(&mut self, key: XidKey, value: T, may_go: impl Fn(&T) -> bool) -> Option<usize> {
        let at = if self.slots.len() < self.max {
            self.slots.push((key, value));
            self.slots.len() - 1
        } else {
            let at = (0..self.max).map(|i| (self.next + i) % self.max).find(|i| may_go(&self.slots[*i].1))?;
            self.next = (at + 1) % self.max;
            let (old, _) = std::mem::replace(&mut self.slots[at], (key, value));
            self.index.remove(&old);
            at
        };
        self.index.insert(key, at);
        Some(at)
    }

    /// Bytes held; `of` returns what a value owns.
    pub(super) fn bytes(&self, of: impl Fn(&T) -> usize) -> usize {
        self.slots.iter().map(|(_, v)| SLOT_OVERHEAD + of(v)).sum()
    }
}
