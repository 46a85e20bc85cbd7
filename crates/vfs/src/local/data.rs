//! Files opened for their data, and a small cache of them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remora_wire::nfs3::{Attr, FileType, Status};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::errno::OrStatus;
use super::ids::{self, Key};
use super::recent::Recent;
use super::resolve::Object;
use super::{LocalDisk, errno, stat};
use crate::{Cred, FileId, Result, perm};

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum For {
    Reading,
    Writing,
}

/// A file opened for its data.
#[derive(Clone)]
pub(super) struct Data {
    pub(super) fd: Arc<OwnedFd>,
    /// Who was let in.
    cred: Cred,
}

/// Open files by object and purpose. An open file serves the caller that it was opened for,
/// as a local one would; a change of mode or owner closes it.
pub(super) struct OpenFiles(Mutex<Recent<(Key, For), Data>>);

impl OpenFiles {
    /// Holds at most `limit` files open.
    pub(super) fn new(limit: usize) -> OpenFiles {
        OpenFiles(Mutex::new(Recent::new(limit)))
    }

    fn get(&self, key: Key, purpose: For, cred: &Cred) -> Option<Data> {
        self.lock().get(&(key, purpose)).filter(|data| data.cred == *cred).cloned()
    }

    fn put(&self, key: Key, purpose: For, data: Data) {
        self.lock().insert((key, purpose), data);
    }

    /// Closes the file, as soon as nobody is using it.
    pub(super) fn close(&self, key: Key) {
        let mut files = self.lock();
        files.remove(&(key, For::Reading));
        files.remove(&(key, For::Writing));
    }

    fn lock(&self) -> MutexGuard<'_, Recent<(Key, For), Data>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalDisk {
    /// Opens the regular file `id` for `cred`; with its attributes.
    pub(super) fn data(&self, cred: &Cred, id: &FileId, purpose: For) -> Result<(Data, Key, Attr)> {
        let (key, _) = ids::decode(id).ok_or(Status::BadHandle)?;
        if let Some(data) = self.files.get(key, purpose, self.identity.acting(cred)) {
            let attr = stat::of(&data.fd).nfs()?.attr;
            if attr.nlink > 0 {
                return Ok((data, key, attr));
            }
            self.files.close(key);
            return Err(Status::Stale);
        }
        let object = self.resolve(id)?;
        let data = self.open_data(cred, &object, purpose)?;
        Ok((data, key, object.attr))
    }

    /// Opens an object's data for `cred`: regular files only.
    pub(super) fn open_data(&self, cred: &Cred, object: &Object, purpose: For) -> Result<Data> {
        match object.attr.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        let (flags, let_in) = match purpose {
            For::Reading => (OFlags::RDONLY, perm::may_read as fn(&Cred, &Attr) -> bool),
            For::Writing => (OFlags::WRONLY, perm::may_write as fn(&Cred, &Attr) -> bool),
        };
        let as_caller = {
            let _as_caller = self.identity.assume(cred)?;
            reopen(object, flags)
        };
        let fd = match as_caller {
            // A local process would have opened the file when it could. See `perm::may_read`.
            Err(Errno::ACCESS) if self.identity.honours() && let_in(cred, &object.attr) => reopen(object, flags),
            done => done,
        };
        let cred = self.identity.acting(cred).clone();
        let data = Data { fd: Arc::new(fd.map_err(errno::status)?), cred };
        self.files.put(object.key, purpose, data.clone());
        Ok(data)
    }

    /// Opens a regular file in any way that lets the server sync it.
    pub(super) fn open_for_sync(&self, object: &Object) -> Option<OwnedFd> {
        reopen(object, OFlags::RDONLY).or_else(|_| reopen(object, OFlags::WRONLY)).ok()
    }
}

impl Object {
    /// A path that names this very object, whatever its names are.
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

/// Opens the object that a descriptor names, not what is under its name by now.
fn reopen(object: &Object, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, object.proc_path(), flags, Mode::empty())
}
