//! Stable storage, and the verifier that tells when it failed.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use remora_wire::nfs3::{FileType, Stable, Status};
use rustix::fs::{fdatasync, fsync, syncfs};
use rustix::io::Errno;

use super::LocalDisk;
use super::resolve::Object;
use crate::Result;

impl LocalDisk {
    /// What [`Vfs::verifier`](crate::Vfs::verifier) answers now.
    pub(super) fn current_verifier(&self) -> [u8; 8] {
        self.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    /// Makes an open file as stable as `stable` asks.
    pub(super) fn sync_data(&self, fd: impl AsFd, stable: Stable) -> Result<()> {
        self.synced(match stable {
            Stable::Unstable => Ok(()),
            Stable::DataSync => fdatasync(fd),
            Stable::FileSync => fsync(fd),
        })
    }

    /// Makes an object's attributes, or a directory's names, stable.
    pub(super) fn sync_object(&self, object: &Object) -> Result<()> {
        let done = match object.attr.kind {
            FileType::Directory => object.open_dir().ok().map(fsync),
            FileType::Regular => self.open_for_sync(object).map(fsync),
            _ => None,
        };
        match done {
            Some(done) if done != Err(Errno::INVAL) => self.synced(done),
            // What cannot be opened, or synced by itself, goes with everything else.
            _ => self.synced(syncfs(&self.root)),
        }
    }

    /// A failed flush may have lost what was written since the last good one, and the kernel
    /// reports it once: clients must send their uncommitted data again.
    fn synced(&self, done: rustix::io::Result<()>) -> Result<()> {
        done.map_err(|_| {
            self.verifier.fetch_add(1, Ordering::AcqRel);
            Status::Io
        })
    }
}
