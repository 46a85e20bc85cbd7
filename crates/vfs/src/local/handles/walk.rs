//! A search's walk through the directories.
//!
//! Each directory is opened from the one above it, which is open or reached again by `..`: the way from
//! the root, which may be long, is gone for what is found only.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use remora_wire::nfs3::{Attr, Status};
use rustix::fs::{FileType, Mode, OFlags, Timespec, openat};
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::local::LocalDisk;
use crate::local::fd_cache::open_dirs::VerifiedDir;
use crate::local::handles::file_id::{InodeKey, PathHint};
use crate::local::handles::path_cache::DEPTH_MAX;
use crate::local::handles::resolve::{Check, OpenObject, open_part};
use crate::local::handles::search_limit::{DIR_COST, SearchBudget};
use crate::local::inode::stat;
use crate::local::listing::readdir;
use crate::local::sys::errno::OrStatus;

/// To name what is opened, a link itself.
const NAME: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a walk came to.
pub(crate) enum WalkOutcome {
    Found(OpenObject),
    NotFound,
    /// Nowhere, but a directory had changed since the walk began: somebody may have moved it.
    Changed,
    /// There are more entries than it was to look at.
    LimitReached(WalkErrors),
    /// Nowhere, but not everything could be looked at, for this reason: it may be there.
    Failed(Status),
}

/// What came in the way of a walk.
#[derive(Clone, Copy, Default)]
pub(crate) struct WalkErrors {
    changed: bool,
    /// The first failure of the disk's.
    pub(crate) failed: Option<Status>,
}

impl WalkErrors {
    /// Something could not be looked at. Fails if there is no use in going on.
    fn note(&mut self, why: Status) -> Result<()> {
        match why {
            // Somebody took it away, or put something else, a symbolic link perhaps, in its place.
            Status::NoEnt | Status::Stale | Status::NotDir | Status::Inval => self.changed = true,
            // Not for the server's user to see, or another file system is mounted there by now.
            Status::Access | Status::Perm | Status::XDev => {}
            // The server is short of something. The same search may find it in a moment.
            Status::Jukebox => return Err(why),
            why => self.failed = self.failed.or(Some(why)),
        }
        Ok(())
    }

    /// What a walk came to that saw everything else, and did not find it.
    fn missed(self) -> WalkOutcome {
        match self.failed {
            Some(why) => WalkOutcome::Failed(why),
            None if self.changed => WalkOutcome::Changed,
            None => WalkOutcome::NotFound,
        }
    }
}

/// A directory on the way, and how it was reached.
struct WalkStep {
    key: InodeKey,
    hint: PathHint,
    depth: usize,
    /// `None` for the root.
    up: Option<(Arc<WalkStep>, Box<[u8]>)>,
}

impl WalkStep {
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

impl Drop for WalkStep {
    /// WalkStep by step: one inside the other they would take as much of the stack as the way is long.
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some((step, _)) = up {
            up = Arc::into_inner(step).and_then(|mut step| step.up.take());
        }
    }
}

/// A walk on its way.
pub(crate) struct Walker<'a, 'b> {
    disk: &'a LocalDisk,
    /// The object it is for, and the hint in the id that it was asked for by.
    wanted: (InodeKey, PathHint),
    /// Entries that it may still look at.
    left: usize,
    budget: &'a mut SearchBudget<'b>,
    errors: WalkErrors,
    began: Timespec,
    todo: Vec<Arc<WalkStep>>,
    /// The directory that something was opened from last: that which is next to do is in it or in one above it.
    at: Arc<WalkStep>,
    fd: Arc<OwnedFd>,
}

impl<'a, 'b> Walker<'a, 'b> {
    /// Looks at `left` entries at most.
    pub(crate) fn new(
        disk: &'a LocalDisk,
        wanted: (InodeKey, PathHint),
        left: usize,
        budget: &'a mut SearchBudget<'b>,
    ) -> Self {
        let root = Arc::new(WalkStep { key: disk.disk.root_key, hint: PathHint::default(), depth: 0, up: None });
        Walker {
            disk,
            wanted,
            left,
            budget,
            errors: WalkErrors::default(),
            began: clock_gettime(ClockId::RealtimeCoarse),
            todo: vec![root.clone()],
            at: root,
            fd: disk.disk.root.clone(),
        }
    }

    /// Goes down from the root into the directories that `enter(depth, inode)` lets in.
    pub(crate) fn run(mut self, enter: impl Fn(usize, u64) -> bool) -> Result<WalkOutcome> {
        while let Some(step) = self.todo.pop() {
            match self.open(&step) {
                Ok(dir) => {
                    if let Some(object) = self.look_into(&step, &Arc::new(dir), &enter)? {
                        return Ok(WalkOutcome::Found(object));
                    }
                }
                Err(why) => self.errors.note(why)?,
            }
            if self.left == 0 {
                return Ok(WalkOutcome::LimitReached(self.errors));
            }
        }
        Ok(self.errors.missed())
    }

    /// Lists a directory: the object, if it is in there.
    fn look_into(
        &mut self,
        step: &Arc<WalkStep>,
        dir: &Arc<OwnedFd>,
        enter: &impl Fn(usize, u64) -> bool,
    ) -> Result<Option<OpenObject>> {
        let mut hits: Vec<Box<[u8]>> = Vec::new();
        let mut deeper: Vec<Box<[u8]>> = Vec::new();
        let (wanted, left, budget) = (self.wanted.0.ino, &mut self.left, &mut *self.budget);
        let scanned = readdir::scan(dir, 0, |entry| {
            budget.spend(1)?;
            *left = left.saturating_sub(1);
            let name = entry.file_name().to_bytes();
            if entry.ino() == wanted && !matches!(name, b"." | b"..") {
                hits.push(Box::from(name));
            } else if step.depth < DEPTH_MAX && is_subdirectory(entry) && enter(step.depth, entry.ino()) {
                deeper.push(Box::from(name));
            }
            Ok(*left > 0)
        });
        for name in hits {
            match self.hit(step, dir, &name) {
                Ok(object) => return Ok(Some(object)),
                // Another one with its number, or nothing any more: the directory's time tells of that.
                Err(Status::Stale) => {}
                Err(why) => self.errors.note(why)?,
            }
        }
        if let Err(why) = scanned {
            self.errors.note(why)?;
        }
        if self.left > 0 {
            // Only now: it may have been moved while its entry was looked at.
            self.errors.changed |= stat::of(dir).is_ok_and(|now| changed_since(&now.attr, self.began));
            self.enqueue(step, dir, deeper)?;
        }
        Ok(None)
    }

    /// Notes the directories in a directory for later.
    fn enqueue(&mut self, step: &Arc<WalkStep>, dir: &Arc<OwnedFd>, names: Vec<Box<[u8]>>) -> Result<()> {
        let before = self.todo.len();
        for name in names {
            match self.disk.step_down(step, dir, name) {
                Ok(below) => self.todo.push(below),
                Err(why) => self.errors.note(why)?,
            }
        }
        if self.todo.len() > before {
            (self.at, self.fd) = (step.clone(), dir.clone());
        }
        Ok(())
    }

    fn open(&mut self, step: &Arc<WalkStep>) -> Result<OwnedFd> {
        self.budget.spend(DIR_COST)?;
        let path = match &step.up {
            None => self.disk.disk.root.clone(),
            Some((parent, name)) => {
                if self.climb(parent).is_err() {
                    self.go_to(parent)?;
                }
                Arc::new(open_part(&self.fd, name).nfs()?)
            }
        };
        path.check_still(self.disk, step.hint, step.key)?.open_dir_of().open_unnoticed()
    }

    /// Goes up to a directory above. Fails if any on the way was moved meanwhile.
    fn climb(&mut self, to: &Arc<WalkStep>) -> Result<()> {
        while !Arc::ptr_eq(&self.at, to) {
            let (parent, _) = self.at.up.as_ref().ok_or(Status::Stale)?;
            let above = Arc::new(openat(&self.fd, "..", NAME, Mode::empty()).nfs()?);
            self.fd = above.check_still(self.disk, parent.hint, parent.key)?.fd;
            self.at = parent.clone();
        }
        Ok(())
    }

    /// Goes all the way from the root.
    fn go_to(&mut self, step: &Arc<WalkStep>) -> Result<()> {
        self.left = self.left.saturating_sub(step.depth);
        self.budget.spend(step.depth)?;
        let way = Arc::new(self.disk.open_names(&step.names()).nfs()?);
        self.fd = way.check_still(self.disk, step.hint, step.key)?.fd;
        self.at = step.clone();
        Ok(())
    }

    /// An entry with the right inode number: if it is the object, remembers the way there.
    fn hit(&mut self, step: &Arc<WalkStep>, dir: &OwnedFd, name: &[u8]) -> Result<OpenObject> {
        let ((key, hint), disk) = (self.wanted, self.disk);
        let open_in = |dir: &OwnedFd| Arc::new(openat(dir, name, NAME, Mode::empty()).nfs()?).check(disk, hint, key);
        open_in(dir)?;
        // What the walk has open may have left the export meanwhile.
        let way = VerifiedDir::now(Arc::new(disk.open_names(&step.names()).nfs()?));
        way.fd.clone().check_still(disk, step.hint, step.key)?;
        let object = open_in(&way.fd)?;
        let mut table = disk.paths();
        // The object keeps the hint in the id it was asked for by: clients compare ids.
        table.put(key, step.key, name, hint);
        let mut at = step;
        while let Some((parent, name)) = &at.up {
            table.put(at.key, parent.key, name, at.hint);
            at = parent;
        }
        drop(table);
        disk.disk.dirs.put(step.key, way);
        Ok(object)
    }
}

impl LocalDisk {
    fn step_down(&self, step: &Arc<WalkStep>, dir: &OwnedFd, name: Box<[u8]>) -> Result<Arc<WalkStep>> {
        let stat = self.ours(stat::at(dir, &name).nfs()?)?;
        let hint = if step.up.is_some() { step.hint.below(step.key.ino) } else { step.hint };
        Ok(Arc::new(WalkStep { key: stat.key, hint, depth: step.depth + 1, up: Some((step.clone(), name)) }))
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
    use crate::local::Options;

    /// What a walk came to that met these failures and found nothing.
    fn after(failures: &[Status]) -> Result<Option<Status>> {
        let mut errors = WalkErrors::default();
        failures.iter().try_for_each(|why| errors.note(*why))?;
        Ok(match errors.missed() {
            WalkOutcome::Failed(why) => Some(why),
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

    #[test]
    fn a_long_way_is_forgotten_in_little_room() {
        let step = |up| WalkStep { key: InodeKey { ino: 1, birth_ns: 0 }, hint: PathHint::default(), depth: 0, up };
        let forget = move || {
            let bottom = (0..100_000).fold(step(None), |up, _| step(Some((Arc::new(up), Box::default()))));
            drop(bottom);
        };
        std::thread::Builder::new().stack_size(64 << 10).spawn(forget).unwrap().join().unwrap();
    }

    /// `d/d/...`, and beside each of them a directory that is looked at when all below it was.
    fn comb(top: &std::path::Path, depth: usize) {
        let mut at = std::fs::File::open(top).map(OwnedFd::from).unwrap();
        for _ in 0..depth {
            ["d", "e"].iter().for_each(|name| rustix::fs::mkdirat(&at, *name, Mode::RWXU).unwrap());
            at = openat(&at, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn a_walk_is_as_long_as_there_are_directories_however_deep() {
        const DEPTH: usize = 300;
        let dir = tempfile::tempdir().unwrap();
        comb(dir.path(), DEPTH);
        let fs = LocalDisk::open(dir.path(), Options::new([0; 8])).unwrap();
        let mut budget = SearchBudget::new(&fs.disk.search_limit);
        let nothing = (InodeKey { ino: u64::MAX, birth_ns: 0 }, PathHint::default());
        let walk = Walker::new(&fs, nothing, usize::MAX, &mut budget).run(|_, _| true).unwrap();
        assert!(matches!(walk, WalkOutcome::NotFound | WalkOutcome::Changed));
        let entries = 2 * (2 * DEPTH + 1) + 2 * DEPTH;
        assert_eq!(budget.spent(), (2 * DEPTH + 1) * DIR_COST + entries);
    }

    #[test]
    fn a_walk_goes_no_deeper_than_things_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        comb(dir.path(), DEPTH_MAX + 50);
        let fs = LocalDisk::open(dir.path(), Options::new([0; 8])).unwrap();
        let mut budget = SearchBudget::new(&fs.disk.search_limit);
        let nothing = (InodeKey { ino: u64::MAX, birth_ns: 0 }, PathHint::default());
        drop(Walker::new(&fs, nothing, usize::MAX, &mut budget).run(|_, _| true).unwrap());
        assert!(budget.spent() < (2 * DEPTH_MAX + 1) * (DIR_COST + 4));
        std::process::Command::new("rm").arg("-rf").arg(dir.path()).status().unwrap();
    }
}
