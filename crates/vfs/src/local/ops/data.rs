//! READ, WRITE, COMMIT and READLINK, and how files are opened for them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::{Attr, FileType, Stable, Status, Wcc};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, readlinkat};
use rustix::io::{Errno, pread, pwrite};

use crate::local::creds::thread_creds;
use crate::local::disk::LocalDisk;
use crate::local::fd_cache::open_files::{OpenFile, OpenMode};
use crate::local::handles::file_id;
use crate::local::handles::tree::OpenObject;
use crate::local::inode::stat::{self, InodeKey};
use crate::local::sys::errors::{self, OrStatus};
use crate::perm;
use crate::types::{Cred, FileId, Result};

const OWNER_WRITE: u32 = 0o200;
const SET_GID: u32 = 0o2000;

impl LocalDisk {
    pub(crate) fn do_readlink(&self, id: &FileId) -> Result<Bytes> {
        let object = self.disk.tree.resolve(id)?;
        if object.attr.kind != FileType::SymLink {
            return Err(Status::Inval);
        }
        Ok(readlinkat(&object.fd, c"", Vec::new()).nfs()?.into_bytes().into())
    }

    pub(crate) fn do_read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        let (file, key) = self.open_id(cred, id, OpenMode::Read)?;
        let attr = self.live_attr(key, &file)?;
        // Allocates no more than the file has, and reads nothing beyond its end, where offsets may exceed the kernel's.
        let want = u64::from(count).min(attr.size.saturating_sub(offset)) as usize;
        let mut bytes = Vec::with_capacity(want);
        while bytes.len() < want {
            let at = offset + bytes.len() as u64;
            match pread(&file.fd, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => break, // truncated meanwhile
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(errors::status(e)),
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
        self.begin_change()?;
        let (file, key) = self.open_id(cred, id, OpenMode::Write)?;
        if bytes.is_empty() {
            let attr = self.live_attr(key, &file)?;
            return Ok((Wcc { before: Some(attr.wcc()), after: Some(attr) }, Stable::FileSync));
        }
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Status::FBig);
        }
        let (before, after, overdue) = {
            let _locks = self.disk.op_locks.lock(&[key.ino]);
            let before = self.live_attr(key, &file)?;
            {
                // The kernel checks the writer's credentials, not the opener's: another user's write clears the set-id
                // bits, quotas apply, and reserved blocks stay root's.
                let _as_caller = self.disk.creds.assume(cred)?;
                self.with_space(|| write_all(&file.fd, offset, bytes))?;
            }
            let after = self.disk.tree.stat(&file.fd)?.attr;
            (before, after, self.disk.files().dirty.mark_dirty(key, &file.fd))
        };
        let wcc = Wcc { before: Some(before.wcc()), after: Some(after) };
        if let Some(overdue) = overdue {
            self.disk.flushes.flush_overdue(overdue);
        }
        // Without the lock, so that other writes of the file continue.
        self.flush_data(key, file, &before, stable)?;
        Ok((wcc, stable))
    }

    pub(crate) fn do_commit(&self, cred: &Cred, id: &FileId) -> Result<Wcc> {
        self.begin_change()?;
        let (file, key) = self.open_id(cred, id, OpenMode::Write)?;
        let attr = self.live_attr(key, &file)?;
        self.flush_data(key, file, &attr, Stable::FileSync)?;
        // COMMIT changes no attribute.
        Ok(Wcc { before: Some(attr.wcc()), after: Some(attr) })
    }

    // --- Open files ---

    /// Opens the regular file `id` for `cred`. It may have been removed: see [`live_attr`](LocalDisk::live_attr).
    pub(crate) fn open_id(&self, cred: &Cred, id: &FileId, mode: OpenMode) -> Result<(OpenFile, InodeKey)> {
        let (key, _) = file_id::decode(id).ok_or(Status::BadHandle)?;
        self.disk.tree.protected.check(key)?;
        let cached = self.disk.files().get(key, mode, self.disk.creds.effective(cred));
        if let Some(file) = cached.filter(|file| self.disk.files().is_fresh(file)) {
            return Ok((file, key));
        }
        let object = self.disk.tree.resolve(id)?;
        Ok((self.open_file(cred, &object, mode)?, key))
    }

    /// The attributes of an open file. Fails with [`Status::Stale`] if it was removed.
    fn live_attr(&self, key: InodeKey, file: &OpenFile) -> Result<Attr> {
        let attr = self.disk.tree.stat(&file.fd)?.attr;
        if attr.nlink > 0 {
            return Ok(attr);
        }
        self.disk.files().forget(key);
        Err(Status::Stale)
    }

    /// Opens a regular file for `cred`, unless it is open.
    pub(crate) fn open_file(&self, cred: &Cred, object: &OpenObject, mode: OpenMode) -> Result<OpenFile> {
        let files = self.disk.files();
        match files.get(object.key, mode, self.disk.creds.effective(cred)) {
            Some(file) if files.is_fresh(&file) => Ok(file),
            // All callers have the server's credentials, so none has lost a permission.
            Some(file) if !self.disk.creds.impersonates() => {
                files.mark_verified(object.key, mode);
                Ok(file)
            }
            _ => self.open_uncached(cred, object, mode),
        }
    }

    fn open_uncached(&self, cred: &Cred, object: &OpenObject, mode: OpenMode) -> Result<OpenFile> {
        match object.attr.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        let as_caller = {
            let _as_caller = self.disk.creds.assume(cred)?;
            object.reopen(mode.flags())
        };
        let fd = match as_caller {
            Err(Errno::ACCESS) if self.may_bypass_mode(cred, object, mode)? => self.open_as_server(object, mode),
            done => done,
        };
        let file = OpenFile::new(Arc::new(fd.map_err(errors::status)?), self.disk.creds.effective(cred));
        self.disk.files().put(object.key, mode, file.clone());
        Ok(file)
    }

    /// Caches a file that `cred` created and has open for writing. Its creator may write it whatever its mode is, as on
    /// a local file system.
    pub(crate) fn cache_created(&self, cred: &Cred, object: &OpenObject) {
        let file = OpenFile::new(object.fd.clone(), self.disk.creds.effective(cred));
        self.disk.files().put(object.key, OpenMode::Write, file);
    }

    /// Whether a caller whom the mode denies may use the file: its owner, and for reading a user who may execute it.
    /// See [`perm::may_read`].
    fn may_bypass_mode(&self, cred: &Cred, object: &OpenObject, mode: OpenMode) -> Result<bool> {
        if perm::owns(self.disk.creds.effective(cred), &object.attr) {
            return Ok(true);
        }
        Ok(mode == OpenMode::Read && self.granted(cred, object, perm::X)? != 0)
    }

    fn open_as_server(&self, object: &OpenObject, mode: OpenMode) -> rustix::io::Result<OwnedFd> {
        thread_creds::restore();
        match mode {
            OpenMode::Write if !self.disk.creds.impersonates() => self.open_with_owner_write(object),
            OpenMode::Read | OpenMode::Write => object.reopen(mode.flags()),
        }
    }

    /// Opens a file of the server's user for writing although its mode denies that. Fails with EACCES if another user
    /// owns it.
    ///
    /// NFS checks permissions at every WRITE, a local file system only at open (RFC 1813, section 4.4). A client that
    /// creates a read-only file and fills it, as `git`, `tar` and `cp -p` do, may continue, also after a restart of the
    /// server. Root can open such a file. Another server user adds the owner's write permission for some microseconds;
    /// a crash meanwhile leaves it set. For reading nothing is added: a caller with read access only could not have
    /// changed the mode.
    fn open_with_owner_write(&self, object: &OpenObject) -> rustix::io::Result<OwnedFd> {
        // Or else a concurrent SETATTR would be undone.
        let _mode_lock = self.disk.mode_locks.lock(&[object.key.ino]);
        let mode = stat::of(&object.fd)?.attr.mode;
        // A chmod by a user outside of the file's group would clear this bit for good.
        if mode & SET_GID != 0 {
            return Err(Errno::ACCESS);
        }
        let set = |mode| chmodat(CWD, object.proc_path(), Mode::from_raw_mode(mode), AtFlags::empty());
        set(mode | OWNER_WRITE).map_err(|_| Errno::ACCESS)?;
        let opened = object.reopen(OpenMode::Write.flags());
        set(mode)?;
        opened
    }

    /// Opens a regular file in any mode that allows fsync(2).
    pub(crate) fn open_for_flush(&self, object: &OpenObject) -> Option<OwnedFd> {
        thread_creds::restore();
        object.reopen(OFlags::RDONLY).or_else(|_| object.reopen(OFlags::WRONLY)).ok()
    }

    /// Closes files that have not been used for `idle`.
    pub(crate) fn close_idle(&self, idle: Duration) {
        self.disk.files().close_idle_writers(idle);
        // A file that was opened during its removal may have a hidden name until it is closed.
        if self.disk.caps().silly_renames {
            self.disk.files().close_idle_readers(idle);
        }
    }
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
            Err(e) => return Err(errors::status(e)),
        }
    }
    Ok(())
}

/// Whether the owner may write the file by its mode.
pub(crate) fn owner_may_write(attr: &Attr) -> bool {
    attr.mode & OWNER_WRITE != 0
}
