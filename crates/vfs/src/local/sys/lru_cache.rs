//! Constructs bounded caches that evict the least recently used entry.

use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;

/// A cache of at most `limit` entries (range: from 1). It allocates as it fills.
pub(crate) fn lru_cache<K: Hash + Eq, V>(limit: usize) -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN));
    cache
}
