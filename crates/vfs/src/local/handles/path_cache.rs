//! The names under which objects were last seen.
//!
//! The cache is bounded and may be outdated. Users verify what they open by a cached path, and search for what is not
//! cached.

use std::time::{Duration, Instant};

use lru::LruCache;
use remora_wire::nfs3::Status;
use rustix::io::Errno;

use crate::local::handles::file_id::PathHint;
use crate::local::inode::stat::InodeKey;
use crate::local::sys::lru_cache::lru_cache;

/// The maximum depth of a directory whose entries are reachable; the root has depth 0. Resolving a path takes time in
/// proportion to its length.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Most objects remembered as not found.
const MISSING_MAX: usize = 1 << 18;
/// An object that was not found is not searched for again for this long. It may be moved into the tree meanwhile, but
/// searches are expensive.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// Nor for this many times the duration of the search.
const MISSING_TIMES: u32 = 60;

/// Most cached names of one object.
pub(crate) const NAMES_MAX: usize = 2;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct DirName<'a> {
    pub(crate) dir: InodeKey,
    pub(crate) name: &'a [u8],
}

/// A cached name.
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
    /// Another name of a file that has several, so that losing one needs no search. Boxed because few files have one.
    also: Option<Box<NameInDir>>,
    /// The hint in the object's id. It does not change when the object moves, so neither does the id.
    hint: PathHint,
}

impl CachedPath {
    /// The object was seen under this name. It may still have the former one, too.
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

    /// The object has this name instead of the one last seen.
    fn rename(&mut self, parent: InodeKey, name: &[u8]) {
        self.name = NameInDir::new(parent, name);
        self.also.take_if(|also| also.is(parent, name));
    }

    /// The object lost this name. Returns whether another one is cached.
    fn lost(&mut self, parent: InodeKey, name: &[u8]) -> bool {
        if !self.name.is(parent, name) {
            self.also.take_if(|also| also.is(parent, name));
            return true;
        }
        let also = self.also.take();
        also.map(|also| self.name = *also).is_some()
    }
}

/// Until then an object is not searched for.
#[derive(Clone, Copy)]
struct SearchPause {
    until: Instant,
    /// The reply until the search ends.
    status: Status,
}

/// The cached paths of an export.
pub(crate) struct PathCache {
    root: InodeKey,
    paths: LruCache<InodeKey, CachedPath>,
    /// Objects not to search for; `None` for those that were removed.
    missing: LruCache<InodeKey, Option<SearchPause>>,
}

impl PathCache {
    /// Keeps the `limit` entries that were used last.
    pub(crate) fn new(root: InodeKey, limit: usize) -> PathCache {
        PathCache { root, paths: lru_cache(limit), missing: lru_cache(MISSING_MAX) }
    }

    /// Caches `name` in `parent` as a path of `key`. Returns the hint of its id: the cached one, or else `hint`.
    pub(crate) fn put(&mut self, key: InodeKey, parent: InodeKey, name: &[u8], hint: PathHint) -> PathHint {
        self.missing.pop(&key);
        if let Some(entry) = self.paths.get_mut(&key) {
            entry.seen(parent, name);
            return entry.hint;
        }
        self.paths.put(key, CachedPath { name: NameInDir::new(parent, name), also: None, hint });
        hint
    }

    /// `key` got another name, `name` in `parent`. `hint` is that of its id.
    pub(crate) fn add_link(&mut self, key: InodeKey, parent: InodeKey, name: &[u8], hint: PathHint) {
        match self.paths.get_mut(&key) {
            Some(entry) if entry.name.is(parent, name) => {}
            Some(entry) => entry.also = Some(Box::new(NameInDir::new(parent, name))),
            None => {
                self.put(key, parent, name, hint);
            }
        }
    }

    /// `key` was renamed. `hint` is for its id if none is cached.
    pub(crate) fn rename(&mut self, key: InodeKey, from: DirName<'_>, to: DirName<'_>, hint: PathHint) {
        // A concurrent search may have missed it.
        self.missing.pop(&key);
        match self.paths.get_mut(&key) {
            Some(entry) if entry.name.is(from.dir, from.name) => entry.rename(to.dir, to.name),
            _ => {
                self.put(key, to.dir, to.name, hint);
                self.forget_name(key, from.dir, from.name);
            }
        }
    }

    /// The path of the directory `key` from the root. Fails as [`depth`](PathCache::depth).
    pub(crate) fn path(&mut self, key: InodeKey) -> rustix::io::Result<Vec<Box<[u8]>>> {
        let mut names = Vec::new();
        self.climb(key, |_, entry| names.push(entry.name.name.clone()))?;
        names.reverse();
        Ok(names)
    }

    /// The depth of the directory `key`. Fails with [`Errno::NOENT`] if a name on the path is not cached, and with
    /// [`Errno::NAMETOOLONG`] if it is deeper than [`DEPTH_MAX`].
    pub(crate) fn depth(&mut self, key: InodeKey) -> rustix::io::Result<usize> {
        self.climb(key, |_, _| ())
    }

    /// Climbs from `key` to the root, calls `each` on the way, and returns the depth.
    fn climb(&mut self, key: InodeKey, mut each: impl FnMut(InodeKey, &CachedPath)) -> rustix::io::Result<usize> {
        let (mut at, mut depth, mut mark) = (key, 0_usize, key);
        while at != self.root {
            let entry = self.paths.get(&at).ok_or(Errno::NOENT)?;
            each(at, entry);
            at = entry.name.parent;
            depth += 1;
            // A cycle: the cached names are of different times, because another program moved directories.
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

    /// The parent of `key` and the name there, the latest if there are several.
    pub(crate) fn name_of(&mut self, key: InodeKey) -> Option<(InodeKey, Box<[u8]>)> {
        self.paths.get_mut(&key).map(|entry| (entry.name.parent, entry.name.name.clone()))
    }

    /// The parent of `key` and the hint of that directory's id.
    pub(crate) fn parent(&mut self, key: InodeKey) -> Option<(InodeKey, PathHint)> {
        let parent = self.paths.get_mut(&key)?.name.parent;
        if parent == self.root {
            return Some((parent, PathHint::default()));
        }
        let hint = self.paths.get_mut(&parent)?.hint;
        Some((parent, hint))
    }

    /// The hint of objects in `dir`, from the cached path of `dir`, or else from `known`, the hint of its id.
    pub(crate) fn hint_in(&mut self, dir: InodeKey, known: PathHint) -> PathHint {
        let mut way = Vec::new();
        if self.climb(dir, |at, _| way.push(at.ino)).is_err() {
            return known.below(dir.ino);
        }
        way.iter().rev().fold(PathHint::default(), |hint, ino| hint.below(*ino))
    }

    /// `key` lost this name. It may have another one.
    pub(crate) fn forget_name(&mut self, key: InodeKey, parent: InodeKey, name: &[u8]) {
        if self.paths.get_mut(&key).is_some_and(|entry| !entry.lost(parent, name)) {
            self.paths.pop(&key);
        }
    }

    /// `key` was removed.
    pub(crate) fn removed(&mut self, key: InodeKey) {
        self.paths.pop(&key);
        self.missing.put(key, None);
    }

    /// A search of this duration ended with `status`. If that is not [`Status::Stale`], the object may exist, and the
    /// next search may begin sooner.
    pub(crate) fn not_found(&mut self, key: InodeKey, took: Duration, status: Status) {
        let least = if status == Status::Stale { MISSING_FOR } else { Duration::ZERO };
        let until = Instant::now() + least.max(took * MISSING_TIMES);
        self.missing.put(key, Some(SearchPause { until, status }));
    }

    /// The status to answer instead of searching for `key`, if any.
    pub(crate) fn missing(&mut self, key: InodeKey) -> Option<Status> {
        match *self.missing.get(&key)? {
            None => Some(Status::Stale),
            Some(pause) => (Instant::now() < pause.until).then_some(pause.status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: InodeKey = InodeKey { ino: 1, birth_ns: 0 };
    const FILE: InodeKey = InodeKey { ino: 2, birth_ns: 0 };

    /// The cached names of the file, the latest first.
    fn known(cache: &mut PathCache) -> Vec<String> {
        let mut names = Vec::new();
        while let Some((parent, name)) = cache.name_of(FILE) {
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
    fn last_two_names_are_cached() {
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
    fn rename_replaces_one_of_two_names() {
        let rename = |from: &[u8], to: &[u8]| {
            after(|t| {
                t.add_link(FILE, ROOT, b"b", PathHint::default());
                t.rename(FILE, DirName { dir: ROOT, name: from }, DirName { dir: ROOT, name: to }, PathHint::default());
            })
        };
        assert_eq!(rename(b"a", b"c"), ["c", "b"]);
        assert_eq!(rename(b"b", b"c"), ["c", "a"]);
        assert_eq!(rename(b"a", b"b"), ["b"]);
        assert_eq!(rename(b"other", b"c"), ["c", "a"]);
        let alone = after(|t| {
            t.rename(FILE, DirName { dir: ROOT, name: b"a" }, DirName { dir: ROOT, name: b"b" }, PathHint::default())
        });
        assert_eq!(alone, ["b"], "one name stays one");
    }

    #[test]
    fn hint_stays_while_a_name_is_cached() {
        let [first, other] = [3, 4].map(|dir| PathHint::default().below(dir));
        let mut cache = PathCache::new(ROOT, 10);
        assert_eq!(cache.put(FILE, ROOT, b"a", first), first);
        cache.add_link(FILE, ROOT, b"b", other);
        cache.forget_name(FILE, ROOT, b"a");
        assert_eq!(cache.put(FILE, ROOT, b"c", other), first);
    }

    #[test]
    fn failed_search_is_repeated_sooner_than_stale() {
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
