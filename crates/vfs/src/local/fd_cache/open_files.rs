//! Files opened for their data, and a small cache of them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use remora_wire::nfs3::{Attr, FileType, Stable, Status};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::local::LocalDisk;
use crate::local::creds::thread_creds;
use crate::local::fd_cache::weak_fd::{self, WeakFd};
use crate::local::handles::file_id::{self, InodeKey};
use crate::local::handles::resolve::OpenObject;
use crate::local::inode::stat;
use crate::local::sync::dirty_files::DirtyFiles;
use crate::local::sys::errno;
use crate::local::sys::lru_cache::lru_cache;
use crate::{Cred, FileId, Result, perm};

/// A file that nobody writes to for so long is not cache open for writing.
pub(crate) const WRITING_IDLE: Duration = Duration::from_secs(5);

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OpenMode {
    Read,
    Write,
}

impl OpenMode {
    pub(crate) fn flags(self) -> OFlags {
        match self {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::WRONLY,
        }
    }
}

/// A file opened for its data.
#[derive(Clone)]
pub(crate) struct OpenFile {
    pub(crate) fd: Arc<OwnedFd>,
    /// Who was let in.
    cred: Cred,
    /// How often it has been taken from the cache.
    uses: u64,
    /// When the way to it was last gone.
    verified_at: Instant,
    /// When it was last taken.
    used_at: Instant,
}

impl OpenFile {
    pub(crate) fn new(fd: Arc<OwnedFd>, cred: &Cred) -> OpenFile {
        let now = Instant::now();
        OpenFile { fd, cred: cred.clone(), uses: 0, verified_at: now, used_at: now }
    }
}

/// WeakFd files by object and mode. An open file serves the caller that it was opened for,
/// as a local one would, for a while: somebody else may have moved it out of the export, or have
/// taken the caller's permission away. Where callers differ a change of mode or owner closes it.
/// What owes a flush stays open beside, whatever becomes of it here.
pub(crate) struct FileCache {
    cache: Mutex<LruCache<(InodeKey, OpenMode), OpenFile>>,
    /// Files that must not be closed yet.
    pub(crate) dirty: DirtyFiles,
    revalidate_after: Duration,
}

impl FileCache {
    /// Holds at most `limit` files open, and as many as `owing` that owe a flush, and goes the way to them again after
    /// `revalidate_after`.
    pub(crate) fn new(limit: usize, owing: usize, revalidate_after: Duration) -> FileCache {
        FileCache { cache: Mutex::new(lru_cache(limit)), dirty: DirtyFiles::new(owing), revalidate_after }
    }

    fn is_fresh(&self, data: &OpenFile) -> bool {
        data.verified_at.elapsed() < self.revalidate_after
    }

    /// The way to it has been gone again.
    fn mark_verified(&self, key: InodeKey, mode: OpenMode) {
        if let Some(data) = self.lock().get((key, mode)) {
            data.verified_at = Instant::now();
        }
    }

    /// Closes what has no name any more; whether there was any. Somebody else removed it, and its
    /// room is not free before that.
    pub(crate) fn close_removed(&self) -> bool {
        self.close_without(|fd| stat::links(fd))
    }

    /// Closes what has no `links`; whether there was any.
    pub(crate) fn close_without(&self, links: impl Fn(&OwnedFd) -> rustix::io::Result<u32>) -> bool {
        let open = self.lock().open(|_, _| true);
        let gone = weak_fd::filter_open(open, |fd| links(fd) == Ok(0));
        let some = self.lock().remove_all(&gone, |_| true);
        // What owes is closed last of all: it may give back much room.
        self.dirty.close_removed(links) | some
    }

    /// Closes what has been open for writing for nothing as long as `idle`, and owes nothing: nobody can run it as a
    /// program, nor make its file system read-only.
    pub(crate) fn close_idle(&self, idle: Duration) {
        let is_idle = |data: &OpenFile| data.used_at.elapsed() >= idle && Arc::strong_count(&data.fd) == 1;
        let mut files = self.lock();
        let unused = files.open(|mode, data| mode == OpenMode::Write && is_idle(data));
        // Those at which somebody looks are open twice for that long.
        files.remove_all(&unused, |_| true);
    }

    /// Closes what has been open for reading for nothing as long as `idle`.
    fn close_unread(&self, idle: Duration) {
        let mut files = self.lock();
        let open = files.open(|mode, data| mode == OpenMode::Read && data.used_at.elapsed() >= idle);
        files.remove_all(&open, |_| true);
    }

    fn get(&self, key: InodeKey, mode: OpenMode, cred: &Cred) -> Option<OpenFile> {
        let mut files = self.lock();
        let data = files.get((key, mode)).filter(|data| data.cred == *cred)?;
        data.uses += 1;
        data.used_at = Instant::now();
        Some(data.clone())
    }

    /// How often the file has been taken, if nobody has it but the cache and `sharing` who
    /// have written and wait for its flush, or flush it. Who takes it from now on makes that more.
    pub(crate) fn idle(&self, key: InodeKey, data: &OpenFile, sharing: usize) -> Option<u64> {
        let mut files = self.lock();
        let cached = files.get((key, OpenMode::Write)).filter(|d| Arc::ptr_eq(&d.fd, &data.fd))?;
        (Arc::strong_count(&cached.fd) <= 1 + sharing).then_some(cached.uses)
    }

    /// Closes the file if nobody has taken it verified_at that was its `uses`.
    pub(crate) fn close_unless_taken(&self, key: InodeKey, data: &OpenFile, uses: u64) {
        let mut files = self.lock();
        let last = files.get((key, OpenMode::Write)).is_some_and(|d| Arc::ptr_eq(&d.fd, &data.fd) && d.uses == uses);
        if last {
            files.remove((key, OpenMode::Write));
        }
    }

    /// The file, if it is open for whatever mode: to know it by, not to use.
    pub(crate) fn held(&self, key: InodeKey) -> Option<Arc<OwnedFd>> {
        let mut files = self.lock();
        [OpenMode::Write, OpenMode::Read].into_iter().find_map(|mode| files.get((key, mode)).map(|d| d.fd.clone()))
    }

    pub(crate) fn put(&self, key: InodeKey, mode: OpenMode, data: OpenFile) {
        self.lock().insert((key, mode), data);
    }

    /// The file has lost its last name.
    pub(crate) fn gone(&self, key: InodeKey) {
        self.close(key);
        self.dirty.forget(key);
    }

    /// Closes the file, as soon as nobody is using it and it owes nothing.
    pub(crate) fn close(&self, key: InodeKey) {
        let mut files = self.lock();
        files.remove((key, OpenMode::Read));
        files.remove((key, OpenMode::Write));
    }

    fn lock(&self) -> LockedFiles<'_> {
        LockedFiles { cache: self.cache.lock().unwrap_or_else(PoisonError::into_inner), evicted: Vec::new() }
    }
}

/// The open files, locked. What leaves them is closed when the lock is free again, for its place is behind the lock's: a
/// large file that was removed may take seconds.
struct LockedFiles<'a> {
    cache: MutexGuard<'a, LruCache<(InodeKey, OpenMode), OpenFile>>,
    evicted: Vec<OpenFile>,
}

impl LockedFiles<'_> {
    fn get(&mut self, file: (InodeKey, OpenMode)) -> Option<&mut OpenFile> {
        self.cache.get_mut(&file)
    }

    fn insert(&mut self, file: (InodeKey, OpenMode), data: OpenFile) {
        self.evicted.extend(self.cache.push(file, data).map(|(_, left)| left));
    }

    fn remove(&mut self, file: (InodeKey, OpenMode)) {
        self.evicted.extend(self.cache.pop(&file));
    }

    /// Those that are `wanted`.
    fn open(&self, wanted: impl Fn(OpenMode, &OpenFile) -> bool) -> Vec<WeakFd<(InodeKey, OpenMode)>> {
        let wanted = self.cache.iter().filter(|((_, mode), data)| wanted(*mode, data));
        wanted.map(|(file, data)| WeakFd::new(*file, &data.fd)).collect()
    }

    /// Has those of `open` leave that are still open, and that `which` says so of; whether there were any.
    fn remove_all(&mut self, open: &[WeakFd<(InodeKey, OpenMode)>], which: impl Fn(&OpenFile) -> bool) -> bool {
        for file in open {
            if self.cache.peek(&file.key).is_some_and(|data| file.is(&data.fd) && which(data)) {
                self.remove(file.key);
            }
        }
        !self.evicted.is_empty()
    }
}

impl LocalDisk {
    /// Opens the regular file `id` for `cred`. It may have been removed: see [`LocalDisk::still`].
    pub(crate) fn data(&self, cred: &Cred, id: &FileId, mode: OpenMode) -> Result<(OpenFile, InodeKey)> {
        let (key, _) = file_id::decode(id).ok_or(Status::BadHandle)?;
        self.disk.protected.check(key)?;
        let open = self.disk.files.get(key, mode, self.disk.creds.effective(cred));
        if let Some(data) = open.filter(|data| self.disk.files.is_fresh(data)) {
            return Ok((data, key));
        }
        let object = self.resolve(id)?;
        Ok((self.data_of(cred, &object, mode)?, key))
    }

    /// The attributes of an open file, if it still has a name.
    pub(crate) fn still(&self, key: InodeKey, data: &OpenFile) -> Result<Attr> {
        let attr = self.look(&data.fd)?.attr;
        if attr.nlink > 0 {
            return Ok(attr);
        }
        self.disk.files.gone(key);
        Err(Status::Stale)
    }

    /// An object's data, opened for `cred` now or before: regular files only.
    pub(crate) fn data_of(&self, cred: &Cred, object: &OpenObject, mode: OpenMode) -> Result<OpenFile> {
        match self.disk.files.get(object.key, mode, self.disk.creds.effective(cred)) {
            Some(data) if self.disk.files.is_fresh(&data) => Ok(data),
            // All callers are one, whose file it is: nobody has lost a permission.
            Some(data) if !self.disk.creds.impersonates() => {
                self.disk.files.mark_verified(object.key, mode);
                Ok(data)
            }
            _ => self.open_data(cred, object, mode),
        }
    }

    /// Keeps what `cred` made, and opened for writing: its mode may not let its maker write, but
    /// whoever makes a file may, as on a local disk.
    pub(crate) fn keep_made(&self, cred: &Cred, object: &OpenObject) {
        let data = OpenFile::new(object.fd.clone(), self.disk.creds.effective(cred));
        self.disk.files.put(object.key, OpenMode::Write, data);
    }

    /// Makes what was written by `data` as stable as asked. With nothing left to flush the
    /// file is closed: while it is open for writing this machine cannot run it as a program. One that takes
    /// [owner_write](crate::local::fd_cache::owner_write) to open is not closed for each WRITE.
    pub(crate) fn flush(&self, key: InodeKey, data: OpenFile, attr: &Attr, stable: Stable) -> Result<()> {
        let opens_easily = self.disk.creds.impersonates() || attr.mode & 0o200 != 0;
        self.sync_data(key, data, stable, opens_easily)
    }

    /// Closes files that were made, or cut short, and that nobody has written to verified_at.
    pub(crate) fn close_idle(&self, idle: Duration) {
        self.disk.files.close_idle(idle);
        // It may have been opened while it was removed, and be hidden until it is closed.
        if self.disk.caps.silly_renames {
            self.disk.files.close_unread(idle);
        }
    }

    fn open_data(&self, cred: &Cred, object: &OpenObject, mode: OpenMode) -> Result<OpenFile> {
        match object.attr.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        let as_caller = {
            let _as_caller = self.disk.creds.assume(cred)?;
            reopen(object, mode.flags())
        };
        let fd = match as_caller {
            Err(Errno::ACCESS) if self.let_in(cred, object, mode)? => self.open_as_server(object, mode),
            done => done,
        };
        let data = OpenFile::new(Arc::new(fd.map_err(errno::status)?), self.disk.creds.effective(cred));
        self.disk.files.put(object.key, mode, data.clone());
        Ok(data)
    }

    /// Whether one who may not open the file may use it all the same: its owner, who may have opened
    /// it before it took its own permission away, and to read it whoever may execute it. See
    /// [`perm::may_read`].
    fn let_in(&self, cred: &Cred, object: &OpenObject, mode: OpenMode) -> Result<bool> {
        let executes = || Ok(mode == OpenMode::Read && self.granted(cred, object, perm::X)? != 0);
        if perm::owns(self.disk.creds.effective(cred), &object.attr) { Ok(true) } else { executes() }
    }

    fn open_as_server(&self, object: &OpenObject, mode: OpenMode) -> rustix::io::Result<OwnedFd> {
        thread_creds::restore();
        match mode {
            OpenMode::Write if !self.disk.creds.impersonates() => self.open_with_owner_write(object),
            OpenMode::Read | OpenMode::Write => reopen(object, mode.flags()),
        }
    }

    /// Opens a regular file in any way that lets the server sync it.
    pub(crate) fn open_for_sync(&self, object: &OpenObject) -> Option<OwnedFd> {
        thread_creds::restore();
        reopen(object, OFlags::RDONLY).or_else(|_| reopen(object, OFlags::WRONLY)).ok()
    }
}

/// Opens the object that a descriptor names, not what is under its name by now.
pub(crate) fn reopen(object: &OpenObject, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, object.proc_path(), flags, Mode::empty())
}
