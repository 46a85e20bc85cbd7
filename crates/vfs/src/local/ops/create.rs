//! CREATE, MKDIR, SYMLINK and MKNOD.
//!
//! The verifier of an exclusive CREATE (RFC 1813, section 3.3.8) is stored in the file's times. They are set before the
//! file gets its name, so a server that crashes in between has created nothing, and a retransmitted request never finds
//! its own file without the verifier.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use remora_wire::nfs3::{CreateHow, FileType, NodeKind, SetAttr, SpecData, Status, Wcc};
use rustix::fs::{
    AtFlags, CWD, FileType as UnixFileType, Mode, OFlags, Timespec, Timestamps, chmodat, fgetxattr, futimens, linkat,
    makedev, mkdirat, mknodat, openat, symlinkat,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::args;
use crate::local::creds::thread_creds;
use crate::local::disk::LocalDisk;
use crate::local::handles::tree::{OpenDir, OpenObject, proc_path};
use crate::local::inode::inode_reuse::TICK_MAX;
use crate::local::inode::stat::{self, InodeStat};
use crate::local::ops::acls::DEFAULT;
use crate::local::ops::attrs::{timespec, wcc};
use crate::local::ops::names::TRIES_MAX;
use crate::local::ops::unlink::UnlinkTarget;
use crate::local::sys::errors::OrStatus;
use crate::local::sys::syscalls::unlinkat;
use crate::types::{Cred, FileId, Made, Result};

/// The largest device numbers of Linux.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

impl LocalDisk {
    pub(crate) fn do_create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        self.begin_change()?;
        args::check_new_name(name)?;
        let wish = match how {
            CreateHow::Unchecked(attr) | CreateHow::Guarded(attr) => {
                args::check_attrs(attr)?;
                args::new_attrs(self.disk.creds.effective(cred), attr, args::FILE_MODE)
            }
            CreateHow::Exclusive(verf) => args::exclusive_attrs(*verf),
        };
        for _ in 0..TRIES_MAX {
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

    /// CREATE of a name that exists.
    fn reuse(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        let tree = &self.disk.tree;
        let dir = tree.dir(dir)?;
        thread_creds::restore();
        let mut found = tree.open_child(&dir, name)?;
        let is_regular = found.attr.kind == FileType::Regular;
        match how {
            // Nothing changes: the reply describes what exists.
            CreateHow::Unchecked(_) if !is_regular => return self.reply_existing(&dir, name, found),
            CreateHow::Unchecked(attr) => {
                if let Some(size) = attr.size {
                    let _locks = self.disk.op_locks.lock(&[found.key.ino]);
                    self.apply(cred, &found, &SetAttr { size: Some(size), ..SetAttr::NONE })?;
                    found.attr = tree.stat(&found.fd)?.attr;
                }
            }
            CreateHow::Exclusive(verf) if is_regular && args::is_exclusive(*verf, &found.attr) => {}
            _ => return Err(Status::Exist),
        }
        // Even if nothing changed: the flush of the first request may still be running.
        self.flush_object(&found)?;
        self.flush_dir(&dir)?;
        self.reply_existing(&dir, name, found)
    }

    fn reply_existing(&self, dir: &OpenDir, name: &[u8], found: OpenObject) -> Result<Made> {
        let id = self.disk.tree.register(dir, name, found.key)?;
        let after = dir.attr()?;
        Ok(Made { id, attr: found.attr, dir: Wcc { before: None, after: Some(after) } })
    }

    pub(crate) fn do_mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.begin_change()?;
        self.disk.tree.check_depth(&self.disk.tree.dir(dir)?)?;
        self.make_node(cred, dir, name, &with_mode(attr, args::DIR_MODE), |dir, mode| mkdirat(dir, name, mode))
    }

    pub(crate) fn do_symlink(
        &self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        attr: &SetAttr,
        target: &[u8],
    ) -> Result<Made> {
        args::check_target(target)?;
        self.make_node(cred, dir, name, &with_mode(attr, 0o777), |dir, _| symlinkat(target, dir, name))
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
        // 0:0 is no device but a whiteout of overlayfs, which Linux lets every user create.
        let is_whiteout = kind == UnixFileType::CharacterDevice && spec == none;
        let is_device = matches!(kind, UnixFileType::CharacterDevice | UnixFileType::BlockDevice);
        // Without impersonation the kernel would check the server's rights, not the caller's.
        if is_device && !is_whiteout && !(self.disk.creds.impersonates() && cred.uid == 0) {
            return Err(Status::Perm);
        }
        // A larger number would become another device.
        if is_device && (spec.major > MAJOR_MAX || spec.minor > MINOR_MAX) {
            return Err(Status::Inval);
        }
        let dev = makedev(spec.major, spec.minor);
        let attr = with_mode(attr, args::FILE_MODE);
        self.make_node(cred, dir, name, &attr, |dir, mode| mknodat(dir, name, kind, mode, dev))
    }

    /// Creates an object other than a regular file.
    fn make_node(
        &self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        attr: &SetAttr,
        make: impl Fn(BorrowedFd<'_>, Mode) -> rustix::io::Result<()>,
    ) -> Result<Made> {
        self.begin_change()?;
        args::check_new_name(name)?;
        args::check_attrs(attr)?;
        let wish = args::new_attrs(self.disk.creds.effective(cred), attr, args::FILE_MODE);
        let wish = SetAttr { size: None, ..wish };
        self.make(cred, dir, name, &wish, |dir, mode| make(dir.fd.as_fd(), mode).map(|()| None))
    }

    /// Creates an object with the attributes `wish` and flushes it. `make` may open it for writing.
    fn make(
        &self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        wish: &SetAttr,
        make: impl Fn(&OpenDir, Mode) -> rustix::io::Result<Option<OwnedFd>>,
    ) -> Result<Made> {
        let tree = &self.disk.tree;
        let dir = tree.dir(dir)?;
        let (child, wcc, is_atomic) = {
            let _locks = self.disk.op_locks.lock(&[dir.key.ino]);
            let (before, began) = (dir.attr()?, clock_gettime(ClockId::RealtimeCoarse));
            let opened = {
                let _as_caller = self.disk.creds.assume(cred)?;
                // Removed files may hold the last free inodes.
                self.with_space(|| make(&dir, Mode::from_raw_mode(wish.mode.unwrap_or(0))).nfs())
            };
            let child = match tree.stale_if_removed(&dir, opened)? {
                Some(fd) => tree.child_from_fd(&dir, fd).inspect(|child| self.cache_created(cred, child)),
                None => tree.open_child(&dir, name),
            };
            let mut child = child.inspect_err(|_| self.undo_unopened(&dir, name, began))?;
            let finished = self.finish_attrs(cred, &dir, &mut child, wish);
            match finished.and_then(|is_atomic| Ok((wcc(before, &dir.fd)?, is_atomic))) {
                Ok((wcc, is_atomic)) => (child, wcc, is_atomic),
                Err(status) => {
                    self.undo_make(&dir, name, child);
                    return Err(status);
                }
            }
        };
        self.flush_created(&dir, &child, is_atomic)?;
        Ok(Made { id: tree.register(&dir, name, child.key)?, attr: child.attr, dir: wcc })
    }

    /// Sets the attributes that the created object lacks. Returns whether it lacked none.
    fn finish_attrs(&self, cred: &Cred, dir: &OpenDir, made: &mut OpenObject, wish: &SetAttr) -> Result<bool> {
        let uid = wish.uid.filter(|uid| *uid != made.attr.uid);
        let gid = wish.gid.filter(|gid| *gid != made.attr.gid);
        let missing = self.umask_bits(dir, made, wish) | set_uid_beside_set_gid(made, wish);
        if missing != 0 {
            // Not as the caller, whose chmod(2) could clear an inherited set-gid bit.
            thread_creds::restore();
            let mode = Mode::from_raw_mode(made.attr.mode | missing);
            chmodat(CWD, made.proc_path(), mode, AtFlags::empty()).nfs()?;
            made.attr = self.disk.tree.stat(&made.fd)?.attr;
        }
        let rest = SetAttr {
            mode: remaining_mode(wish, made.attr.mode, uid.is_some() || gid.is_some()),
            uid,
            gid,
            size: wish.size.filter(|size| *size != 0),
            ..wish.clone()
        };
        self.apply(cred, made, &rest)?;
        if rest != SetAttr::NONE {
            made.attr = self.disk.tree.stat(&made.fd)?.attr;
        }
        Ok(missing == 0 && rest == SetAttr::NONE)
    }

    /// The bits of the requested mode that this process's umask removed. Under a default ACL the umask does not apply,
    /// and the ACL removed them.
    fn umask_bits(&self, dir: &OpenDir, made: &OpenObject, wish: &SetAttr) -> u32 {
        let removed = wish.mode.unwrap_or(0) & !made.attr.mode & self.disk.umask & 0o777;
        if removed == 0 || made.attr.kind == FileType::SymLink {
            return 0;
        }
        thread_creds::restore();
        if self.has_default_acl(dir) { 0 } else { removed }
    }

    /// Whether the directory has a default ACL. True if unknown.
    pub(crate) fn has_default_acl(&self, dir: &OpenDir) -> bool {
        let Some(open) = self.open_dir_for_flush(dir) else { return true };
        let length = fgetxattr(&open, DEFAULT, &mut [0u8; 0]);
        !matches!(length, Err(Errno::NODATA | Errno::OPNOTSUPP))
    }

    /// Creates the regular file `name` with the times of `wish`, which hold the verifier. Without O_TMPFILE the caller
    /// sets the times after the name exists.
    fn make_exclusive(&self, dir: &OpenDir, name: &[u8], mode: Mode, wish: &SetAttr) -> rustix::io::Result<OwnedFd> {
        // O_TMPFILE ignores a default ACL.
        let unnamed = if self.has_default_acl(dir) { None } else { make_unnamed(dir, mode, wish) };
        match unnamed.map(|file| (link_unnamed(&file, dir, name), file)) {
            Some((Ok(()), file)) => Ok(file),
            Some((Err(Errno::EXIST), _)) => Err(Errno::EXIST),
            _ => make_file(dir, name, mode),
        }
    }

    // --- Undo ---

    fn undo_make(&self, dir: &OpenDir, name: &[u8], child: OpenObject) {
        thread_creds::restore();
        // Another program may have put another object there.
        if stat::at(&dir.fd, name).is_ok_and(|found| self.disk.tree.localize(found).key == child.key) {
            let (kind, target) = (child.attr.kind, self.prepare_unlink(child));
            unmake(dir, name, kind);
            self.finish_unlink(dir, name, target);
        } else {
            self.finish_unlink(dir, name, UnlinkTarget::open(child));
        }
    }

    /// Removes an object that was created at `began` or later and cannot be opened, for want of descriptors. Otherwise
    /// the client's retry would find it and fail.
    fn undo_unopened(&self, dir: &OpenDir, name: &[u8], began: Timespec) {
        thread_creds::restore();
        if let Ok(found) = stat::at(&dir.fd, name)
            && is_born_since(&found, began)
        {
            unmake(dir, name, found.attr.kind);
        }
    }
}

/// Creates the regular file `name`, open for writing. Fails with EEXIST if the name exists.
fn make_file(dir: &OpenDir, name: &[u8], mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&dir.fd, name, flags, mode)
}

/// A file without a name and with the times of `wish`; `None` if the file system has no such files.
fn make_unnamed(dir: &OpenDir, mode: Mode, wish: &SetAttr) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(&dir.fd, c".", flags, mode).ok()?;
    let times = Timestamps { last_access: timespec(wish.atime), last_modification: timespec(wish.mtime) };
    futimens(&file, &times).ok()?;
    Some(file)
}

/// Gives a file its first name.
fn link_unnamed(file: &OwnedFd, dir: &OpenDir, name: &[u8]) -> rustix::io::Result<()> {
    match linkat(file, c"", &dir.fd, name, AtFlags::EMPTY_PATH) {
        // Without CAP_DAC_READ_SEARCH only the path in /proc works.
        Err(Errno::NOENT) => linkat(CWD, proc_path(file), &dir.fd, name, AtFlags::SYMLINK_FOLLOW),
        done => done,
    }
}

/// Removes a created object. If this fails, an incomplete object remains; the caller gets the first error.
fn unmake(dir: &OpenDir, name: &[u8], kind: FileType) {
    let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    let _ = unlinkat(&dir.fd, name, flags);
}

/// `attr` with a mode: its own or else `default`.
fn with_mode(attr: &SetAttr, default: u32) -> SetAttr {
    SetAttr { mode: Some(attr.mode.unwrap_or(default)), ..attr.clone() }
}

/// The mode that an object created with mode `made` still needs: with the bits that mkdir(2) ignores, and those that a
/// new owner or group clears.
fn remaining_mode(wish: &SetAttr, made: u32, changes_owner: bool) -> Option<u32> {
    let missing = wish.mode? & !made & 0o7000;
    (missing != 0 || changes_owner && made & 0o6000 != 0).then_some(made | missing)
}

/// The requested set-uid bit of a new directory that inherits the set-gid bit: mkdir(2) ignores the first, and the
/// second must not be lost.
fn set_uid_beside_set_gid(made: &OpenObject, wish: &SetAttr) -> u32 {
    let inherits = made.attr.kind == FileType::Directory && made.attr.mode & 0o2000 != 0;
    if inherits { wish.mode.unwrap_or(0) & !made.attr.mode & 0o4000 } else { 0 }
}

/// Whether the object was born at `began` or later, as far as the file system shows.
fn is_born_since(found: &InodeStat, began: Timespec) -> bool {
    let since = Duration::new(began.tv_sec as u64, began.tv_nsec as u32);
    match found.key.birth_ns {
        0 => u64::from(found.attr.ctime.secs) >= since.as_secs(),
        birth => Duration::from_nanos(birth) + TICK_MAX >= since,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_born_since_accepts_new_objects_only() {
        let dir = tempfile::tempdir().unwrap();
        let began = clock_gettime(ClockId::RealtimeCoarse);
        let at = |secs| Timespec { tv_sec: began.tv_sec + secs, tv_nsec: began.tv_nsec };
        std::fs::write(dir.path().join("f"), b"").unwrap();
        let mut found = stat::of(std::fs::File::open(dir.path().join("f")).unwrap()).unwrap();
        for birth_ns in [found.key.birth_ns, 0] {
            found.key.birth_ns = birth_ns;
            assert!(is_born_since(&found, began) && is_born_since(&found, at(-5)));
            assert!(!is_born_since(&found, at(5)));
        }
    }
}
