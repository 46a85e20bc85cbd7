//! Operations on one object: attributes, data, stability.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use remora_wire::nfs3::{Attr, FileType, NfsTime, SetAttr, SetTime, Stable, Status, Wcc};
use rustix::fs::{
    AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmodat, chownat, ftruncate, readlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwrite};

use crate::local::LocalDisk;
use crate::local::creds::caller_creds;
use crate::local::creds::thread_creds;
use crate::local::fd_cache::open_files::OpenMode;
use crate::local::handles::resolve::OpenObject;
use crate::local::inode::stat;
use crate::local::sys::errno::OrStatus;
use crate::perm::W;
use crate::{Cred, FileId, Result, attrs};

impl LocalDisk {
    pub(crate) fn do_setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        self.writable()?;
        attrs::check(attr)?;
        let object = self.resolve(id)?;
        self.disk.protected.check(object.key)?;
        let wcc = {
            let _locks = self.disk.op_locks.lock(&[object.key]);
            let before = stat::of(&object.fd).nfs()?.attr;
            if guard.is_some_and(|ctime| ctime != before.ctime) {
                return Err(Status::NotSync);
            }
            self.apply(cred, &object, attr)?;
            Wcc { before: Some(before.wcc()), after: Some(self.look(&object.fd)?.attr) }
        };
        // The server's user, if it is everybody, goes on with what it has open.
        if self.disk.creds.impersonates() && (attr.mode.is_some() || attr.uid.is_some() || attr.gid.is_some()) {
            self.disk.files.close(object.key);
        }
        if *attr != SetAttr::NONE {
            self.sync_object(&object)?;
        }
        Ok(wcc)
    }

    /// Sets attributes as `cred`: what fails most likely first, the mode behind the owner,
    /// since a new owner clears the set-id bits, the times last, since all else moves them.
    pub(crate) fn apply(&self, cred: &Cred, object: &OpenObject, attr: &SetAttr) -> Result<()> {
        let resized = match attr.size {
            Some(size) if i64::try_from(size).is_err() => return Err(Status::FBig),
            Some(size) => Some((self.data_of(cred, object, OpenMode::Write)?, size)),
            None => None,
        };
        let as_caller = self.disk.creds.assume(cred)?;
        if let Some((data, size)) = &resized {
            let size = *size;
            ftruncate(&data.fd, size).nfs()?;
        }
        if attr.uid.is_some() || attr.gid.is_some() {
            let (uid, gid) =
                (attr.uid.map(caller_creds::uid).transpose()?, attr.gid.map(caller_creds::gid).transpose()?);
            chownat(&object.fd, c"", uid, gid, AtFlags::EMPTY_PATH).nfs()?;
        }
        // Symbolic links have no mode of their own.
        if let Some(mode) = attr.mode.filter(|_| object.attr.kind != FileType::SymLink) {
            let mode = Mode::from_raw_mode(mode & attrs::MODE_MASK);
            let _no_loan = self.disk.mode_locks.lock(&[object.key]);
            chmodat(CWD, object.proc_path(), mode, AtFlags::empty()).nfs()?;
        }
        drop(as_caller);
        match (attr.atime, attr.mtime) {
            (SetTime::Keep, SetTime::Keep) => Ok(()),
            // The new size has moved it. So Linux's client says that it opens a file to write it anew.
            (SetTime::Keep, SetTime::Server) if resized.is_some() => Ok(()),
            (atime, mtime) => self.set_times(cred, object, atime, mtime),
        }
    }

    fn set_times(&self, cred: &Cred, object: &OpenObject, atime: SetTime, mtime: SetTime) -> Result<()> {
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        let set = || utimensat(&object.fd, c"", &times, AtFlags::EMPTY_PATH);
        let as_caller = {
            let _as_caller = self.disk.creds.assume(cred)?;
            set()
        };
        // Who may write a file may move its times to now: both by utimensat(2), one without the
        // other only by reading or writing it.
        let is_now = matches!((atime, mtime), (SetTime::Server, SetTime::Keep) | (SetTime::Keep, SetTime::Server));
        match as_caller {
            Err(Errno::PERM) if is_now && self.disk.creds.impersonates() && self.granted(cred, object, W)? != 0 => {
                thread_creds::restore();
                set().nfs()
            }
            done => done.nfs(),
        }
    }

    pub(crate) fn do_readlink(&self, id: &FileId) -> Result<Bytes> {
        let object = self.resolve(id)?;
        if object.attr.kind != FileType::SymLink {
            return Err(Status::Inval);
        }
        Ok(readlinkat(&object.fd, c"", Vec::new()).nfs()?.into_bytes().into())
    }

    pub(crate) fn do_read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        let (data, key) = self.data(cred, id, OpenMode::Read)?;
        let attr = self.still(key, &data)?;
        // Never more than there is, so that a large count costs nothing, and nothing at all
        // behind the end, where offsets may be larger than the kernel takes.
        let want = u64::from(count).min(attr.size.saturating_sub(offset)) as usize;
        let mut bytes = Vec::with_capacity(want);
        while bytes.len() < want {
            let at = offset + bytes.len() as u64;
            match pread(&data.fd, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => break, // somebody truncated it meanwhile
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(crate::local::sys::errno::status(e)),
            }
        }
        bytes.truncate(want);
        let eof = bytes.len() < want || offset.saturating_add(want as u64) >= attr.size;
        Ok((bytes.into(), eof))
    }

    pub(crate) fn do_write(
        &self,
        cred: &Cred,
        id: &FileId,
        offset: u64,
        bytes: &[u8],
        stable: Stable,
    ) -> Result<(Wcc, Stable)> {
        self.writable()?;
        let (data, key) = self.data(cred, id, OpenMode::Write)?;
        if bytes.is_empty() {
            let attr = self.still(key, &data)?;
            return Ok((Wcc { before: Some(attr.wcc()), after: Some(attr) }, Stable::FileSync));
        }
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Status::FBig);
        }
        let (before, after, overdue) = {
            let _locks = self.disk.op_locks.lock(&[key]);
            let before = self.still(key, &data)?;
            {
                // What the kernel does for a writer goes by who writes, not by who opened:
                // a stranger's write clears the set-id bits, quotas bind, and the room that
                // is kept for root stays root's.
                let _as_caller = self.disk.creds.assume(cred)?;
                self.with_room(|| write_all(&data.fd, offset, bytes))?;
            }
            let after = self.look(&data.fd)?.attr;
            (before, after, self.disk.files.dirty.mark_dirty(key, &data.fd))
        };
        let wcc = Wcc { before: Some(before.wcc()), after: Some(after) };
        if let Some(overdue) = overdue {
            self.disk.flush_overdue(overdue);
        }
        // Outside the lock: writes that arrive meanwhile go on.
        self.flush(key, data, &before, stable)?;
        Ok((wcc, stable))
    }

    pub(crate) fn do_commit(&self, cred: &Cred, id: &FileId) -> Result<Wcc> {
        self.writable()?;
        let (data, key) = self.data(cred, id, OpenMode::Write)?;
        let attr = self.still(key, &data)?;
        self.flush(key, data, &attr, Stable::FileSync)?;
        // A commit changes nothing, so before and after are the same, and nothing came between.
        Ok(Wcc { before: Some(attr.wcc()), after: Some(attr) })
    }
}

/// A directory before, and now.
pub(crate) fn wcc(before: Attr, fd: &OwnedFd) -> Result<Wcc> {
    Ok(Wcc { before: Some(before.wcc()), after: Some(stat::of(fd).nfs()?.attr) })
}

fn write_all(fd: &OwnedFd, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match pwrite(fd, bytes, offset) {
            Ok(0) => return Err(Status::NoSpc),
            Ok(n) => {
                offset += n as u64;
                bytes = bytes.get(n..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(crate::local::sys::errno::status(e)),
        }
    }
    Ok(())
}

pub(crate) fn timespec(time: SetTime) -> Timespec {
    match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Server => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(t) => Timespec { tv_sec: i64::from(t.secs), tv_nsec: t.nanos.into() },
    }
}
