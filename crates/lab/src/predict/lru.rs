//! A cache of whole files that evicts the least recently used one.

use std::collections::BTreeMap;

/// Why a file is in the cache unread: the access that prefetched it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefetched {
    /// Number of that access.
    pub(super) access: usize,
    pub(super) at_ms: u64,
    pub(super) program: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CachedFile {
    pub(super) size: u64,
    pub(super) prefetched: Option<Prefetched>,
    stamp: u64,
}

#[derive(Debug)]
pub(super) struct LruCache {
    capacity: u64,
    used: u64,
    /// Bytes that were prefetched and not read yet.
    unread: u64,
    clock: u64,
    files: BTreeMap<usize, CachedFile>,
    order: BTreeMap<u64, usize>,
}

impl LruCache {
    pub(super) fn new(capacity: u64) -> LruCache {
        LruCache { capacity, used: 0, unread: 0, clock: 0, files: BTreeMap::new(), order: BTreeMap::new() }
    }

    pub(super) fn contains(&self, file: usize) -> bool {
        self.files.contains_key(&file)
    }

    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, file: usize) -> Option<CachedFile> {
        let cached = self.files.remove(&file)?;
        self.order.remove(&cached.stamp);
        self.used -= cached.size;
        if cached.prefetched.is_some() {
            self.unread -= cached.size;
        }
        Some(cached)
    }

    /// Adds or replaces a file as the most recently used one, and returns those that were evicted for it. A file that
    /// exceeds the cache is not added.
    pub(super) fn insert(&mut self, file: usize, size: u64, prefetched: Option<Prefetched>) -> Vec<CachedFile> {
        self.remove(file);
        if size > self.capacity {
            return Vec::new();
        }
        let mut evicted = Vec::new();
        while self.used + size > self.capacity {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            evicted.extend(self.remove(*oldest));
        }
        self.clock += 1;
        self.order.insert(self.clock, file);
        self.files.insert(file, CachedFile { size, prefetched, stamp: self.clock });
        self.used += size;
        if prefetched.is_some() {
            self.unread += size;
        }
        evicted
    }

    /// What is left in the cache.
    pub(super) fn into_files(self) -> impl Iterator<Item = CachedFile> {
        self.files.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_file_is_evicted_first() {
        let mut cache = LruCache::new(10);
        let prefetched = Some(Prefetched { access: 1, at_ms: 2, program: 0 });
        assert!(cache.insert(1, 4, None).is_empty() && cache.insert(2, 4, prefetched).is_empty());
        cache.insert(1, 4, None);
        assert_eq!(cache.unread(), 4);
        let evicted = cache.insert(3, 5, None);
        assert_eq!(evicted.iter().map(|file| (file.size, file.prefetched)).collect::<Vec<_>>(), [(4, prefetched)]);
        assert!(cache.contains(1) && !cache.contains(2) && cache.contains(3) && cache.unread() == 0);
    }

    #[test]
    fn file_above_the_capacity_is_not_kept() {
        let mut cache = LruCache::new(10);
        cache.insert(1, 5, None);
        assert!(cache.insert(2, 11, None).is_empty());
        assert!(cache.contains(1) && !cache.contains(2));
    }
}
