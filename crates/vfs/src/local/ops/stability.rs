//! Flushes what an operation changed, or defers the flush.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use remora_wire::nfs3::{Attr, FileType, Stable};

use crate::local::creds::thread_creds;
use crate::local::disk::LocalDisk;
use crate::local::fd_cache::open_files::OpenFile;
use crate::local::handles::file_id::PathHint;
use crate::local::handles::tree::{OpenDir, OpenObject};
use crate::local::inode::fs_caps::FsCaps;
use crate::local::inode::stat::InodeKey;
use crate::local::ops::data::owner_may_write;
use crate::local::sync::flush::FlushTarget;
use crate::types::Result;

/// A directory that is open for fsync(2).
struct DirFd {
    key: InodeKey,
    fd: Arc<OwnedFd>,
}

impl LocalDisk {
    /// Makes the data of an open file as stable as `stable`. Afterwards an idle file is closed, because this machine
    /// cannot execute it while it is open for writing. A file that [needs the owner's write
    /// permission](LocalDisk::open_with_owner_write) to be opened stays open.
    pub(crate) fn flush_data(&self, key: InodeKey, file: OpenFile, attr: &Attr, stable: Stable) -> Result<()> {
        let closes = self.disk.creds.impersonates() || owner_may_write(attr);
        match stable {
            Stable::Unstable => Ok(()),
            Stable::DataSync | Stable::FileSync => self.flush(key, FlushTarget::Data { file, stable, closes }),
        }
    }

    /// Makes an object's attributes stable.
    pub(crate) fn flush_object(&self, object: &OpenObject) -> Result<()> {
        let own = match object.attr.kind {
            FileType::Directory => return self.flush_dir(&object.as_dir()),
            FileType::Regular => self.open_for_flush(object).map(Arc::new),
            _ => None,
        };
        match own {
            Some(own) => self.flush_names(object.key, Some(own)),
            None => self.flush_unopenable(|| self.parent_fd(object.key)),
        }
    }

    /// Makes a created object and its name in `dir` stable. A regular file is open for its data. `is_atomic`: one
    /// system call created it with all its attributes.
    pub(crate) fn flush_created(&self, dir: &OpenDir, made: &OpenObject, is_atomic: bool) -> Result<()> {
        let names = self.open_dir_for_flush(dir);
        if is_atomic && self.shares_transaction(dir, made) {
            return self.flush_names(dir.key, names);
        }
        let own = match made.attr.kind {
            FileType::Regular => Some(made.fd.clone()),
            FileType::Directory => made.as_dir().reopen().ok().map(Arc::new),
            _ => None,
        };
        match (own, names) {
            (Some(own), Some(names)) if self.may_flush_all() => {
                self.flush(dir.key, FlushTarget::Names { dir: names, new: Some(own) })
            }
            (Some(own), names) => {
                self.flush(made.key, FlushTarget::Object(own))?;
                self.flush_names(dir.key, names)
            }
            (None, names) => self.flush_unopenable(|| Some(DirFd { key: dir.key, fd: names? })),
        }
    }

    /// Whether a journal commits the created object together with its name.
    fn shares_transaction(&self, dir: &OpenDir, made: &OpenObject) -> bool {
        let FsCaps { has_journal, acl_after_create, .. } = *self.disk.caps();
        let may_have_acl = made.attr.kind != FileType::SymLink;
        has_journal && !(acl_after_create && may_have_acl && self.has_default_acl(dir))
    }

    /// Makes a new link to `object` in `dir` stable.
    pub(crate) fn flush_linked(&self, dir: &OpenDir, object: &OpenObject) -> Result<()> {
        match object.attr.kind {
            FileType::Regular => {
                self.flush_object(object)?;
                self.flush_dir(dir)
            }
            // The journal commits the link count with the name.
            _ if self.disk.caps().has_journal => self.flush_dir(dir),
            _ => self.flush_unopenable(|| Some(DirFd { key: dir.key, fd: self.open_dir_for_flush(dir)? })),
        }
    }

    /// Makes a directory's names stable.
    pub(crate) fn flush_dir(&self, dir: &OpenDir) -> Result<()> {
        self.flush_names(dir.key, self.open_dir_for_flush(dir))
    }

    /// Makes names or attributes stable, together with those of other requests if they wait.
    fn flush_names(&self, key: InodeKey, fd: Option<Arc<OwnedFd>>) -> Result<()> {
        match fd {
            Some(dir) if self.may_flush_all() => self.flush(key, FlushTarget::Names { dir, new: None }),
            Some(fd) => self.flush(key, FlushTarget::Object(fd)),
            None => self.flush_unopenable(|| None),
        }
    }

    /// Flushes an object that cannot be opened: a symbolic link, pipe or device. It goes with the whole file system.
    /// Where syncfs(2) is incomplete, a flush of its directory is all that is possible besides.
    fn flush_unopenable(&self, parent: impl FnOnce() -> Option<DirFd>) -> Result<()> {
        if !self.disk.caps().syncfs_is_complete
            && let Some(DirFd { key, fd }) = parent()
        {
            self.flush(key, FlushTarget::Object(fd))?;
        }
        self.flush(self.disk.tree.root_key, FlushTarget::All)
    }

    /// Opens a directory for fsync(2), unless it is open.
    pub(crate) fn open_dir_for_flush(&self, dir: &OpenDir) -> Option<Arc<OwnedFd>> {
        self.disk.tree.dirs.syncable(dir.key, || {
            thread_creds::restore();
            dir.reopen().ok()
        })
    }

    /// The directory in which `key` was last seen.
    fn parent_fd(&self, key: InodeKey) -> Option<DirFd> {
        let (parent, _) = self.disk.tree.paths().name_of(key)?;
        let fd = self.disk.tree.open_dir(parent).ok()?.fd;
        let fd = self.open_dir_for_flush(&OpenDir { fd, key: parent, hint: PathHint::default() })?;
        Some(DirFd { key: parent, fd })
    }

    /// Whether changes of names that wait together may be flushed with the whole file system.
    fn may_flush_all(&self) -> bool {
        let FsCaps { has_journal, syncfs_is_complete, .. } = *self.disk.caps();
        !has_journal && syncfs_is_complete && self.deferral.is_some()
    }

    fn flush(&self, key: InodeKey, target: FlushTarget) -> Result<()> {
        self.disk.flushes.flush(key, target, self.deferral.as_ref())
    }
}
