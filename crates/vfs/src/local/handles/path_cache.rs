//! Where objects are: the names under which they were last seen.
//!
//! A bounded memory, not the truth. What it says is checked when it is used; what it forgot is
//! searched for.

use std::time::{Duration, Instant};

use lru::LruCache;
use remora_wire::nfs3::Status;
use rustix::io::Errno;

use crate::local::handles::file_id::{InodeKey, PathHint};
use crate::local::sys::lru_cache::lru_cache;

/// How deep a directory is, the root being at 0, that things are reached in: each time a way is gone it takes
/// as long as the way is.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Most objects remembered as not found.
const MISSING_MAX: usize = 1 << 18;
/// How long an object that a search did not find is not searched for again: it may have been
/// rename into the tree from outside, but searches are dear.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// And how many times as long as the search took, at least.
const MISSING_TIMES: u32 = 60;

/// Names of one object that are remembered, at most.
pub(crate) const NAMES_MAX: usize = 2;

/// A name in a directory.
struct NameInDir {
    parent: InodeKey,
    name: Box<[u8]>,
}

impl NameInDir {
    fn new(parent: InodeKey, name: &[u8]) -> NameInDir {
        NameInDir { parent, name: name.into() }
    }

    fn is(&self, parent: InodeKey, name: &[u8]) -> bool {
        self.parent == parent && *self.name == *name
    }
}

struct CachedPath {
    name: NameInDir,
    /// Another name of a file that has several: when it loses one, nobody need search for it. Boxed
    /// because few have one.
    also: Option<Box<NameInDir>>,
    /// The hint in the object's id. It stays when the object moves, so that the id does too.
    hint: PathHint,
}

impl CachedPath {
    /// It was seen under this name; it may be there under the former one, too.
    fn seen(&mut self, parent: InodeKey, name: &[u8]) {
        if self.name.is(parent, name) {
            return;
        }
        match &mut self.also {
            Some(also) if also.is(parent, name) => std::mem::swap(&mut self.name, also),
            also => {
                let former = std::mem::replace(&mut self.name, NameInDir::new(parent, name));
                *also = Some(Box::new(former));
            }
        }
    }

    /// It has this name instead of the one it was last seen under.
    fn rename(&mut self, parent: InodeKey, name: &[u8]) {
        self.name = NameInDir::new(parent, name);
        self.also.take_if(|also| also.is(parent, name));
    }

    /// It has this name no more. False if no other one is known.
    fn lost(&mut self, parent: InodeKey, name: &[u8]) -> bool {
        if !self.name.is(parent, name) {
            self.also.take_if(|also| also.is(parent, name));
            return true;
        }
        let also = self.also.take();
        also.map(|also| self.name = *also).is_some()
    }
}

/// See the module.
pub(crate) struct PathCache {
    root: InodeKey,
    paths: LruCache<InodeKey, CachedPath>,
    /// Until when not to search, and what to say meanwhile; `None` for objects that were removed.
    missing: LruCache<InodeKey, Option<(Instant, Status)>>,
}

impl PathCache {
    /// Keeps the `limit` paths that were used last.
    pub(crate) fn new(root: InodeKey, limit: usize) -> PathCache {
        PathCache { root, paths: lru_cache(limit), missing: lru_cache(MISSING_MAX) }
    }

    /// `key` is `name` in `parent`. Returns the hint for its id: `hint`, unless it has one.
    pub(crate) fn put(&mut self, key: InodeKey, parent: InodeKey, name: &[u8], hint: PathHint) -> PathHint {
        self.missing.pop(&key);
        if let Some(place) = self.paths.get_mut(&key) {
            place.seen(parent, name);
            return place.hint;
        }
        self.paths.put(key, CachedPath { name: NameInDir::new(parent, name), also: None, hint });
        hint
    }

    /// `key` has got another name: `name` in `parent`. `hint` is that in its id.
    pub(crate) fn add_link(&mut self, key: InodeKey, parent: InodeKey, name: &[u8], hint: PathHint) {
        match self.paths.get_mut(&key) {
            Some(place) if place.name.is(parent, name) => {}
            Some(place) => place.also = Some(Box::new(NameInDir::new(parent, name))),
            None => {
                self.put(key, parent, name, hint);
            }
        }
    }

    /// `key`, which was `from`, is `to` now: each a name and the directory it is in. `hint` is for
    /// its id, unless it has one.
    pub(crate) fn rename(&mut self, key: InodeKey, from: (InodeKey, &[u8]), to: (InodeKey, &[u8]), hint: PathHint) {
        // A search that ran meanwhile may have missed it.
        self.missing.pop(&key);
        match self.paths.get_mut(&key) {
            Some(place) if place.name.is(from.0, from.1) => place.rename(to.0, to.1),
            _ => {
                self.put(key, to.0, to.1, hint);
                self.forget_name(key, from.0, from.1);
            }
        }
    }

    /// The names that lead from the root to the directory `key`; as [`depth`](PathCache::depth).
    pub(crate) fn path(&mut self, key: InodeKey) -> rustix::io::Result<Vec<Box<[u8]>>> {
        let mut names = Vec::new();
        self.climb(key, |_, place| names.push(place.name.name.clone()))?;
        names.reverse();
        Ok(names)
    }

    /// How deep the directory `key` is. [`Errno::NOENT`] if any name on the way is forgotten, and
    /// [`Errno::NAMETOOLONG`] if it is deeper than [`DEPTH_MAX`].
    pub(crate) fn depth(&mut self, key: InodeKey) -> rustix::io::Result<usize> {
        self.climb(key, |_, _| ())
    }

    /// Goes up from `key`, handing what is on the way to `each`; how far it was.
    fn climb(&mut self, key: InodeKey, mut each: impl FnMut(InodeKey, &CachedPath)) -> rustix::io::Result<usize> {
        let (mut at, mut depth, mut mark) = (key, 0_usize, key);
        while at != self.root {
            let place = self.paths.get(&at).ok_or(Errno::NOENT)?;
            each(at, place);
            at = place.name.parent;
            depth += 1;
            // Somebody else rename one into the other: what is known of them is of different times.
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
    pub(crate) fn place(&mut self, key: InodeKey) -> Option<(InodeKey, Box<[u8]>)> {
        self.paths.get_mut(&key).map(|place| (place.name.parent, place.name.name.clone()))
    }

    /// The directory `key` is in, and the hint in that directory's id.
    pub(crate) fn parent(&mut self, key: InodeKey) -> Option<(InodeKey, PathHint)> {
        let parent = self.paths.get_mut(&key)?.name.parent;
        if parent == self.root {
            return Some((parent, PathHint::default()));
        }
        let hint = self.paths.get_mut(&parent)?.hint;
        Some((parent, hint))
    }

    /// The hint for what is in `dir`, from where `dir` is now; if that is forgotten, from
    /// `known`, the hint in the id of `dir`.
    pub(crate) fn hint_in(&mut self, dir: InodeKey, known: PathHint) -> PathHint {
        let mut way = Vec::new();
        if self.climb(dir, |at, _| way.push(at.ino)).is_err() {
            return known.below(dir.ino);
        }
        way.iter().rev().fold(PathHint::default(), |hint, ino| hint.below(*ino))
    }

    /// `key` has this name no more, but it may live on under another.
    pub(crate) fn forget_name(&mut self, key: InodeKey, parent: InodeKey, name: &[u8]) {
        if self.paths.get_mut(&key).is_some_and(|place| !place.lost(parent, name)) {
            self.paths.pop(&key);
        }
    }

    /// `key` was removed.
    pub(crate) fn removed(&mut self, key: InodeKey) {
        self.paths.pop(&key);
        self.missing.put(key, None);
    }

    /// A search that took so long did not find `key`: who asks is `status` so. If that is not
    /// [`Status::Stale`] it may be there, and is searched for again as soon as the time for that allows.
    pub(crate) fn not_found(&mut self, key: InodeKey, took: Duration, status: Status) {
        let least = if status == Status::Stale { MISSING_FOR } else { Duration::ZERO };
        self.missing.put(key, Some((Instant::now() + least.max(took * MISSING_TIMES), status)));
    }

    /// Why it is pointless to search for `key`, if it is.
    pub(crate) fn missing(&mut self, key: InodeKey) -> Option<Status> {
        match *self.missing.get(&key)? {
            None => Some(Status::Stale),
            Some((until, status)) => (Instant::now() < until).then_some(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: InodeKey = InodeKey { ino: 1, birth_ns: 0 };
    const FILE: InodeKey = InodeKey { ino: 2, birth_ns: 0 };

    /// What is known of the file, from the last seen on.
    fn known(cache: &mut PathCache) -> Vec<String> {
        let mut names = Vec::new();
        while let Some((parent, name)) = cache.place(FILE) {
            cache.forget_name(FILE, parent, &name);
            names.push(String::from_utf8(name.into()).unwrap());
        }
        names
    }

    fn after(change: impl FnOnce(&mut PathCache)) -> Vec<String> {
        let mut cache = PathCache::new(ROOT, 10);
        cache.put(FILE, ROOT, b"a", PathHint::default());
        change(&mut cache);
        known(&mut cache)
    }

    #[test]
    fn the_last_two_names_are_known() {
        let hint = PathHint::default();
        let see = |cache: &mut PathCache, name: &[u8]| {
            cache.put(FILE, ROOT, name, hint);
        };
        assert_eq!(after(|_| {}), ["a"]);
        assert_eq!(after(|t| see(t, b"a")), ["a"]);
        assert_eq!(after(|t| see(t, b"b")), ["b", "a"]);
        assert_eq!(after(|t| ["b", "a"].iter().for_each(|n| see(t, n.as_bytes()))), ["a", "b"]);
        assert_eq!(after(|t| ["b", "c"].iter().for_each(|n| see(t, n.as_bytes()))), ["c", "b"]);
        assert_eq!(after(|t| t.add_link(FILE, ROOT, b"b", hint)), ["a", "b"]);
        assert_eq!(after(|t| t.add_link(FILE, ROOT, b"a", hint)), ["a"]);
        assert_eq!(after(|t| t.forget_name(FILE, ROOT, b"other")), ["a"]);
        assert_eq!(after(|t| t.forget_name(FILE, FILE, b"a")), ["a"], "a name elsewhere");
        let forgotten = |t: &mut PathCache| {
            t.forget_name(FILE, ROOT, b"a");
            t.add_link(FILE, ROOT, b"b", hint);
        };
        assert_eq!(after(forgotten), ["b"]);
    }

    #[test]
    fn a_move_takes_one_name_and_leaves_the_other() {
        let rename = |from: &[u8], to: &[u8]| {
            after(|t| {
                t.add_link(FILE, ROOT, b"b", PathHint::default());
                t.rename(FILE, (ROOT, from), (ROOT, to), PathHint::default());
            })
        };
        assert_eq!(rename(b"a", b"c"), ["c", "b"]);
        assert_eq!(rename(b"b", b"c"), ["c", "a"]);
        assert_eq!(rename(b"a", b"b"), ["b"]);
        assert_eq!(rename(b"other", b"c"), ["c", "a"]);
        let alone = after(|t| t.rename(FILE, (ROOT, b"a"), (ROOT, b"b"), PathHint::default()));
        assert_eq!(alone, ["b"], "what has one name goes on with one");
    }

    #[test]
    fn an_object_keeps_its_hint_for_as_long_as_a_name_is_known() {
        let [first, other] = [3, 4].map(|dir| PathHint::default().below(dir));
        let mut cache = PathCache::new(ROOT, 10);
        assert_eq!(cache.put(FILE, ROOT, b"a", first), first);
        cache.add_link(FILE, ROOT, b"b", other);
        cache.forget_name(FILE, ROOT, b"a");
        assert_eq!(cache.put(FILE, ROOT, b"c", other), first);
    }

    #[test]
    fn a_search_that_failed_is_repeated_sooner_than_one_that_found_nothing() {
        let mut cache = PathCache::new(ROOT, 10);
        cache.not_found(FILE, Duration::ZERO, Status::Stale);
        assert_eq!(cache.missing(FILE), Some(Status::Stale));
        cache.not_found(FILE, Duration::ZERO, Status::Io);
        assert_eq!(cache.missing(FILE), None);
        cache.not_found(FILE, Duration::from_secs(1), Status::Io);
        assert_eq!(cache.missing(FILE), Some(Status::Io));
        cache.removed(FILE);
        assert_eq!(cache.missing(FILE), Some(Status::Stale));
    }
}
