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
    Unfinished(Mishaps),
    /// Nowhere, but not everything could be looked at, for this reason: it may be there.
    Failed(Status),
}

/// What came in the way of a walk.
#[derive(Clone, Copy, Default)]
struct Mishaps {
    overtaken: bool,
    /// The first failure of the disk's.
    failed: Option<Status>,
}

impl Mishaps {
    /// Something could not be looked at. Fails if there is no use in going on.
    fn note(&mut self, why: Status) -> Result<()> {
        match why {
            // Somebody took it away, or put something else, a symbolic link perhaps, in its place.
            Status::NoEnt | Status::Stale | Status::NotDir | Status::Inval => self.overtaken = true,
            // Not for the server's user to see, or another file system is mounted there by now.
            Status::Access | Status::Perm | Status::XDev => {}
            // The server is short of something. The same search may find it in a moment.
            Status::Jukebox => return Err(why),
            why => self.failed = self.failed.or(Some(why)),
        }
        Ok(())
    }

    /// What a walk came to that saw everything else, and did not find it.
    fn missed(self) -> Walk {
        match self.failed {
            Some(why) => Walk::Failed(why),
            None if self.overtaken => Walk::Overtaken,
            None => Walk::Nowhere,
        }
    }
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
    /// than the options allow each time. [`Status::Stale`] if it is not found; another error if not everything
    /// could be looked at, for clients throw away what they have of a stale file. Where there are many
    /// entries one at a time looks at them all, for that may take seconds: [`Status::Jukebox`] for who
    /// comes meanwhile.
    pub(super) fn search(&self, key: Key, hint: Hint) -> Result<Object> {
        if let Some(told) = self.table().missing(key) {
            return Err(told);
        }
        acting::own();
        let max = self.disk.search_entries;
        if let Walk::Found(object) = self.walk(key, hint, max, |depth, dir| hint.leads_through(depth, dir))? {
            return Ok(object);
        }
        let (mut took, mut told) = (Duration::ZERO, Status::Stale);
        for _ in 0..WALKS {
            let began = Instant::now();
            let walk = self.walk_everywhere(key, hint)?;
            took = began.elapsed();
            match walk {
                Walk::Found(object) => return Ok(object),
                Walk::Overtaken => {}
                Walk::Failed(why) | Walk::Unfinished(Mishaps { failed: Some(why), .. }) => {
                    told = why;
                    break;
                }
                Walk::Unfinished(_) | Walk::Nowhere => break,
            }
        }
        self.table().not_found(key, took, told);
        Err(told)
    }

    fn walk_everywhere(&self, key: Key, hint: Hint) -> Result<Walk> {
        let max = self.disk.search_entries;
        match self.walk(key, hint, max.min(SIDE_BY_SIDE), |_, _| true)? {
            Walk::Unfinished(_) if max > SIDE_BY_SIDE => self.walk_alone(key, hint),
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
        if let Some(told) = self.table().missing(key) {
            return Err(told);
        }
        self.walk(key, hint, self.disk.search_entries, |_, _| true)
    }

    /// Goes down from the root into the directories that `enter(depth, inode)` lets in, looking at `left` entries
    /// at most.
    fn walk(&self, key: Key, hint: Hint, mut left: usize, enter: impl Fn(usize, u64) -> bool) -> Result<Walk> {
        let (began, mut mishaps) = (clock_gettime(ClockId::RealtimeCoarse), Mishaps::default());
        let root = Step { key: self.disk.root_key, hint: Hint::default(), depth: 0, up: None };
        let mut todo: Vec<Arc<Step>> = vec![Arc::new(root)];
        while let Some(step) = todo.pop() {
            let dir = match self.open_step(&step) {
                Ok(there) => there,
                Err(why) => {
                    mishaps.note(why)?;
                    continue;
                }
            };
            let mut hits: Vec<Box<[u8]>> = Vec::new();
            let mut deeper: Vec<Box<[u8]>> = Vec::new();
            let scanned = listing::scan(&dir, 0, |entry| {
                left = left.saturating_sub(1);
                let name = entry.file_name().to_bytes();
                if entry.ino() == key.ino && !matches!(name, b"." | b"..") {
                    hits.push(Box::from(name));
                } else if is_subdirectory(entry) && enter(step.depth, entry.ino()) {
                    deeper.push(Box::from(name));
                }
                Ok(left > 0)
            });
            for name in hits {
                match self.hit(&step, &dir, &name, key, hint) {
                    Ok(object) => return Ok(Walk::Found(object)),
                    // Another one with its number, or nothing any more: the directory's time tells of that.
                    Err(Status::Stale) => {}
                    Err(why) => mishaps.note(why)?,
                }
            }
            if let Err(why) = scanned {
                mishaps.note(why)?;
            }
            if left == 0 {
                return Ok(Walk::Unfinished(mishaps));
            }
            // Only now: it may have been moved while its entry was looked at.
            mishaps.overtaken |= stat::of(&dir).is_ok_and(|now| changed_since(&now.attr, began));
            for name in deeper {
                match self.step_down(&step, &dir, name) {
                    Ok(below) => todo.push(below),
                    Err(why) => mishaps.note(why)?,
                }
            }
        }
        Ok(mishaps.missed())
    }

    fn open_step(&self, step: &Step) -> Result<OwnedFd> {
        let path = Arc::new(self.open_names(&step.names()).nfs()?);
        path.check_still(self, step.hint, step.key)?.folder().open_unnoticed()
    }

    fn step_down(&self, step: &Arc<Step>, dir: &OwnedFd, name: Box<[u8]>) -> Result<Arc<Step>> {
        let stat = self.ours(stat::at(dir, &name).nfs()?)?;
        let hint = if step.up.is_some() { step.hint.below(step.key.ino) } else { step.hint };
        Ok(Arc::new(Step { key: stat.key, hint, depth: step.depth + 1, up: Some((step.clone(), name)) }))
    }

    /// An entry with the right inode number: if it is the object, remembers the way there.
    fn hit(&self, step: &Arc<Step>, dir: &OwnedFd, name: &[u8], key: Key, hint: Hint) -> Result<Object> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let object = Arc::new(openat(dir, name, flags, Mode::empty()).nfs()?).check(self, hint, key)?;
        let mut table = self.table();
        // The object keeps the hint in the id it was asked for by: clients compare ids.
        table.put(key, step.key, name, hint);
        let mut at = step;
        while let Some((parent, name)) = &at.up {
            table.put(at.key, parent.key, name, at.hint);
            at = parent;
        }
        Ok(object)
    }
}

fn changed_since(attr: &Attr, time: Timespec) -> bool {
    (i64::from(attr.ctime.secs), i64::from(attr.ctime.nanos)) >= (time.tv_sec, time.tv_nsec)
}

fn is_subdirectory(entry: &rustix::fs::RawDirEntry<'_>) -> bool {
    let maybe = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
    maybe && !matches!(entry.file_name().to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a walk came to that met these failures and found nothing.
    fn after(failures: &[Status]) -> Result<Option<Status>> {
        let mut mishaps = Mishaps::default();
        failures.iter().try_for_each(|why| mishaps.note(*why))?;
        Ok(match mishaps.missed() {
            Walk::Failed(why) => Some(why),
            _ => None,
        })
    }

    #[test]
    fn a_file_is_not_called_stale_where_something_could_not_be_looked_at() {
        assert_eq!(after(&[]), Ok(None));
        assert_eq!(after(&[Status::NoEnt, Status::Access, Status::Stale]), Ok(None));
        assert_eq!(after(&[Status::Access, Status::Io, Status::NoEnt, Status::NxIo]), Ok(Some(Status::Io)));
        assert_eq!(after(&[Status::Io, Status::Jukebox]), Err(Status::Jukebox));
    }
}
