//! Releases what is open of an object that loses a name.
//!
//! On most file systems an open object without a name stays anonymous, and its link count shows that the name was the
//! last. Where it would get a hidden name
//! ([`FsCaps::silly_renames`](crate::local::inode::fs_caps::FsCaps::silly_renames)), which blocks the removal of its
//! directory, everything of it is closed first, as knfsd does (EXPORT_OP_CLOSE_BEFORE_UNLINK).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use remora_wire::nfs3::FileType;
use rustix::io::Errno;

use crate::local::disk::LocalDisk;
use crate::local::handles::tree::{OpenDir, OpenObject};
use crate::local::inode::stat::{self, InodeKey};
use crate::local::listing::open_listings::OpenListings;
use crate::local::sync::flush::FlushContext;

/// A failed flush of a file that loses a name. Unless the file is gone by then, the drop changes the write verifier,
/// which tells the writers.
struct LostWrites {
    flushes: Arc<FlushContext>,
    error: Errno,
    is_reported: bool,
}

impl LostWrites {
    /// The file is gone: its writers need not repeat anything.
    fn dismiss(mut self) {
        self.is_reported = true;
    }
}

impl Drop for LostWrites {
    fn drop(&mut self) {
        if !self.is_reported {
            self.flushes.report_loss(self.error);
        }
    }
}

/// An object that is about to lose a name.
pub(crate) struct UnlinkTarget {
    key: InodeKey,
    kind: FileType,
    /// The object, unless it must be closed.
    fd: Option<Arc<OwnedFd>>,
    lost_writes: Option<LostWrites>,
}

impl UnlinkTarget {
    /// A target that stays open.
    pub(crate) fn open(object: OpenObject) -> UnlinkTarget {
        UnlinkTarget { key: object.key, kind: object.attr.kind, fd: Some(object.fd), lost_writes: None }
    }

    /// Whether the object has no name left.
    fn is_gone(&self) -> bool {
        match &self.fd {
            Some(fd) => stat::links(fd) == Ok(0),
            // A link count from before may be outdated, cached or invented, as by sshfs.
            None => self.kind == FileType::Directory,
        }
    }
}

impl LocalDisk {
    /// Prepares `object` for the loss of a name.
    pub(crate) fn prepare_unlink(&self, object: OpenObject) -> UnlinkTarget {
        if object.attr.kind == FileType::Directory {
            self.disk.listings.iter().for_each(|listings: &OpenListings| listings.close(object.key));
        }
        if !self.disk.caps().silly_renames {
            return UnlinkTarget::open(object);
        }
        let OpenObject { fd, key, attr, .. } = object;
        // The object may survive, by another name or because the removal fails. A loss of its data must be reported.
        let lost = self.disk.flushes.flush_before_unlink(key).err();
        let mut lost_writes =
            lost.map(|error| LostWrites { flushes: self.disk.flushes.clone(), error, is_reported: false });
        // If it has another name, report the loss at once.
        drop(lost_writes.take_if(|_| stat::uncached(&fd).is_ok_and(|now| now.attr.nlink > 1)));
        drop(fd);
        self.disk.files().close(key);
        self.disk.tree.dirs.close(key);
        UnlinkTarget { key, kind: attr.kind, fd: None, lost_writes }
    }

    /// `name` in `dir` no longer leads to the target.
    pub(crate) fn finish_unlink(&self, dir: &OpenDir, name: &[u8], target: UnlinkTarget) {
        if !target.is_gone() {
            // If that is unknown, a later request for the object searches for it.
            self.disk.tree.paths().forget_name(target.key, dir.key, name);
            if target.fd.is_none() {
                self.disk.files().close(target.key);
            }
            let has_cached_name = self.disk.tree.paths().name_of(target.key).is_some();
            if !has_cached_name {
                target.lost_writes.into_iter().for_each(LostWrites::dismiss);
            }
            return;
        }
        let UnlinkTarget { key, fd, .. } = target;
        self.disk.tree.paths().removed(key);
        self.disk.files().forget(key);
        self.disk.tree.dirs.close(key);
        if let Some(fd) = fd {
            self.disk.with_inode_reuse(|guard| guard.hold(key, fd));
        }
    }
}
