//! Files made ahead, without a name yet, where many are being made and making one is slow.
//!
//! ext4 without a journal looks, for each new file, at all numbers of inodes that became free in the last
//! minutes ([`graveyard`](super::graveyard)), with the directory locked: after some hundreds of
//! removals, whoever's, that takes longer than all else. A file without a name (O_TMPFILE of open(2)) is made without
//! that lock. So a thread, the keeper, makes some beside those who change names, and CREATE gives one
//! of them its name. It is what it would be if it had been made then:
//!
//! * it was made by the same caller, in the same directory, with the same mode;
//! * what else it has of the directory, the set-gid bit's group, is part of what it is asked for by,
//!   and directories with a default ACL are served in the ordinary way;
//! * its times are set before it gets its name, but for its birth, which NFS does not tell.
//!
//! It is up to a second old. So of a directory that somebody changes and changes back within that time it
//! may have what was handed down in between, and what chattr(1) has a directory hand down may be as old.
//!
//! What nobody takes is held a while longer for its number, as small files that were removed are.

mod shelves;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use remora_wire::nfs3::{Attr, Status};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, futimens, linkat, openat};
use rustix::io::Errno;

use super::acting;
use super::errno::OrStatus;
use super::ids::Key;
use super::resolve::Folder;
use super::{Disk, LocalDisk, stat};
use crate::{Cred, Result};
use shelves::{Order, STALE, Shelves};

pub(super) use shelves::Pattern;

/// A keeper with nothing to do for so long goes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A disk's.
#[derive(Default)]
pub(super) struct Stock(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    shelves: Shelves<OwnedFd>,
    keeper: Keeper,
    /// The disk is gone.
    closed: bool,
}

/// Most disks never need one.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Keeper {
    #[default]
    None,
    /// There is something to do for one.
    Wanted,
    There,
}

impl Stock {
    /// Starts the keeper if one is wanted. It ends with the disk, or for want of work.
    pub(super) fn start_if_wanted(disk: &Arc<Disk>) {
        let mut state = disk.stock.0.lock();
        if state.keeper != Keeper::Wanted {
            return;
        }
        state.keeper = Keeper::There;
        drop(state);
        // It would be whoever this thread acts as.
        acting::own();
        let (shared, weak) = (disk.stock.0.clone(), Arc::downgrade(disk));
        if std::thread::Builder::new().name("stock".into()).spawn(move || keep(&weak, &shared)).is_err() {
            // There are as many threads as there may be: files are made in the ordinary way.
            disk.stock.0.lock().keeper = Keeper::None;
        }
    }

    /// One was made with its name, in so long.
    fn made(&self, took: Duration) {
        self.0.lock().shelves.made(took);
    }

    /// Nothing will be made in that directory any more.
    pub(super) fn remove(&self, dir: Key) {
        let files = self.0.lock().shelves.remove(dir);
        drop(files);
    }

    /// Somebody else may have removed directories: closes what is open of those.
    pub(super) fn close_removed(&self) {
        let gone = self.0.lock().shelves.take_removed(|dir| stat::links(dir));
        drop(gone);
    }

    /// Gives back what is there. Whether there was anything.
    pub(super) fn clear(&self) -> bool {
        let files = self.0.lock().shelves.clear();
        !files.is_empty()
    }

    /// Whether files are made ahead, or some are left.
    fn is_in_use(&self) -> bool {
        self.0.lock().shelves.are_in_use()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.lock().shelves.len()
    }

    fn take(&self, pattern: &Pattern, dir: &Arc<OwnedFd>) -> Option<OwnedFd> {
        let mut state = self.0.lock();
        let (file, low) = state.shelves.take(Instant::now(), pattern, dir);
        if low && state.keeper == Keeper::None {
            state.keeper = Keeper::Wanted;
        }
        drop(state);
        if low {
            self.0.wanted.notify_one();
        }
        file
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wanted.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to do; `None` when there is nothing more, for now at least: another keeper is started then.
    fn next_order(&self, patience: Duration) -> Option<Order<OwnedFd>> {
        let mut state = self.lock();
        let mut idle = false;
        while !state.closed {
            if let Some(order) = state.shelves.next_order(Instant::now()) {
                return Some(order);
            }
            let is_empty = state.shelves.is_empty();
            if is_empty && idle {
                break;
            }
            let wait = if is_empty { patience } else { STALE };
            let (woken, waited) = self.wanted.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
            (state, idle) = (woken, is_empty && waited.timed_out());
        }
        state.keeper = Keeper::None;
        None
    }
}

/// The keeper's work.
fn keep(disk: &Weak<Disk>, shared: &Shared) {
    while let Some(order) = shared.next_order(PATIENCE) {
        let Some(disk) = disk.upgrade() else { return };
        match order {
            Order::Make(pattern, dir) => match disk.make_ahead(&pattern, &dir) {
                Ok((file, took)) => {
                    shared.lock().shelves.made(took);
                    disk.shelve(&pattern, file);
                }
                Err(_) => shared.lock().shelves.give_up(&pattern),
            },
            Order::PutAway(files) => files.into_iter().for_each(|file| disk.keep_number(file)),
        }
    }
}

impl Disk {
    /// A file without a name, and how long it took.
    fn make_ahead(&self, pattern: &Pattern, dir: &OwnedFd) -> Result<(OwnedFd, Duration)> {
        self.release_number();
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let _as_caller = self.identity.assume(&pattern.cred)?;
        let began = Instant::now();
        let file = openat(dir, c".", flags, Mode::from_raw_mode(pattern.mode)).nfs()?;
        let took = began.elapsed();
        let has_room = self.with_graveyard(|yard| yard.has_room_for(file.as_raw_fd()));
        if has_room { Ok((file, took)) } else { Err(Status::Jukebox) }
    }

    fn shelve(&self, pattern: &Pattern, file: OwnedFd) {
        let unasked = self.stock.0.lock().shelves.put(Instant::now(), pattern, file);
        unasked.into_iter().for_each(|file| self.keep_number(file));
    }
}

impl LocalDisk {
    /// A new file `name` in `dir`, which looks like `attr`, for `cred`, as whom this thread acts.
    pub(super) fn make_file(
        &self,
        cred: &Cred,
        (dir, attr): (&Folder, &Attr),
        name: &[u8],
        mode: Mode,
    ) -> rustix::io::Result<OwnedFd> {
        if self.disk.stock.is_in_use()
            && !self.hands_down_acl(dir)
            && let Some(made) = self.name_one(cred, (dir, attr), name, mode)
        {
            return made;
        }
        self.disk.release_number();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let began = Instant::now();
        let made = openat(&dir.fd, name, flags, mode)?;
        if self.disk.kind.ways.shuns {
            self.disk.stock.made(began.elapsed());
        }
        Ok(made)
    }

    /// Gives `name` to a file that was made ahead. `None`: there is none, or it does not go that way.
    fn name_one(
        &self,
        cred: &Cred,
        (dir, attr): (&Folder, &Attr),
        name: &[u8],
        mode: Mode,
    ) -> Option<rustix::io::Result<OwnedFd>> {
        let cred = self.disk.identity.acting(cred).clone();
        let group = (attr.mode & 0o2000 != 0).then_some(attr.gid);
        let pattern = Pattern { dir: dir.key, group, cred, mode: mode.as_raw_mode() };
        let file = self.disk.stock.take(&pattern, &dir.fd)?;
        let began = Instant::now();
        match set_times_to_now(&file).and_then(|()| link(&file, dir, name)) {
            Ok(()) => {
                self.disk.stock.0.lock().shelves.named(began.elapsed());
                Some(Ok(file))
            }
            Err(Errno::EXIST) => {
                self.disk.shelve(&pattern, file);
                Some(Err(Errno::EXIST))
            }
            // The ordinary way has the last word.
            Err(_) => {
                self.disk.keep_number(file);
                None
            }
        }
    }
}

fn set_times_to_now(file: &OwnedFd) -> rustix::io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(file, &Timestamps { last_access: now, last_modification: now })
}

/// Gives an open file its first name.
pub(super) fn link(file: &OwnedFd, dir: &Folder, name: &[u8]) -> rustix::io::Result<()> {
    match linkat(file, c"", &dir.fd, name, AtFlags::EMPTY_PATH) {
        // Only root may do that; others go by /proc.
        Err(Errno::NOENT) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, path, &dir.fd, name, AtFlags::SYMLINK_FOLLOW)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests;
