//! SETATTR, and the attributes of new objects.

use std::os::fd::OwnedFd;

use remora_wire::nfs3::{Attr, FileType, NfsTime, SetAttr, SetTime, Status, Wcc};
use rustix::fs::{
    AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmodat, chownat, ftruncate, utimensat,
};
use rustix::io::Errno;

use crate::args::{self, MODE_MASK};
use crate::local::creds::thread_creds::{self, gid, uid};
use crate::local::disk::LocalDisk;
use crate::local::fd_cache::open_files::OpenMode;
use crate::local::handles::tree::OpenObject;
use crate::local::inode::stat;
use crate::local::sys::errors::OrStatus;
use crate::perm::W;
use crate::types::{Cred, FileId, Result};

impl LocalDisk {
    pub(crate) fn do_setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        self.begin_change()?;
        args::check_attrs(attr)?;
        let object = self.disk.tree.resolve(id)?;
        self.disk.tree.protected.check(object.key)?;
        let wcc = {
            let _locks = self.disk.op_locks.lock(&[object.key.ino]);
            let before = stat::of(&object.fd).nfs()?.attr;
            if guard.is_some_and(|ctime| ctime != before.ctime) {
                return Err(Status::NotSync);
            }
            self.apply(cred, &object, attr)?;
            Wcc { before: Some(before.wcc()), after: Some(self.disk.tree.stat(&object.fd)?.attr) }
        };
        // A single server user keeps what it has open.
        let permissions_change = attr.mode.is_some() || attr.uid.is_some() || attr.gid.is_some();
        if self.disk.creds.impersonates() && permissions_change {
            self.disk.files().close(object.key);
        }
        if *attr != SetAttr::NONE {
            self.flush_object(&object)?;
        }
        Ok(wcc)
    }

    /// Sets attributes as `cred`. The size comes first, because it fails most likely; the mode after the owner, because
    /// a new owner clears the set-id bits; the times last, because all others change them.
    pub(crate) fn apply(&self, cred: &Cred, object: &OpenObject, attr: &SetAttr) -> Result<()> {
        let resized = match attr.size {
            Some(size) if i64::try_from(size).is_err() => return Err(Status::FBig),
            Some(size) => Some((self.open_file(cred, object, OpenMode::Write)?, size)),
            None => None,
        };
        let as_caller = self.disk.creds.assume(cred)?;
        if let Some((file, size)) = &resized {
            ftruncate(&file.fd, *size).nfs()?;
        }
        if attr.uid.is_some() || attr.gid.is_some() {
            let (uid, gid) = (attr.uid.map(uid).transpose()?, attr.gid.map(gid).transpose()?);
            chownat(&object.fd, c"", uid, gid, AtFlags::EMPTY_PATH).nfs()?;
        }
        // Symbolic links have no mode.
        if let Some(mode) = attr.mode.filter(|_| object.attr.kind != FileType::SymLink) {
            let mode = Mode::from_raw_mode(mode & MODE_MASK);
            let _mode_lock = self.disk.mode_locks.lock(&[object.key.ino]);
            chmodat(CWD, object.proc_path(), mode, AtFlags::empty()).nfs()?;
        }
        drop(as_caller);
        match (attr.atime, attr.mtime) {
            (SetTime::Keep, SetTime::Keep) => Ok(()),
            // The new size has set mtime. Linux's client sends this for O_TRUNC.
            (SetTime::Keep, SetTime::Server) if resized.is_some() => Ok(()),
            (atime, mtime) => {
                let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
                self.set_times(cred, object, &times, is_touch(atime, mtime))
            }
        }
    }

    /// Sets the times of an object. `is_touch`: one of them to now, the other not at all.
    fn set_times(&self, cred: &Cred, object: &OpenObject, times: &Timestamps, is_touch: bool) -> Result<()> {
        let set = || utimensat(&object.fd, c"", times, AtFlags::EMPTY_PATH);
        let result = {
            let _as_caller = self.disk.creds.assume(cred)?;
            set()
        };
        // A user with write permission may set both times to now by utimensat(2), but a single one only by reading or
        // writing the file.
        match result {
            Err(Errno::PERM) if is_touch && self.disk.creds.impersonates() && self.granted(cred, object, W)? != 0 => {
                thread_creds::restore();
                set().nfs()
            }
            done => done.nfs(),
        }
    }
}

fn is_touch(atime: SetTime, mtime: SetTime) -> bool {
    matches!((atime, mtime), (SetTime::Server, SetTime::Keep) | (SetTime::Keep, SetTime::Server))
}

/// The attributes of a directory before, and now.
pub(crate) fn wcc(before: Attr, fd: &OwnedFd) -> Result<Wcc> {
    Ok(Wcc { before: Some(before.wcc()), after: Some(stat::of(fd).nfs()?.attr) })
}

pub(crate) fn timespec(time: SetTime) -> Timespec {
    match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Server => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(t) => Timespec { tv_sec: i64::from(t.secs), tv_nsec: t.nanos.into() },
    }
}
