//! Where objects are: the names under which they were last seen.
//!
//! A bounded memory, not the truth. What it says is checked when it is used; what it forgot is
//! searched for.

use std::time::{Duration, Instant};

use super::ids::{Hint, Key};
use super::recent::Recent;

/// Directories above one another, at most.
const DEPTH_MAX: usize = 4096;
/// Objects remembered as not to be found.
const MISSING_MAX: usize = 4096;
/// How long an object that a search did not find is not searched for again: it may have been
/// moved into the tree from outside, but searches are dear.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// And how many times as long as the search took, at least.
const MISSING_TIMES: u32 = 60;

struct Place {
    parent: Key,
    name: Box<[u8]>,
    /// The hint in the object's id. It stays when the object moves, so that the id does too.
    hint: Hint,
}

/// See the module.
pub(super) struct Table {
    root: Key,
    places: Recent<Key, Place>,
    /// Until when not to search; `None` for objects that were removed.
    missing: Recent<Key, Option<Instant>>,
}

impl Table {
    pub(super) fn new(root: Key, limit: usize) -> Table {
        Table { root, places: Recent::new(limit), missing: Recent::new(MISSING_MAX) }
    }

    /// `key` is `name` in `parent`. Returns the hint for its id: `hint`, unless it has one.
    pub(super) fn put(&mut self, key: Key, parent: Key, name: &[u8], hint: Hint) -> Hint {
        self.missing.remove(&key);
        if let Some(place) = self.places.get(&key) {
            place.parent = parent;
            if *place.name != *name {
                place.name = name.into();
            }
            return place.hint;
        }
        self.places.insert(key, Place { parent, name: name.into(), hint });
        hint
    }

    /// The names that lead from the root to `key`; `None` if any is forgotten.
    pub(super) fn path(&mut self, key: Key) -> Option<Vec<Box<[u8]>>> {
        let mut names = Vec::new();
        let mut at = key;
        while at != self.root {
            let place = self.places.get(&at)?;
            names.push(place.name.clone());
            at = place.parent;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some(names)
    }

    /// The directory `key` is in, and its name there.
    pub(super) fn place(&mut self, key: Key) -> Option<(Key, Box<[u8]>)> {
        self.places.get(&key).map(|place| (place.parent, place.name.clone()))
    }

    /// The directory `key` is in, and the hint in that directory's id.
    pub(super) fn parent(&mut self, key: Key) -> Option<(Key, Hint)> {
        let parent = self.places.get(&key)?.parent;
        if parent == self.root {
            return Some((parent, Hint::default()));
        }
        let hint = self.places.get(&parent)?.hint;
        Some((parent, hint))
    }

    /// The hint for what is in `dir`, from where `dir` is now; if that is forgotten, from
    /// `known`, the hint in the id of `dir`.
    pub(super) fn hint_in(&mut self, dir: Key, known: Hint) -> Hint {
        let mut way = Vec::new();
        let mut at = dir;
        while at != self.root {
            way.push(at.ino);
            match self.places.get(&at) {
                Some(place) if way.len() <= DEPTH_MAX => at = place.parent,
                _ => return known.below(dir.ino),
            }
        }
        way.iter().rev().fold(Hint::default(), |hint, ino| hint.below(*ino))
    }

    /// `key` is not where it was.
    pub(super) fn forget(&mut self, key: Key) {
        self.places.remove(&key);
    }

    /// `key` has lost a name but lives on under another.
    pub(super) fn forget_name(&mut self, key: Key, parent: Key, name: &[u8]) {
        if self.places.get(&key).is_some_and(|place| place.parent == parent && *place.name == *name) {
            self.places.remove(&key);
        }
    }

    /// `key` was removed.
    pub(super) fn removed(&mut self, key: Key) {
        self.places.remove(&key);
        self.missing.insert(key, None);
    }

    /// A search that took so long did not find `key`.
    pub(super) fn not_found(&mut self, key: Key, took: Duration) {
        self.missing.insert(key, Some(Instant::now() + MISSING_FOR.max(took * MISSING_TIMES)));
    }

    /// Whether it is pointless to search for `key`.
    pub(super) fn is_missing(&mut self, key: Key) -> bool {
        match self.missing.get(&key) {
            Some(None) => true,
            Some(Some(until)) => Instant::now() < *until,
            None => false,
        }
    }
}
