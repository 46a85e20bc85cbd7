//! Files opened for their data, and a small cache of them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use remora_wire::nfs3::{Attr, FileType, Stable, Status};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::acting;
use super::ids::{self, Key};
use super::looking::{self, Open};
use super::lru_cache::lru_cache;
use super::owed::Owed;
use super::resolve::Object;
use super::{LocalDisk, errno, stat};
use crate::{Cred, FileId, Result, perm};

/// A file that nobody writes to for so long is not kept open for writing.
pub(super) const WRITING_IDLE: Duration = Duration::from_secs(5);

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum For {
    Reading,
    Writing,
}

impl For {
    pub(super) fn flags(self) -> OFlags {
        match self {
            For::Reading => OFlags::RDONLY,
            For::Writing => OFlags::WRONLY,
        }
    }
}

/// A file opened for its data.
#[derive(Clone)]
pub(super) struct Data {
    pub(super) fd: Arc<OwnedFd>,
    /// Who was let in.
    cred: Cred,
    /// How often it has been taken from the cache.
    turn: u64,
    /// When the way to it was last gone.
    since: Instant,
    /// When it was last taken.
    used: Instant,
}

impl Data {
    pub(super) fn new(fd: Arc<OwnedFd>, cred: &Cred) -> Data {
        let now = Instant::now();
        Data { fd, cred: cred.clone(), turn: 0, since: now, used: now }
    }
}

/// Open files by object and purpose. An open file serves the caller that it was opened for,
/// as a local one would, for a while: somebody else may have moved it out of the export, or have
/// taken the caller's permission away. Where callers differ a change of mode or owner closes it.
/// What owes a flush stays open beside, whatever becomes of it here.
pub(super) struct OpenFiles {
    kept: Mutex<LruCache<(Key, For), Data>>,
    /// Files that must not be closed yet.
    pub(super) owed: Owed,
    trust_for: Duration,
}

impl OpenFiles {
    /// Holds at most `limit` files open, and as many as `owing` that owe a flush, and goes the way to them again after
    /// `trust_for`.
    pub(super) fn new(limit: usize, owing: usize, trust_for: Duration) -> OpenFiles {
        OpenFiles { kept: Mutex::new(lru_cache(limit)), owed: Owed::new(owing), trust_for }
    }

    fn is_trusted(&self, data: &Data) -> bool {
        data.since.elapsed() < self.trust_for
    }

    /// The way to it has been gone again.
    fn trust_again(&self, key: Key, purpose: For) {
        if let Some(data) = self.lock().get((key, purpose)) {
            data.since = Instant::now();
        }
    }

    /// Closes what has no name any more; whether there was any. Somebody else removed it, and its
    /// room is not free before that.
    pub(super) fn close_removed(&self) -> bool {
        self.close_without(|fd| stat::links(fd))
    }

    /// Closes what has no `links`; whether there was any.
    pub(super) fn close_without(&self, links: impl Fn(&OwnedFd) -> rustix::io::Result<u32>) -> bool {
        let open = self.lock().open(|_, _| true);
        let gone = looking::select(open, |fd| links(fd) == Ok(0));
        let some = self.lock().remove_all(&gone, |_| true);
        // What owes is closed last of all: it may give back much room.
        self.owed.close_removed(links) | some
    }

    /// Closes what has been open for writing for nothing as long as `idle`, and owes nothing: nobody can run it as a
    /// program, nor make its file system read-only.
    pub(super) fn close_idle(&self, idle: Duration) {
        let is_idle = |data: &Data| data.used.elapsed() >= idle && Arc::strong_count(&data.fd) == 1;
        let mut files = self.lock();
        let unused = files.open(|purpose, data| purpose == For::Writing && is_idle(data));
        // Those at which somebody looks are open twice for that long.
        files.remove_all(&unused, |_| true);
    }

    /// Closes what has been open for reading for nothing as long as `idle`.
    fn close_unread(&self, idle: Duration) {
        let mut files = self.lock();
        let open = files.open(|purpose, data| purpose == For::Reading && data.used.elapsed() >= idle);
        files.remove_all(&open, |_| true);
    }

    fn get(&self, key: Key, purpose: For, cred: &Cred) -> Option<Data> {
        let mut files = self.lock();
        let data = files.get((key, purpose)).filter(|data| data.cred == *cred)?;
        data.turn += 1;
        data.used = Instant::now();
        Some(data.clone())
    }

    /// How often the file has been taken, if nobody has it but the cache and `sharing` who
    /// have written and wait for its flush, or flush it. Who takes it from now on makes that more.
    pub(super) fn idle(&self, key: Key, data: &Data, sharing: usize) -> Option<u64> {
        let mut files = self.lock();
        let cached = files.get((key, For::Writing)).filter(|d| Arc::ptr_eq(&d.fd, &data.fd))?;
        (Arc::strong_count(&cached.fd) <= 1 + sharing).then_some(cached.turn)
    }

    /// Closes the file if nobody has taken it since that was its `turn`.
    pub(super) fn close_unless_taken(&self, key: Key, data: &Data, turn: u64) {
        let mut files = self.lock();
        let last = files.get((key, For::Writing)).is_some_and(|d| Arc::ptr_eq(&d.fd, &data.fd) && d.turn == turn);
        if last {
            files.remove((key, For::Writing));
        }
    }

    /// The file, if it is open for whatever purpose: to know it by, not to use.
    pub(super) fn held(&self, key: Key) -> Option<Arc<OwnedFd>> {
        let mut files = self.lock();
        [For::Writing, For::Reading].into_iter().find_map(|purpose| files.get((key, purpose)).map(|d| d.fd.clone()))
    }

    pub(super) fn put(&self, key: Key, purpose: For, data: Data) {
        self.lock().insert((key, purpose), data);
    }

    /// The file has lost its last name.
    pub(super) fn gone(&self, key: Key) {
        self.close(key);
        self.owed.forget(key);
    }

    /// Closes the file, as soon as nobody is using it and it owes nothing.
    pub(super) fn close(&self, key: Key) {
        let mut files = self.lock();
        files.remove((key, For::Reading));
        files.remove((key, For::Writing));
    }

    fn lock(&self) -> Locked<'_> {
        Locked { kept: self.kept.lock().unwrap_or_else(PoisonError::into_inner), leaving: Vec::new() }
    }
}

/// The open files, locked. What leaves them is closed when the lock is free again, for its place is behind the lock's: a
/// large file that was removed may take seconds.
struct Locked<'a> {
    kept: MutexGuard<'a, LruCache<(Key, For), Data>>,
    leaving: Vec<Data>,
}

impl Locked<'_> {
    fn get(&mut self, file: (Key, For)) -> Option<&mut Data> {
        self.kept.get_mut(&file)
    }

    fn insert(&mut self, file: (Key, For), data: Data) {
        self.leaving.extend(self.kept.push(file, data).map(|(_, left)| left));
    }

    fn remove(&mut self, file: (Key, For)) {
        self.leaving.extend(self.kept.pop(&file));
    }

    /// Those that are `wanted`.
    fn open(&self, wanted: impl Fn(For, &Data) -> bool) -> Vec<Open<(Key, For)>> {
        let wanted = self.kept.iter().filter(|((_, purpose), data)| wanted(*purpose, data));
        wanted.map(|(file, data)| Open::new(*file, &data.fd)).collect()
    }

    /// Has those of `open` leave that are still open, and that `which` says so of; whether there were any.
    fn remove_all(&mut self, open: &[Open<(Key, For)>], which: impl Fn(&Data) -> bool) -> bool {
        for file in open {
            if self.kept.peek(&file.key).is_some_and(|data| file.is(&data.fd) && which(data)) {
                self.remove(file.key);
            }
        }
        !self.leaving.is_empty()
    }
}

impl LocalDisk {
    /// Opens the regular file `id` for `cred`. It may have been removed: see [`LocalDisk::still`].
    pub(super) fn data(&self, cred: &Cred, id: &FileId, purpose: For) -> Result<(Data, Key)> {
        let (key, _) = ids::decode(id).ok_or(Status::BadHandle)?;
        self.disk.closed.check(key)?;
        let open = self.disk.files.get(key, purpose, self.disk.identity.acting(cred));
        if let Some(data) = open.filter(|data| self.disk.files.is_trusted(data)) {
            return Ok((data, key));
        }
        let object = self.resolve(id)?;
        Ok((self.data_of(cred, &object, purpose)?, key))
    }

    /// The attributes of an open file, if it still has a name.
    pub(super) fn still(&self, key: Key, data: &Data) -> Result<Attr> {
        let attr = self.look(&data.fd)?.attr;
        if attr.nlink > 0 {
            return Ok(attr);
        }
        self.disk.files.gone(key);
        Err(Status::Stale)
    }

    /// An object's data, opened for `cred` now or before: regular files only.
    pub(super) fn data_of(&self, cred: &Cred, object: &Object, purpose: For) -> Result<Data> {
        match self.disk.files.get(object.key, purpose, self.disk.identity.acting(cred)) {
            Some(data) if self.disk.files.is_trusted(&data) => Ok(data),
            // All callers are one, whose file it is: nobody has lost a permission.
            Some(data) if !self.disk.identity.honours() => {
                self.disk.files.trust_again(object.key, purpose);
                Ok(data)
            }
            _ => self.open_data(cred, object, purpose),
        }
    }

    /// Keeps what `cred` made, and opened for writing: its mode may not let its maker write, but
    /// whoever makes a file may, as on a local disk.
    pub(super) fn keep_made(&self, cred: &Cred, object: &Object) {
        let data = Data::new(object.fd.clone(), self.disk.identity.acting(cred));
        self.disk.files.put(object.key, For::Writing, data);
    }

    /// Makes what was written by `data` as stable as asked. With nothing left to flush the
    /// file is closed: while it is open for writing this machine cannot run it as a program. One that takes
    /// [lending](super::lending) to open is not closed for each WRITE.
    pub(super) fn flush(&self, key: Key, data: Data, attr: &Attr, stable: Stable) -> Result<()> {
        let opens_easily = self.disk.identity.honours() || attr.mode & 0o200 != 0;
        self.sync_data(key, data, stable, opens_easily)
    }

    /// Closes files that were made, or cut short, and that nobody has written to since.
    pub(super) fn close_idle(&self, idle: Duration) {
        self.disk.files.close_idle(idle);
        // It may have been opened while it was removed, and be hidden until it is closed.
        if self.disk.kind.hides_open {
            self.disk.files.close_unread(idle);
        }
    }

    fn open_data(&self, cred: &Cred, object: &Object, purpose: For) -> Result<Data> {
        match object.attr.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        let as_caller = {
            let _as_caller = self.disk.identity.assume(cred)?;
            reopen(object, purpose.flags())
        };
        let fd = match as_caller {
            Err(Errno::ACCESS) if self.let_in(cred, object, purpose)? => self.open_as_server(object, purpose),
            done => done,
        };
        let data = Data::new(Arc::new(fd.map_err(errno::status)?), self.disk.identity.acting(cred));
        self.disk.files.put(object.key, purpose, data.clone());
        Ok(data)
    }

    /// Whether one who may not open the file may use it all the same: its owner, who may have opened
    /// it before it took its own permission away, and to read it whoever may execute it. See
    /// [`perm::may_read`].
    fn let_in(&self, cred: &Cred, object: &Object, purpose: For) -> Result<bool> {
        let executes = || Ok(purpose == For::Reading && self.granted(cred, object, perm::X)? != 0);
        if perm::owns(self.disk.identity.acting(cred), &object.attr) { Ok(true) } else { executes() }
    }

    fn open_as_server(&self, object: &Object, purpose: For) -> rustix::io::Result<OwnedFd> {
        acting::own();
        match purpose {
            For::Writing if !self.disk.identity.honours() => self.lend(object),
            For::Reading | For::Writing => reopen(object, purpose.flags()),
        }
    }

    /// Opens a regular file in any way that lets the server sync it.
    pub(super) fn open_for_sync(&self, object: &Object) -> Option<OwnedFd> {
        acting::own();
        reopen(object, OFlags::RDONLY).or_else(|_| reopen(object, OFlags::WRONLY)).ok()
    }
}

/// Opens the object that a descriptor names, not what is under its name by now.
pub(super) fn reopen(object: &Object, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, object.proc_path(), flags, Mode::empty())
}
