//! Searches the tree for an object that is not at a cached path: after a restart, or after another program renamed it.
//!
//! A walk opens each directory from the one above it, which is open or reached again by `..`. It resolves the whole
//! path from the root, which may be long, only for an object that it has found.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use remora_wire::nfs3::{Attr, Status};
use rustix::fs::{FileType, Timespec};
use rustix::time::{ClockId, clock_gettime};

use crate::local::creds::thread_creds;
use crate::local::fd_cache::open_dirs::VerifiedDir;
use crate::local::handles::file_id::PathHint;
use crate::local::handles::path_cache::DEPTH_MAX;
use crate::local::handles::search_limit::{DIR_COST, SearchBudget};
use crate::local::handles::tree::{ExportTree, OpenObject, open_beneath, open_name};
use crate::local::inode::stat::{self, InodeKey};
use crate::local::listing::getdents::scan;
use crate::local::sys::errors::OrStatus;
use crate::types::Result;

/// How often the tree is walked if directories change meanwhile. A walk misses an object that moves from a directory
/// that it has not examined yet to one that it has.
const WALKS_MAX: usize = 3;
/// Walks of at most this many entries run concurrently: they take a tenth of a second.
const CONCURRENT_MAX: usize = 200_000;

/// What a search looks for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) key: InodeKey,
    /// The hint in the id of the request. The object keeps it, because clients compare ids.
    pub(crate) hint: PathHint,
}

/// Searches for `key`, first where `hint` points, then everywhere. Each walk examines at most
/// [`ExportTree::search_entries_max`] entries.
///
/// Fails with [`Status::Stale`] if the object is not found, with another error if parts of the tree could not be
/// examined (clients drop their state of a stale file), and with [`Status::Jukebox`] if too many long searches run.
pub(crate) fn search(tree: &ExportTree, key: InodeKey, hint: PathHint) -> Result<OpenObject> {
    if let Some(status) = tree.paths().missing(key) {
        return Err(status);
    }
    thread_creds::restore();
    let (wanted, mut budget) = (Wanted { key, hint }, SearchBudget::new(&tree.search_limit));
    let hinted = Walker::new(tree, wanted, tree.search_entries_max, &mut budget);
    if let WalkOutcome::Found(object) = hinted.run(|depth, dir| hint.leads_through(depth, dir))? {
        return Ok(object);
    }
    let (mut took, mut status) = (Duration::ZERO, Status::Stale);
    for _ in 0..WALKS_MAX {
        let began = Instant::now();
        let outcome = walk_everywhere(tree, wanted, &mut budget)?;
        took = began.elapsed();
        match outcome {
            WalkOutcome::Found(object) => return Ok(object),
            WalkOutcome::Changed => {}
            WalkOutcome::Failed(error) | WalkOutcome::LimitReached(WalkErrors { failed: Some(error), .. }) => {
                status = error;
                break;
            }
            WalkOutcome::LimitReached(_) | WalkOutcome::NotFound => break,
        }
    }
    tree.paths().not_found(key, took, status);
    Err(status)
}

fn walk_everywhere(tree: &ExportTree, wanted: Wanted, budget: &mut SearchBudget<'_>) -> Result<WalkOutcome> {
    let max = tree.search_entries_max;
    match Walker::new(tree, wanted, max.min(CONCURRENT_MAX), budget).run(|_, _| true)? {
        WalkOutcome::LimitReached(_) if max > CONCURRENT_MAX => {
            let _exclusive = tree.search_limit.exclusive()?;
            // An earlier exclusive search may have looked for the same object.
            if let Some(status) = tree.paths().missing(wanted.key) {
                return Err(status);
            }
            Walker::new(tree, wanted, max, budget).run(|_, _| true)
        }
        outcome => Ok(outcome),
    }
}

/// The result of a walk.
pub(crate) enum WalkOutcome {
    Found(OpenObject),
    NotFound,
    /// Not found, but a directory changed meanwhile: the object may have moved.
    Changed,
    /// There are more entries than the walk may examine.
    LimitReached(WalkErrors),
    /// Not found, but this error hid parts of the tree.
    Failed(Status),
}

/// The errors that a walk met.
#[derive(Clone, Copy, Default)]
pub(crate) struct WalkErrors {
    changed: bool,
    /// The first error of the disk.
    failed: Option<Status>,
}

impl WalkErrors {
    /// Records an error. Returns it if the walk must end.
    fn note(&mut self, error: Status) -> Result<()> {
        match error {
            // Another program removed the object or replaced it, perhaps by a symbolic link.
            Status::NoEnt | Status::Stale | Status::NotDir | Status::Inval => self.changed = true,
            // The server's user has no permission, or another file system is mounted there.
            Status::Access | Status::Perm | Status::XDev => {}
            // A temporary shortage. The same search may succeed soon.
            Status::Jukebox => return Err(error),
            error => self.failed = self.failed.or(Some(error)),
        }
        Ok(())
    }

    /// The outcome of a walk that examined everything else and did not find the object.
    fn outcome(self) -> WalkOutcome {
        match self.failed {
            Some(error) => WalkOutcome::Failed(error),
            None if self.changed => WalkOutcome::Changed,
            None => WalkOutcome::NotFound,
        }
    }
}

/// A directory to examine, and the path to it.
struct WalkStep {
    key: InodeKey,
    hint: PathHint,
    depth: usize,
    /// The directory above and the name there; `None` for the root.
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
    /// Iterative: a recursive drop of a long path would overflow the stack.
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some((step, _)) = up {
            up = Arc::into_inner(step).and_then(|mut step| step.up.take());
        }
    }
}

/// One walk down from the root.
pub(crate) struct Walker<'a, 'b> {
    tree: &'a ExportTree,
    wanted: Wanted,
    /// Entries that it may still examine.
    entries_left: usize,
    budget: &'a mut SearchBudget<'b>,
    errors: WalkErrors,
    began: Timespec,
    todo: Vec<Arc<WalkStep>>,
    /// The directory from which the last one was opened. The next one is in it or in one above it.
    at: Arc<WalkStep>,
    /// The directory `at`, open.
    fd: Arc<OwnedFd>,
}

impl<'a, 'b> Walker<'a, 'b> {
    /// A walk that examines at most `entries_max` entries.
    pub(crate) fn new(
        tree: &'a ExportTree,
        wanted: Wanted,
        entries_max: usize,
        budget: &'a mut SearchBudget<'b>,
    ) -> Self {
        let root = Arc::new(WalkStep { key: tree.root_key, hint: PathHint::default(), depth: 0, up: None });
        Walker {
            tree,
            wanted,
            entries_left: entries_max,
            budget,
            errors: WalkErrors::default(),
            began: clock_gettime(ClockId::RealtimeCoarse),
            todo: vec![root.clone()],
            at: root,
            fd: tree.root.clone(),
        }
    }

    /// Walks into the directories for which `enter(depth, inode number)` is true.
    pub(crate) fn run(mut self, enter: impl Fn(usize, u64) -> bool) -> Result<WalkOutcome> {
        while let Some(step) = self.todo.pop() {
            match self.open(&step) {
                Ok(dir) => {
                    if let Some(object) = self.examine(&step, &Arc::new(dir), &enter)? {
                        return Ok(WalkOutcome::Found(object));
                    }
                }
                Err(error) => self.errors.note(error)?,
            }
            if self.entries_left == 0 {
                return Ok(WalkOutcome::LimitReached(self.errors));
            }
        }
        Ok(self.errors.outcome())
    }

    /// Examines the entries of a directory. Returns the wanted object if it is one of them.
    fn examine(
        &mut self,
        step: &Arc<WalkStep>,
        dir: &Arc<OwnedFd>,
        enter: &impl Fn(usize, u64) -> bool,
    ) -> Result<Option<OpenObject>> {
        let mut hits: Vec<Box<[u8]>> = Vec::new();
        let mut subdirs: Vec<Box<[u8]>> = Vec::new();
        let (wanted, left, budget) = (self.wanted.key.ino, &mut self.entries_left, &mut *self.budget);
        let scanned = scan(dir, 0, |entry| {
            budget.spend(1)?;
            *left = left.saturating_sub(1);
            let name = entry.file_name().to_bytes();
            if entry.ino() == wanted && !matches!(name, b"." | b"..") {
                hits.push(Box::from(name));
            } else if step.depth < DEPTH_MAX && is_subdir(entry) && enter(step.depth, entry.ino()) {
                subdirs.push(Box::from(name));
            }
            Ok(*left > 0)
        });
        for name in hits {
            match self.check_hit(step, dir, &name) {
                Ok(object) => return Ok(Some(object)),
                // Another object with this inode number, or it is gone: the directory's ctime shows that.
                Err(Status::Stale) => {}
                Err(error) => self.errors.note(error)?,
            }
        }
        if let Err(error) = scanned {
            self.errors.note(error)?;
        }
        if self.entries_left > 0 {
            // After the hits, because the object may move while they are checked.
            self.errors.changed |= stat::of(dir).is_ok_and(|now| changed_since(&now.attr, self.began));
            self.enqueue(step, dir, subdirs)?;
        }
        Ok(None)
    }

    fn enqueue(&mut self, step: &Arc<WalkStep>, dir: &Arc<OwnedFd>, names: Vec<Box<[u8]>>) -> Result<()> {
        let before = self.todo.len();
        for name in names {
            match self.step_down(step, dir, name) {
                Ok(below) => self.todo.push(below),
                Err(error) => self.errors.note(error)?,
            }
        }
        if self.todo.len() > before {
            (self.at, self.fd) = (step.clone(), dir.clone());
        }
        Ok(())
    }

    fn step_down(&self, step: &Arc<WalkStep>, dir: &OwnedFd, name: Box<[u8]>) -> Result<Arc<WalkStep>> {
        let stat = self.tree.localize_exported(stat::at(dir, &name).nfs()?)?;
        let hint = if step.up.is_some() { step.hint.below(step.key.ino) } else { step.hint };
        Ok(Arc::new(WalkStep { key: stat.key, hint, depth: step.depth + 1, up: Some((step.clone(), name)) }))
    }

    fn open(&mut self, step: &Arc<WalkStep>) -> Result<OwnedFd> {
        self.budget.spend(DIR_COST)?;
        let fd = match &step.up {
            None => self.tree.root.clone(),
            Some((parent, name)) => {
                if self.climb(parent).is_err() {
                    self.walk_to(parent)?;
                }
                Arc::new(open_beneath(&self.fd, name).nfs()?)
            }
        };
        self.tree.verify_still(fd, step.key, step.hint)?.as_dir().reopen_noatime()
    }

    /// Climbs by `..` to a directory above. Fails if a directory on the way was moved.
    fn climb(&mut self, to: &Arc<WalkStep>) -> Result<()> {
        while !Arc::ptr_eq(&self.at, to) {
            let (parent, _) = self.at.up.as_ref().ok_or(Status::Stale)?;
            self.fd = self.tree.verify_still(open_name(&self.fd, b"..")?, parent.key, parent.hint)?.fd;
            self.at = parent.clone();
        }
        Ok(())
    }

    /// Walks to a directory from the root.
    fn walk_to(&mut self, step: &Arc<WalkStep>) -> Result<()> {
        self.entries_left = self.entries_left.saturating_sub(step.depth);
        self.budget.spend(step.depth)?;
        let fd = Arc::new(self.tree.open_path(&step.names()).nfs()?);
        self.fd = self.tree.verify_still(fd, step.key, step.hint)?.fd;
        self.at = step.clone();
        Ok(())
    }

    /// Checks an entry with the wanted inode number. If it is the object, caches the path to it.
    fn check_hit(&mut self, step: &Arc<WalkStep>, dir: &OwnedFd, name: &[u8]) -> Result<OpenObject> {
        let (Wanted { key, hint }, tree) = (self.wanted, self.tree);
        tree.verify(open_name(dir, name)?, key, hint)?;
        // The open directory may have left the export meanwhile.
        let dir = VerifiedDir::now(Arc::new(tree.open_path(&step.names()).nfs()?));
        tree.verify_still(dir.fd.clone(), step.key, step.hint)?;
        let object = tree.verify(open_name(&dir.fd, name)?, key, hint)?;
        let mut paths = tree.paths();
        paths.put(key, step.key, name, hint);
        let mut at = step;
        while let Some((parent, name)) = &at.up {
            paths.put(at.key, parent.key, name, at.hint);
            at = parent;
        }
        drop(paths);
        tree.dirs.put(step.key, dir);
        Ok(object)
    }
}

fn changed_since(attr: &Attr, time: Timespec) -> bool {
    (i64::from(attr.ctime.secs), i64::from(attr.ctime.nanos)) >= (time.tv_sec, time.tv_nsec)
}

fn is_subdir(entry: &rustix::fs::RawDirEntry<'_>) -> bool {
    let maybe = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
    maybe && !matches!(entry.file_name().to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure of a walk that met these errors and found nothing.
    fn failure_after(errors: &[Status]) -> Result<Option<Status>> {
        let mut noted = WalkErrors::default();
        errors.iter().try_for_each(|error| noted.note(*error))?;
        Ok(match noted.outcome() {
            WalkOutcome::Failed(error) => Some(error),
            _ => None,
        })
    }

    #[test]
    fn disk_error_during_walk_is_not_stale() {
        assert_eq!(failure_after(&[]), Ok(None));
        assert_eq!(failure_after(&[Status::NoEnt, Status::Access, Status::Stale]), Ok(None));
        assert_eq!(failure_after(&[Status::Access, Status::Io, Status::NoEnt, Status::NxIo]), Ok(Some(Status::Io)));
        assert_eq!(failure_after(&[Status::Io, Status::Jukebox]), Err(Status::Jukebox));
    }

    #[test]
    fn long_path_is_dropped_on_a_small_stack() {
        let key = InodeKey { ino: 1, birth_ns: 0 };
        let step = move |up| WalkStep { key, hint: PathHint::default(), depth: 0, up };
        let drop_path = move || {
            let bottom = (0..100_000).fold(step(None), |up, _| step(Some((Arc::new(up), Box::default()))));
            drop(bottom);
        };
        std::thread::Builder::new().stack_size(64 << 10).spawn(drop_path).unwrap().join().unwrap();
    }
}
