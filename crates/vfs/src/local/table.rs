//! Where objects are: the names under which they were last seen.
//!
//! A bounded memory, not the truth. What it says is checked when it is used; what it forgot is
//! searched for.

use std::time::{Duration, Instant};

use lru::LruCache;
use remora_wire::nfs3::Status;
use rustix::io::Errno;

use super::ids::{Hint, Key};
use super::lru_cache::lru_cache;

/// How deep a directory is, the root being at 0, that things are reached in: each time a way is gone it takes
/// as long as the way is.
pub(super) const DEPTH_MAX: usize = 4096;
/// Most objects remembered as not found.
const MISSING_MAX: usize = 1 << 18;
/// How long an object that a search did not find is not searched for again: it may have been
/// moved into the tree from outside, but searches are dear.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// And how many times as long as the search took, at least.
const MISSING_TIMES: u32 = 60;

/// Names of one object that are remembered, at most.
pub(super) const NAMES_MAX: usize = 2;

/// A name in a directory.
struct Name {
    parent: Key,
    name: Box<[u8]>,
}

impl Name {
    fn new(parent: Key, name: &[u8]) -> Name {
        Name { parent, name: name.into() }
    }

    fn is(&self, parent: Key, name: &[u8]) -> bool {
        self.parent == parent && *self.name == *name
    }
}

struct Place {
    name: Name,
    /// Another name of a file that has several: when it loses one, nobody need search for it. Boxed
    /// because few have one.
    also: Option<Box<Name>>,
    /// The hint in the object's id. It stays when the object moves, so that the id does too.
    hint: Hint,
}

impl Place {
    /// It was seen under this name; it may be there under the former one, too.
    fn seen(&mut self, parent: Key, name: &[u8]) {
        if self.name.is(parent, name) {
            return;
        }
        match &mut self.also {
            Some(also) if also.is(parent, name) => std::mem::swap(&mut self.name, also),
            also => {
                let former = std::mem::replace(&mut self.name, Name::new(parent, name));
                *also = Some(Box::new(former));
            }
        }
    }

    /// It has this name instead of the one it was last seen under.
    fn moved(&mut self, parent: Key, name: &[u8]) {
        self.name = Name::new(parent, name);
        self.also.take_if(|also| also.is(parent, name));
    }

    /// It has this name no more. False if no other one is known.
    fn lost(&mut self, parent: Key, name: &[u8]) -> bool {
        if !self.name.is(parent, name) {
            self.also.take_if(|also| also.is(parent, name));
            return true;
        }
        let also = self.also.take();
        also.map(|also| self.name = *also).is_some()
    }
}

/// See the module.
pub(super) struct Table {
    root: Key,
    places: LruCache<Key, Place>,
    /// Until when not to search, and what to say meanwhile; `None` for objects that were removed.
    missing: LruCache<Key, Option<(Instant, Status)>>,
}

impl Table {
    /// Keeps the `limit` places that were used last.
    pub(super) fn new(root: Key, limit: usize) -> Table {
        Table { root, places: lru_cache(limit), missing: lru_cache(MISSING_MAX) }
    }

    /// `key` is `name` in `parent`. Returns the hint for its id: `hint`, unless it has one.
    pub(super) fn put(&mut self, key: Key, parent: Key, name: &[u8], hint: Hint) -> Hint {
        self.missing.pop(&key);
        if let Some(place) = self.places.get_mut(&key) {
            place.seen(parent, name);
            return place.hint;
        }
        self.places.put(key, Place { name: Name::new(parent, name), also: None, hint });
        hint
    }

    /// `key` has got another name: `name` in `parent`. `hint` is that in its id.
    pub(super) fn linked(&mut self, key: Key, parent: Key, name: &[u8], hint: Hint) {
        match self.places.get_mut(&key) {
            Some(place) if place.name.is(parent, name) => {}
            Some(place) => place.also = Some(Box::new(Name::new(parent, name))),
            None => {
                self.put(key, parent, name, hint);
            }
        }
    }

    /// `key`, which was `from`, is `to` now: each a name and the directory it is in. `hint` is for
    /// its id, unless it has one.
    pub(super) fn moved(&mut self, key: Key, from: (Key, &[u8]), to: (Key, &[u8]), hint: Hint) {
        // A search that ran meanwhile may have missed it.
        self.missing.pop(&key);
        match self.places.get_mut(&key) {
            Some(place) if place.name.is(from.0, from.1) => place.moved(to.0, to.1),
            _ => {
                self.put(key, to.0, to.1, hint);
                self.forget_name(key, from.0, from.1);
            }
        }
    }

    /// The names that lead from the root to the directory `key`; as [`depth`](Table::depth).
    pub(super) fn path(&mut self, key: Key) -> rustix::io::Result<Vec<Box<[u8]>>> {
        let mut names = Vec::new();
        self.climb(key, |_, place| names.push(place.name.name.clone()))?;
        names.reverse();
        Ok(names)
    }

    /// How deep the directory `key` is. [`Errno::NOENT`] if any name on the way is forgotten, and
    /// [`Errno::NAMETOOLONG`] if it is deeper than [`DEPTH_MAX`].
    pub(super) fn depth(&mut self, key: Key) -> rustix::io::Result<usize> {
        self.climb(key, |_, _| ())
    }

    /// Goes up from `key`, handing what is on the way to `each`; how far it was.
    fn climb(&mut self, key: Key, mut each: impl FnMut(Key, &Place)) -> rustix::io::Result<usize> {
        let (mut at, mut depth, mut mark) = (key, 0_usize, key);
        while at != self.root {
            let place = self.places.get(&at).ok_or(Errno::NOENT)?;
            each(at, place);
            at = place.name.parent;
            depth += 1;
            // Somebody else moved one into the other: what is known of them is of different times.
            if at == mark {
                return Err(Errno::NOENT);
            }
            if depth > DEPTH_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            if depth.is_power_of_two() {
                mark = at;
            }
        }
        Ok(depth)
    }

    /// The directory `key` is in, and its name there; the one seen last if it has several.
    pub(super) fn place(&mut self, key: Key) -> Option<(Key, Box<[u8]>)> {
        self.places.get_mut(&key).map(|place| (place.name.parent, place.name.name.clone()))
    }

    /// The directory `key` is in, and the hint in that directory's id.
    pub(super) fn parent(&mut self, key: Key) -> Option<(Key, Hint)> {
        let parent = self.places.get_mut(&key)?.name.parent;
        if parent == self.root {
            return Some((parent, Hint::default()));
        }
        let hint = self.places.get_mut(&parent)?.hint;
        Some((parent, hint))
    }

    /// The hint for what is in `dir`, from where `dir` is now; if that is forgotten, from
    /// `known`, the hint in the id of `dir`.
    pub(super) fn hint_in(&mut self, dir: Key, known: Hint) -> Hint {
        let mut way = Vec::new();
        if self.climb(dir, |at, _| way.push(at.ino)).is_err() {
            return known.below(dir.ino);
        }
        way.iter().rev().fold(Hint::default(), |hint, ino| hint.below(*ino))
    }

    /// `key` has this name no more, but it may live on under another.
    pub(super) fn forget_name(&mut self, key: Key, parent: Key, name: &[u8]) {
        if self.places.get_mut(&key).is_some_and(|place| !place.lost(parent, name)) {
            self.places.pop(&key);
        }
    }

    /// `key` was removed.
    pub(super) fn removed(&mut self, key: Key) {
        self.places.pop(&key);
        self.missing.put(key, None);
    }

    /// A search that took so long did not find `key`: who asks is `told` so. If that is not
    /// [`Status::Stale`] it may be there, and is searched for again as soon as the time for that allows.
    pub(super) fn not_found(&mut self, key: Key, took: Duration, told: Status) {
        let least = if told == Status::Stale { MISSING_FOR } else { Duration::ZERO };
        self.missing.put(key, Some((Instant::now() + least.max(took * MISSING_TIMES), told)));
    }

    /// Why it is pointless to search for `key`, if it is.
    pub(super) fn missing(&mut self, key: Key) -> Option<Status> {
        match *self.missing.get(&key)? {
            None => Some(Status::Stale),
            Some((until, told)) => (Instant::now() < until).then_some(told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Key = Key { ino: 1, born_ns: 0 };
    const FILE: Key = Key { ino: 2, born_ns: 0 };

    /// What is known of the file, from the last seen on.
    fn known(table: &mut Table) -> Vec<String> {
        let mut names = Vec::new();
        while let Some((parent, name)) = table.place(FILE) {
            table.forget_name(FILE, parent, &name);
            names.push(String::from_utf8(name.into()).unwrap());
        }
        names
    }

    fn after(change: impl FnOnce(&mut Table)) -> Vec<String> {
        let mut table = Table::new(ROOT, 10);
        table.put(FILE, ROOT, b"a", Hint::default());
        change(&mut table);
        known(&mut table)
    }

    #[test]
    fn the_last_two_names_are_known() {
        let hint = Hint::default();
        let see = |table: &mut Table, name: &[u8]| {
            table.put(FILE, ROOT, name, hint);
        };
        assert_eq!(after(|_| {}), ["a"]);
        assert_eq!(after(|t| see(t, b"a")), ["a"]);
        assert_eq!(after(|t| see(t, b"b")), ["b", "a"]);
        assert_eq!(after(|t| ["b", "a"].iter().for_each(|n| see(t, n.as_bytes()))), ["a", "b"]);
        assert_eq!(after(|t| ["b", "c"].iter().for_each(|n| see(t, n.as_bytes()))), ["c", "b"]);
        assert_eq!(after(|t| t.linked(FILE, ROOT, b"b", hint)), ["a", "b"]);
        assert_eq!(after(|t| t.linked(FILE, ROOT, b"a", hint)), ["a"]);
        assert_eq!(after(|t| t.forget_name(FILE, ROOT, b"other")), ["a"]);
        assert_eq!(after(|t| t.forget_name(FILE, FILE, b"a")), ["a"], "a name elsewhere");
        let forgotten = |t: &mut Table| {
            t.forget_name(FILE, ROOT, b"a");
            t.linked(FILE, ROOT, b"b", hint);
        };
        assert_eq!(after(forgotten), ["b"]);
    }

    #[test]
    fn a_move_takes_one_name_and_leaves_the_other() {
        let moved = |from: &[u8], to: &[u8]| {
            after(|t| {
                t.linked(FILE, ROOT, b"b", Hint::default());
                t.moved(FILE, (ROOT, from), (ROOT, to), Hint::default());
            })
        };
        assert_eq!(moved(b"a", b"c"), ["c", "b"]);
        assert_eq!(moved(b"b", b"c"), ["c", "a"]);
        assert_eq!(moved(b"a", b"b"), ["b"]);
        assert_eq!(moved(b"other", b"c"), ["c", "a"]);
        let alone = after(|t| t.moved(FILE, (ROOT, b"a"), (ROOT, b"b"), Hint::default()));
        assert_eq!(alone, ["b"], "what has one name goes on with one");
    }

    #[test]
    fn an_object_keeps_its_hint_for_as_long_as_a_name_is_known() {
        let [first, other] = [3, 4].map(|dir| Hint::default().below(dir));
        let mut table = Table::new(ROOT, 10);
        assert_eq!(table.put(FILE, ROOT, b"a", first), first);
        table.linked(FILE, ROOT, b"b", other);
        table.forget_name(FILE, ROOT, b"a");
        assert_eq!(table.put(FILE, ROOT, b"c", other), first);
    }

    #[test]
    fn a_search_that_failed_is_repeated_sooner_than_one_that_found_nothing() {
        let mut table = Table::new(ROOT, 10);
        table.not_found(FILE, Duration::ZERO, Status::Stale);
        assert_eq!(table.missing(FILE), Some(Status::Stale));
        table.not_found(FILE, Duration::ZERO, Status::Io);
        assert_eq!(table.missing(FILE), None);
        table.not_found(FILE, Duration::from_secs(1), Status::Io);
        assert_eq!(table.missing(FILE), Some(Status::Io));
        table.removed(FILE);
        assert_eq!(table.missing(FILE), Some(Status::Stale));
    }
}
