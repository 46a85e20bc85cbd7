//! What is kept open, and what gives way to what.
//!
//! Most of it can be opened again, and the one that was used last gives way to nobody. What could not (the server is not
//! root, and the mode does not let the owner) is kept apart: no traffic with other files pushes it out, for then whoever
//! is about to fill it could not go on. Only where there are too many of its kind does the one go that was not used for
//! longest.

use std::hash::Hash;

use super::recent::{Forgotten, Recent};

/// See the module.
pub(super) struct Kept<K, V> {
    usual: Recent<K, V>,
    /// What could not be opened again.
    irreplaceable: Recent<K, V>,
}

impl<K: Hash + Eq + Copy, V> Kept<K, V> {
    /// Holds at most `limit` entries (at least 2), and `irreplaceable` others (likewise) of which that is so.
    pub(super) fn new(limit: usize, irreplaceable: usize) -> Kept<K, V> {
        Kept { usual: Recent::new(limit), irreplaceable: Recent::new(irreplaceable) }
    }

    /// The entry, and what was forgotten for it.
    pub(super) fn get_and_forget(&mut self, key: &K) -> (Option<&mut V>, Forgotten<K, V>) {
        let place = if self.irreplaceable.has(key) { &mut self.irreplaceable } else { &mut self.usual };
        place.get_and_forget(key)
    }

    /// Returns what was forgotten for it.
    pub(super) fn insert(&mut self, key: K, value: V, opens_again: bool) -> Forgotten<K, V> {
        let (place, other) = match opens_again {
            true => (&mut self.usual, &mut self.irreplaceable),
            false => (&mut self.irreplaceable, &mut self.usual),
        };
        let same = other.remove(&key);
        place.insert(key, value).and(same)
    }

    /// From now on the entry, if there is one, could not be opened again. Returns what was forgotten for it.
    pub(super) fn spare(&mut self, key: K) -> Option<Forgotten<K, V>> {
        let value = self.usual.remove(&key)?;
        Some(self.irreplaceable.insert(key, value))
    }

    /// All, in any order; none counts as used for that.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.usual.iter().chain(self.irreplaceable.iter())
    }

    /// Forgets the entry if `which` says so of it.
    pub(super) fn remove_if(&mut self, key: &K, which: impl FnOnce(&V) -> bool) -> Option<V> {
        let place = if self.irreplaceable.has(key) { &mut self.irreplaceable } else { &mut self.usual };
        place.remove_if(key, which)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.usual.remove(key).or_else(|| self.irreplaceable.remove(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is there, of the first so many.
    fn there(kept: &Kept<u32, &'static str>, first: u32) -> Vec<u32> {
        let mut there: Vec<_> = kept.iter().map(|(key, _)| *key).filter(|key| *key < first).collect();
        there.sort_unstable();
        there
    }

    #[test]
    fn what_could_not_be_opened_again_gives_way_to_its_like_alone_and_both_bounds_hold() {
        let mut kept = Kept::new(4, 8);
        for key in 0..4 {
            kept.insert(key, "made", false);
        }
        for key in 100..200 {
            kept.insert(key, "passing", true);
            assert!(kept.iter().count() <= 4 + 4);
        }
        assert_eq!(there(&kept, 4), [0, 1, 2, 3]);
        for key in 200..300 {
            kept.insert(key, "made", false);
            assert_eq!(kept.get_and_forget(&0).0.copied(), Some("made"), "it is used");
            assert!(kept.iter().count() <= 4 + 8);
        }
        assert_eq!(there(&kept, 4), [0]);
    }

    #[test]
    fn an_entry_is_there_once_whichever_it_is() {
        let mut kept = Kept::new(4, 4);
        kept.insert(0, "usual", true);
        let forgotten: Vec<_> = kept.insert(0, "made", false).into_values().collect();
        assert_eq!((forgotten, kept.iter().count()), (vec!["usual"], 1));
        let forgotten: Vec<_> = kept.insert(0, "opened", true).into_values().collect();
        assert_eq!((forgotten, kept.iter().count()), (vec!["made"], 1));
        assert!(kept.spare(0).is_some() && kept.spare(0).is_none() && kept.spare(1).is_none());
        (100..200).for_each(|key| drop(kept.insert(key, "passing", true)));
        assert_eq!(kept.get_and_forget(&0).0.copied(), Some("opened"));
        assert_eq!(kept.remove_if(&0, |_| false), None);
        assert_eq!(kept.remove_if(&0, |_| true), Some("opened"));
        assert!(there(&kept, 1).is_empty());
        kept.insert(0, "made", false);
        assert_eq!((kept.remove(&0), kept.remove(&0)), (Some("made"), None));
    }
}
