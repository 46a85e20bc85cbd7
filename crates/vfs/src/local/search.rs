//! Looks for an object that is not where the table says, or of which it says nothing: after a
//! restart, or when somebody else renamed.

use std::os::fd::OwnedFd;
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use remora_wire::nfs3::{Attr, Status};
use rustix::fs::{FileType, Mode, OFlags, Timespec, openat};
use rustix::time::{ClockId, clock_gettime};

use super::acting;
use super::errno::OrStatus;
use super::ids::{Hint, Key};
use super::resolve::{Check, Object};
use super::{LocalDisk, listing, stat};
use crate::Result;

/// How often everything is looked at when directories change meanwhile: what was moved from one that was not
/// yet looked at to one that was is seen in neither.
const WALKS: usize = 3;
/// So many entries everybody may look at, whoever else does: that takes a tenth of a second.
const SIDE_BY_SIDE: usize = 200_000;

/// What a walk came to.
enum Walk {
    Found(Object),
    Nowhere,
    /// Nowhere, but a directory had changed since the walk began: somebody may have moved it.
    Overtaken,
    /// There are more entries than it was to look at.
    Unfinished,
}

/// A directory on the way, and how it was reached.
struct Step {
    key: Key,
    hint: Hint,
    depth: usize,
    /// `None` for the root.
    up: Option<(Arc<Step>, Box<[u8]>)>,
}

impl Step {
    fn names(&self) -> Vec<Box<[u8]>> {
        let mut names = Vec::new();
        let mut at = self;
        while let Some((parent, name)) = &at.up {
            names.push(name.clone());
            at = parent;
        }
        names.reverse();
        names
    }
}

impl LocalDisk {
    /// Finds `key`: first where `hint` points, then everywhere, looking at no more entries
    /// than the options allow each time. [`Status::Stale`] if it is not found. Where there are many
    /// entries one at a time looks at them all, for that may take seconds: [`Status::Jukebox`] for who
    /// comes meanwhile.
    pub(super) fn search(&self, key: Key, hint: Hint) -> Result<Object> {
        if self.table().is_missing(key) {
            return Err(Status::Stale);
        }
        acting::own();
        let max = self.disk.search_entries;
        if let Walk::Found(object) = self.walk(key, hint, max, |depth, dir| hint.leads_through(depth, dir)) {
            return Ok(object);
        }
        let mut took = Duration::ZERO;
        for _ in 0..WALKS {
            let began = Instant::now();
            match self.walk_everywhere(key, hint)? {
                Walk::Found(object) => return Ok(object),
                Walk::Overtaken => took = began.elapsed(),
                Walk::Unfinished | Walk::Nowhere => {
                    took = began.elapsed();
                    break;
                }
            }
        }
        self.table().not_found(key, took);
        Err(Status::Stale)
    }

    fn walk_everywhere(&self, key: Key, hint: Hint) -> Result<Walk> {
        let max = self.disk.search_entries;
        match self.walk(key, hint, max.min(SIDE_BY_SIDE), |_, _| true) {
            Walk::Unfinished if max > SIDE_BY_SIDE => self.walk_alone(key, hint),
            walk => Ok(walk),
        }
    }

    /// Looks everywhere, if nobody else does.
    fn walk_alone(&self, key: Key, hint: Hint) -> Result<Walk> {
        let _alone = match self.disk.searching.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Status::Jukebox),
        };
        // Whoever was before us may have looked for the same.
        if self.table().is_missing(key) {
            Ok(Walk::Nowhere)
        } else {
            Ok(self.walk(key, hint, self.disk.search_entries, |_, _| true))
        }
    }

    /// Goes down from the root into the directories that `enter(depth, inode)` lets in, looking at `left` entries
    /// at most.
    fn walk(&self, key: Key, hint: Hint, mut left: usize, enter: impl Fn(usize, u64) -> bool) -> Walk {
        let (began, mut overtaken) = (clock_gettime(ClockId::RealtimeCoarse), false);
        let root = Step { key: self.disk.root_key, hint: Hint::default(), depth: 0, up: None };
        let mut todo: Vec<Arc<Step>> = vec![Arc::new(root)];
        while let Some(step) = todo.pop() {
            // Directories that cannot be read, or went away meanwhile, are passed over.
            let dir = match self.open_step(&step) {
                Ok(there) => there,
                Err(why) => {
                    overtaken |= matches!(why, Status::NoEnt | Status::Stale | Status::NotDir);
                    continue;
                }
            };
            let mut hits = Vec::new();
            let mut deeper = Vec::new();
            let _ = listing::scan(&dir, 0, |entry| {
                left = left.saturating_sub(1);
                let name = entry.file_name().to_bytes();
                if entry.ino() == key.ino && !matches!(name, b"." | b"..") {
                    hits.push(Box::from(name));
                } else if is_subdirectory(entry) && enter(step.depth, entry.ino()) {
                    deeper.push(Box::from(name));
                }
                Ok(left > 0)
            });
            if let Some(object) = hits.iter().find_map(|name| self.hit(&step, &dir, name, key, hint)) {
                return Walk::Found(object);
            }
            if left == 0 {
                return Walk::Unfinished;
            }
            // Only now: it may have been moved while its entry was looked at.
            overtaken |= stat::of(&dir).is_ok_and(|now| changed_since(&now.attr, began));
            todo.extend(deeper.into_iter().filter_map(|name| self.step_down(&step, &dir, name)));
        }
        if overtaken { Walk::Overtaken } else { Walk::Nowhere }
    }

    fn open_step(&self, step: &Step) -> Result<OwnedFd> {
        let path = Arc::new(self.open_names(&step.names()).nfs()?);
        path.check_still(self, step.hint, step.key)?.folder().open_unnoticed()
    }

    fn step_down(&self, step: &Arc<Step>, dir: &OwnedFd, name: Box<[u8]>) -> Option<Arc<Step>> {
        let stat = self.ours(stat::at(dir, &name).ok()?).ok()?;
        let hint = if step.up.is_some() { step.hint.below(step.key.ino) } else { step.hint };
        Some(Arc::new(Step { key: stat.key, hint, depth: step.depth + 1, up: Some((step.clone(), name)) }))
    }

    /// An entry with the right inode number: if it is the object, remembers the way there.
    fn hit(&self, step: &Arc<Step>, dir: &OwnedFd, name: &[u8], key: Key, hint: Hint) -> Option<Object> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let object = Arc::new(openat(dir, name, flags, Mode::empty()).ok()?).check(self, hint, key).ok()?;
        let mut table = self.table();
        // The object keeps the hint in the id it was asked for by: clients compare ids.
        table.put(key, step.key, name, hint);
        let mut at = step;
        while let Some((parent, name)) = &at.up {
            table.put(at.key, parent.key, name, at.hint);
            at = parent;
        }
        Some(object)
    }
}

fn changed_since(attr: &Attr, time: Timespec) -> bool {
    (i64::from(attr.ctime.secs), i64::from(attr.ctime.nanos)) >= (time.tv_sec, time.tv_nsec)
}

fn is_subdirectory(entry: &rustix::fs::RawDirEntry<'_>) -> bool {
    let maybe = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
    maybe && !matches!(entry.file_name().to_bytes(), b"." | b"..")
}
