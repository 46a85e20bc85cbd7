//! Operations on directories: lookup, creation, removal, renaming.
//!
//! All are relative to an open directory and take single names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::MutexGuard;
use std::time::Duration;

use remora_wire::nfs3::{Attr, CreateHow, FileType, LinkAttrs, NodeKind, RenameDirs, SetAttr, SpecData, Status, Wcc};
use rustix::fs::{
    AtFlags, CWD, FileType as UnixFileType, Mode, Timespec, chmodat, fgetxattr, linkat, makedev, mkdirat, mknodat,
    symlinkat,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::local::LocalDisk;
use crate::local::creds::thread_creds;
use crate::local::handles::resolve::{OpenDir, OpenObject};
use crate::local::inode::inode_reuse::TICK_MAX;
use crate::local::inode::stat;
use crate::local::inode::stat::InodeStat;
use crate::local::ops::exclusive::make_file;
use crate::local::ops::files::wcc;
use crate::local::ops::unlink::UnlinkTarget;
use crate::local::sys::errno::OrStatus;
use crate::local::sys::syscalls::{renameat, unlinkat};
use crate::{Cred, FileId, Made, Result, attrs, names};

/// Held while nothing else of this file system may touch the objects it was taken for.
type OpLocks<'a> = Vec<MutexGuard<'a, ()>>;

/// How often to begin again when somebody else is quicker.
const TRIES: usize = 16;

/// The largest numbers of devices.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// The mode that a new object of the mode `made` is still to get: with the bits that mkdir(2) does not
/// set, and those that a new owner or group takes away (`moves`).
fn rest_of_mode(wish: &SetAttr, made: u32, moves: bool) -> Option<u32> {
    let missing = wish.mode? & !made & 0o7000;
    (missing != 0 || moves && made & 0o6000 != 0).then_some(made | missing)
}

/// The set-user-ID bit, which mkdir(2) does not set, where the new directory has the set-group-ID bit from the one that it
/// is in: that is not to be lost.
fn missing_beside_set_gid(made: &OpenObject, wish: &SetAttr) -> u32 {
    let inherits = made.attr.kind == FileType::Directory && made.attr.mode & 0o2000 != 0;
    if inherits { wish.mode.unwrap_or(0) & !made.attr.mode & 0o4000 } else { 0 }
}

/// Takes a name back. If this fails, too, an object that is not all that was asked for stays; the caller hears of the
/// first failure.
fn unmake(dir: &OpenDir, name: &[u8], kind: FileType) {
    let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    let _ = unlinkat(&dir.fd, name, flags);
}

/// Whether that is no older than `began`, as far as the file system tells.
fn is_born_since(there: &InodeStat, began: Timespec) -> bool {
    let since = Duration::new(began.tv_sec as u64, began.tv_nsec as u32);
    match there.key.birth_ns {
        0 => u64::from(there.attr.ctime.secs) >= since.as_secs(),
        born => Duration::from_nanos(born) + TICK_MAX >= since,
    }
}

impl LocalDisk {
    pub(crate) fn do_lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        names::component(name)?;
        match name {
            b"." | b".." => {
                let dir = self.resolve_dir(dir)?;
                {
                    let _as_caller = self.disk.creds.assume(cred)?;
                    stat::at(&dir.fd, b".").nfs()?; // fails unless the caller may search
                }
                let found = if name == b"." { dir } else { self.above(&dir)? };
                Ok((self.id_of(&found).ok_or(Status::ServerFault)?, found.attr))
            }
            name => {
                let dir = self.open_dir_of(dir)?;
                let found = {
                    let _as_caller = self.disk.creds.assume(cred)?;
                    stat::at(&dir.fd, name).nfs()
                };
                let found = self.ours(self.or_stale(&dir, found)?)?;
                Ok((self.register(&dir, name, found.key)?, found.attr))
            }
        }
    }

    pub(crate) fn do_create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        self.writable()?;
        names::new_name(name)?;
        let wish = match how {
            CreateHow::Unchecked(attr) | CreateHow::Guarded(attr) => {
                attrs::check(attr)?;
                attrs::for_new(self.disk.creds.effective(cred), attr, attrs::FILE_MODE)
            }
            CreateHow::Exclusive(verf) => attrs::for_exclusive(*verf),
        };
        for _ in 0..TRIES {
            let make = |dir: &OpenDir, mode| match how {
                CreateHow::Exclusive(_) => self.make_exclusive(dir, name, mode, &wish).map(Some),
                _ => make_file(dir, name, mode).map(Some),
            };
            match self.make(cred, dir, name, &wish, make) {
                Err(Status::Exist) => {}
                done => return done,
            }
            match self.reuse(cred, dir, name, how) {
                Err(Status::NoEnt) => {} // removed in between
                done => return done,
            }
        }
        Err(Status::Jukebox)
    }

    /// CREATE met an object of that name.
    fn reuse(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        let dir = self.open_dir_of(dir)?;
        let mut there = self.as_server().open_child(&dir, name)?;
        let regular = there.attr.kind == FileType::Regular;
        match how {
            // Nothing was made, and nothing changes: who asked wants to know what is there.
            CreateHow::Unchecked(_) if !regular => return self.as_made(&dir, name, there),
            CreateHow::Unchecked(attr) => {
                if let Some(size) = attr.size {
                    let _locks = self.disk.op_locks.lock(&[there.key]);
                    self.apply(cred, &there, &SetAttr { size: Some(size), ..SetAttr::NONE })?;
                    there.attr = self.look(&there.fd)?.attr;
                }
            }
            CreateHow::Exclusive(verf) if regular && attrs::is_exclusive(*verf, &there.attr) => {}
            _ => return Err(Status::Exist),
        }
        // Also when nothing changed: the first request's sync may still be under way.
        self.sync_object(&there)?;
        self.sync_dir(&dir)?;
        self.as_made(&dir, name, there)
    }

    /// What was there as `name`, as if it had been made.
    fn as_made(&self, dir: &OpenDir, name: &[u8], there: OpenObject) -> Result<Made> {
        let id = self.register(dir, name, there.key)?;
        let after = dir.attr()?;
        Ok(Made { id, attr: there.attr, dir: Wcc { before: None, after: Some(after) } })
    }

    pub(crate) fn do_mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.writable()?;
        self.may_hold_directories(&self.open_dir_of(dir)?)?;
        self.new_object(cred, dir, name, attr, attrs::DIR_MODE, |dir, mode| mkdirat(dir, name, mode))
    }

    pub(crate) fn do_symlink(
        &self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        attr: &SetAttr,
        target: &[u8],
    ) -> Result<Made> {
        names::target(target)?;
        self.new_object(cred, dir, name, attr, 0o777, |dir, _| symlinkat(target, dir, name))
    }

    pub(crate) fn do_mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        let none = SpecData { major: 0, minor: 0 };
        let (attr, kind, spec) = match what {
            NodeKind::Char(attr, spec) => (attr, UnixFileType::CharacterDevice, *spec),
            NodeKind::Block(attr, spec) => (attr, UnixFileType::BlockDevice, *spec),
            NodeKind::Socket(attr) => (attr, UnixFileType::Socket, none),
            NodeKind::Fifo(attr) => (attr, UnixFileType::Fifo, none),
            NodeKind::Other(_) => return Err(Status::BadType),
        };
        // No device is 0:0: overlayfs takes it for a name that was removed, and Linux lets anybody make one.
        let whiteout = kind == UnixFileType::CharacterDevice && spec == none;
        let device = matches!(kind, UnixFileType::CharacterDevice | UnixFileType::BlockDevice);
        // In single-user mode the kernel would ask what the server may, not what the caller may.
        if device && !whiteout && !(self.disk.creds.impersonates() && cred.uid == 0) {
            return Err(Status::Perm);
        }
        // What Linux has room for: any other would become another device.
        if device && (spec.major > MAJOR_MAX || spec.minor > MINOR_MAX) {
            return Err(Status::Inval);
        }
        let dev = makedev(spec.major, spec.minor);
        self.new_object(cred, dir, name, attr, attrs::FILE_MODE, |dir, mode| mknodat(dir, name, kind, mode, dev))
    }

    /// What MKDIR, SYMLINK and MKNOD have in common.
    fn new_object(
        &self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        attr: &SetAttr,
        default_mode: u32,
        make: impl Fn(BorrowedFd<'_>, Mode) -> rustix::io::Result<()>,
    ) -> Result<Made> {
        self.writable()?;
        names::new_name(name)?;
        attrs::check(attr)?;
        let wish = attrs::for_new(self.disk.creds.effective(cred), attr, default_mode);
        self.make(cred, dir, name, &SetAttr { size: None, ..wish }, |dir, mode| {
            make(dir.fd.as_fd(), mode).map(|()| None)
        })
    }

    /// Makes an object with the attributes `wish` and puts it on stable storage. `make` may
    /// open it for writing.
    fn make(
        &self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        wish: &SetAttr,
        make: impl Fn(&OpenDir, Mode) -> rustix::io::Result<Option<OwnedFd>>,
    ) -> Result<Made> {
        let dir = self.open_dir_of(dir)?;
        let (child, wcc, at_once) = {
            let _locks = self.disk.op_locks.lock(&[dir.key]);
            let (before, began) = (dir.attr()?, clock_gettime(ClockId::RealtimeCoarse));
            let opened = {
                let _as_caller = self.disk.creds.assume(cred)?;
                // What was removed may hold the last inodes.
                self.with_room(|| make(&dir, Mode::from_raw_mode(wish.mode.unwrap_or(0))).nfs())
            };
            let opened = self.or_stale(&dir, opened)?;
            let child = match opened {
                Some(fd) => self.as_child(&dir, fd).inspect(|child| self.keep_made(cred, child)),
                None => self.open_child(&dir, name),
            };
            let mut child = child.inspect_err(|_| self.undo_unseen(&dir, name, began))?;
            let finished = self.finish(cred, &dir, &mut child, wish);
            match finished.and_then(|at_once| Ok((wcc(before, &dir.fd)?, at_once))) {
                Ok((wcc, at_once)) => (child, wcc, at_once),
                Err(status) => {
                    self.undo_make(&dir, name, child);
                    return Err(status);
                }
            }
        };
        self.sync_made(&dir, &child, at_once)?;
        Ok(Made { id: self.register(&dir, name, child.key)?, attr: child.attr, dir: wcc })
    }

    /// Gives what was made the attributes that it lacks; whether it lacked none.
    fn finish(&self, cred: &Cred, dir: &OpenDir, made: &mut OpenObject, wish: &SetAttr) -> Result<bool> {
        let uid = wish.uid.filter(|uid| *uid != made.attr.uid);
        let gid = wish.gid.filter(|gid| *gid != made.attr.gid);
        let missing = self.taken_by_umask(dir, made, wish) | missing_beside_set_gid(made, wish);
        let changed = missing != 0;
        if changed {
            // Not as the caller, whose chmod(2) would take the set-gid bit of the directory's away.
            thread_creds::restore();
            chmodat(CWD, made.proc_path(), Mode::from_raw_mode(made.attr.mode | missing), AtFlags::empty()).nfs()?;
            made.attr = self.look(&made.fd)?.attr;
        }
        let rest = SetAttr {
            mode: rest_of_mode(wish, made.attr.mode, uid.is_some() || gid.is_some()),
            uid,
            gid,
            size: wish.size.filter(|size| *size != 0),
            ..wish.clone()
        };
        self.apply(cred, made, &rest)?;
        if rest != SetAttr::NONE {
            made.attr = self.look(&made.fd)?.attr;
        }
        Ok(!changed && rest == SetAttr::NONE)
    }

    /// What this process's umask, if it has one, took of the mode that was wished for. Where the directory has a
    /// default ACL no umask counts, and what is missing was for the ACL to say.
    fn taken_by_umask(&self, dir: &OpenDir, made: &OpenObject, wish: &SetAttr) -> u32 {
        let taken = wish.mode.unwrap_or(0) & !made.attr.mode & self.disk.umask & 0o777;
        let counts = taken != 0 && made.attr.kind != FileType::SymLink && !self.as_server().hands_down_acl(dir);
        if counts { taken } else { 0 }
    }

    /// Whether more than the mode may say what new files in there are to be.
    pub(crate) fn hands_down_acl(&self, dir: &OpenDir) -> bool {
        let Some(open) = self.open_to_sync(dir) else { return true };
        let length = fgetxattr(&open, c"system.posix_acl_default", &mut [0u8; 0]);
        !matches!(length, Err(Errno::NODATA | Errno::OPNOTSUPP))
    }

    fn undo_make(&self, dir: &OpenDir, name: &[u8], child: OpenObject) {
        thread_creds::restore();
        // Somebody else may have put another object there.
        if stat::at(&dir.fd, name).is_ok_and(|there| self.within(there).key == child.key) {
            let (kind, leaving) = (child.attr.kind, self.prepare_unlink(child));
            unmake(dir, name, kind);
            self.finish_unlink(dir, name, leaving);
        } else {
            self.finish_unlink(dir, name, UnlinkTarget::open(child));
        }
    }

    /// What has been made since `began` could not be opened, as when no more descriptors are to be had. The name
    /// must not stay: who is told to ask again would meet it and take it for somebody else's.
    fn undo_unseen(&self, dir: &OpenDir, name: &[u8], began: Timespec) {
        thread_creds::restore();
        if let Ok(there) = stat::at(&dir.fd, name)
            && is_born_since(&there, began)
        {
            unmake(dir, name, there.attr.kind);
        }
    }

    /// REMOVE, or with [`AtFlags::REMOVEDIR`] RMDIR.
    pub(crate) fn do_remove(&self, cred: &Cred, dir: &FileId, name: &[u8], flags: AtFlags) -> Result<Wcc> {
        self.writable()?;
        names::old_name(name)?;
        let dir = self.open_dir_of(dir)?;
        let (victim, wcc) = {
            let (_locks, victim) = self.lock_child(cred, &dir, name)?;
            let before = dir.attr()?;
            let victim = victim.ok_or(Status::NoEnt)?;
            self.disk.protected.check_name(victim.key)?;
            let victim = self.prepare_unlink(victim);
            {
                let _as_caller = self.disk.creds.assume(cred)?;
                unlinkat(&dir.fd, name, flags).nfs()?;
            }
            (victim, wcc(before, &dir.fd)?)
        };
        self.finish_unlink(&dir, name, victim);
        self.sync_dir(&dir)?;
        Ok(wcc)
    }

    pub(crate) fn do_rename(&self, cred: &Cred, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<RenameDirs> {
        self.writable()?;
        names::old_name(from.1)?;
        names::old_name(to.1)?;
        let (source, target) = (self.open_dir_of(from.0)?, self.open_dir_of(to.0)?);
        let (moved, replaced, are_one, dirs) = {
            let (_locks, mut objects) = self.lock_children(cred, &[(&source, from.1), (&target, to.1)])?;
            let before = (source.attr()?, target.attr()?);
            let replaced = objects.pop().flatten();
            let moved = objects.pop().flatten().ok_or(Status::NoEnt)?;
            [Some(&moved), replaced.as_ref()]
                .into_iter()
                .flatten()
                .try_for_each(|o| self.disk.protected.check_name(o.key))?;
            if moved.attr.kind == FileType::Directory && source.key != target.key {
                self.may_hold_directories(&target)?;
            }
            // Two names of one file: the kernel leaves both.
            let are_one = replaced.as_ref().is_some_and(|there| there.key == moved.key);
            let replaced = replaced.filter(|_| !are_one).map(|there| self.prepare_unlink(there));
            {
                let _as_caller = self.disk.creds.assume(cred)?;
                renameat(&source.fd, from.1, &target.fd, to.1).nfs()?;
            }
            let dirs = RenameDirs { from: wcc(before.0, &source.fd)?, to: wcc(before.1, &target.fd)? };
            (moved, replaced, are_one, dirs)
        };
        if !are_one {
            let hint = moved.hint;
            self.paths().rename(moved.key, (source.key, from.1), (target.key, to.1), hint);
            replaced.into_iter().for_each(|there| self.finish_unlink(&target, to.1, there));
        }
        // The new name first: a crash in between must not lose the file. Without a journal it may all the same:
        // the kernel writes names when it likes, and those that wait together are flushed in any order.
        self.sync_dir(&target)?;
        if source.key != target.key {
            self.sync_dir(&source)?;
            // Its `..` is in itself, and a journal has taken it with the names.
            if moved.attr.kind == FileType::Directory && !self.disk.caps.has_journal {
                self.sync_dir(&moved.open_dir_of())?;
            }
        }
        Ok(dirs)
    }

    pub(crate) fn do_link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.writable()?;
        names::new_name(name)?;
        let mut object = self.resolve(id)?;
        self.disk.protected.check(object.key)?;
        let dir = self.open_dir_of(dir)?;
        if object.attr.kind == FileType::Directory {
            return Err(Status::IsDir);
        }
        let wcc = {
            let _locks = self.disk.op_locks.lock(&[object.key, dir.key]);
            let before = dir.attr()?;
            {
                let _as_caller = self.disk.creds.assume(cred)?;
                // The link that is followed is /proc's, which leads to the very object.
                linkat(CWD, object.proc_path(), &dir.fd, name, AtFlags::SYMLINK_FOLLOW).nfs()?;
            }
            self.paths().add_link(object.key, dir.key, name, object.hint);
            object.attr = self.look(&object.fd)?.attr;
            wcc(before, &dir.fd)?
        };
        self.sync_linked(&dir, &object)?;
        Ok(LinkAttrs { attr: Some(object.attr), dir: wcc })
    }

    /// Locks a directory together with what a name in it leads to (`None`: nothing).
    fn lock_child<'a>(&'a self, cred: &Cred, dir: &OpenDir, name: &[u8]) -> Result<(OpLocks<'a>, Option<OpenObject>)> {
        let mut locks = self.disk.op_locks.lock(&[dir.key]);
        // While the directory is locked its names do not change, unless by somebody else's doing.
        let Some(child) = self.known_child(cred, dir, name)? else { return Ok((locks, None)) };
        if self.disk.op_locks.try_lock_too(&mut locks, dir.key, child.key) {
            return Ok((locks, Some(child)));
        }
        drop(locks);
        let (locks, mut objects) = self.lock_children(cred, &[(dir, name)])?;
        Ok((locks, objects.pop().flatten()))
    }

    /// The same as [`child`](LocalDisk::child), without opening it where it is open already.
    fn known_child(&self, cred: &Cred, dir: &OpenDir, name: &[u8]) -> Result<Option<OpenObject>> {
        let found = {
            let _as_caller = self.disk.creds.assume(cred)?;
            stat::at(&dir.fd, name).nfs()
        };
        let found = match found {
            Err(Status::NoEnt) => return Ok(None),
            found => self.ours(found?)?,
        };
        match self.disk.files.held(found.key) {
            Some(fd) => Ok(Some(OpenObject { fd, key: found.key, hint: self.hint_in(dir), attr: found.attr })),
            None => self.child(cred, dir, name),
        }
    }

    /// Locks directories together with what the names in them lead to (`None`: nothing).
    fn lock_children<'a>(
        &'a self,
        cred: &Cred,
        wanted: &[(&OpenDir, &[u8])],
    ) -> Result<(OpLocks<'a>, Vec<Option<OpenObject>>)> {
        for _ in 0..TRIES {
            let found = wanted.iter().map(|(dir, name)| self.child(cred, dir, name)).collect::<Result<Vec<_>>>()?;
            let mut keys: Vec<_> = wanted.iter().map(|(dir, _)| dir.key).collect();
            keys.extend(found.iter().flatten().map(|o| o.key));
            let locks = self.disk.op_locks.lock(&keys);
            thread_creds::restore();
            // Which locks to take was known only from the names, and they may have changed.
            let still = wanted.iter().zip(&found).all(|((dir, name), object)| {
                let now = stat::at(&dir.fd, name);
                now.ok().map(|s| self.within(s).key) == object.as_ref().map(|o| o.key)
            });
            if still {
                return Ok((locks, found));
            }
        }
        Err(Status::Jukebox)
    }

    /// What `name` in `dir` is, for a caller who may search there.
    fn child(&self, cred: &Cred, dir: &OpenDir, name: &[u8]) -> Result<Option<OpenObject>> {
        let opened = {
            let _as_caller = self.disk.creds.assume(cred)?;
            self.open_child(dir, name)
        };
        match opened {
            Err(Status::NoEnt) => Ok(None),
            done => done.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let began = clock_gettime(ClockId::RealtimeCoarse);
        let at = |secs| Timespec { tv_sec: began.tv_sec + secs, tv_nsec: began.tv_nsec };
        std::fs::write(dir.path().join("f"), b"").unwrap();
        let mut there = stat::of(std::fs::File::open(dir.path().join("f")).unwrap()).unwrap();
        for born in [there.key.birth_ns, 0] {
            there.key.birth_ns = born;
            assert!(is_born_since(&there, began) && is_born_since(&there, at(-5)));
            assert!(!is_born_since(&there, at(5)));
        }
    }
}
