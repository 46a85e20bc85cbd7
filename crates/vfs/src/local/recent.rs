//! A bounded map that forgets what was not used for longest, roughly.

use std::collections::HashMap;
use std::hash::Hash;

/// Two generations: when the young one is full, it becomes the old one, and what is left of
/// the former old one is forgotten. What is used moves to the young one. So the most recently
/// used half is always kept, at the cost of one or two hash lookups.
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

/// What was forgotten. It is handed to whoever must not drop it while others wait.
pub(super) struct Forgotten<K, V> {
    /// What another one replaced.
    same: Option<V>,
    /// Those that there was no room for.
    oldest: Option<HashMap<K, V>>,
}

impl<K, V> Forgotten<K, V> {
    pub(super) fn into_values(self) -> impl Iterator<Item = V> {
        self.same.into_iter().chain(self.oldest.into_iter().flat_map(HashMap::into_values))
    }
}

impl<K: Hash + Eq + Copy, V> Recent<K, V> {
    /// Holds at most `limit` entries (at least 2).
    pub(super) fn new(limit: usize) -> Recent<K, V> {
        Recent { young: HashMap::new(), old: HashMap::new(), half: (limit / 2).max(1) }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        self.get_and_forget(key).0
    }

    /// The entry, and what was forgotten for it.
    pub(super) fn get_and_forget(&mut self, key: &K) -> (Option<&mut V>, Forgotten<K, V>) {
        let forgotten = match self.old.remove(key) {
            Some(value) => self.insert(*key, value),
            None => Forgotten { same: None, oldest: None },
        };
        (self.young.get_mut(key), forgotten)
    }

    /// Returns what was forgotten for it.
    pub(super) fn insert(&mut self, key: K, value: V) -> Forgotten<K, V> {
        let same = self.old.remove(&key);
        let full = self.young.len() >= self.half && !self.young.contains_key(&key);
        let oldest = full.then(|| std::mem::replace(&mut self.old, std::mem::take(&mut self.young)));
        Forgotten { same: self.young.insert(key, value).or(same), oldest }
    }

    /// All, in any order; none counts as used for that.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old)
    }

    /// Forgets the entry if `which` says so of it.
    pub(super) fn remove_if(&mut self, key: &K, which: impl FnOnce(&V) -> bool) -> Option<V> {
        let is_meant = self.young.get(key).or_else(|| self.old.get(key)).is_some_and(which);
        if is_meant { self.remove(key) } else { None }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_bound_holds() {
        let mut map = Recent::new(10);
        map.insert(0, "kept");
        for i in 1..1000 {
            map.insert(i, "passing");
            assert!(map.get(&0).is_some(), "after {i}");
            assert!(map.young.len() + map.old.len() <= 10);
        }
        assert!(map.get(&500).is_none());
        assert_eq!(map.remove(&0), Some("kept"));
        assert!(map.get(&0).is_none());
    }
}
