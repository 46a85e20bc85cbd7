//! The operations of [`Vfs`] on an export.
//!
//! Read [`names`] (LOOKUP, REMOVE, RENAME, LINK) and [`create`] first, then [`attrs`], [`acls`], [`data`],
//! [`access`] and [`readdir`]. [`unlink`] releases what is open of an object that loses a name; [`stability`] flushes what an
//! operation changed. Each operation has its caller's credentials only around the system calls that need them.

mod access;
mod acls;
mod attrs;
mod create;
mod data;
mod names;
mod readdir;
mod stability;
mod unlink;

use std::sync::Arc;

use bytes::Bytes;
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Wcc,
};
use rustix::fs::{AtFlags, fstatvfs};

use crate::flush::Ledger;
use crate::local::creds::thread_creds::{self, keep_creds};
use crate::local::disk::LocalDisk;
use crate::local::fd_cache::open_files::WRITE_IDLE_MAX;
use crate::local::inode::inode_reuse::InodeReuseGuard;
use crate::local::listing::case_probe;
use crate::local::listing::open_listings::OpenListings;
use crate::local::sync::dirty_files::DIRTY_IDLE_MAX;
use crate::local::sys::errors::OrStatus;
use crate::types::{Acls, Cred, DirEnd, DirEntry, DirQuery, Features, FileId, Made, NameIn, OFFSET_MAX, Result};
use crate::vfs::Vfs;

impl LocalDisk {
    /// Restores the server's credentials, for an operation that begins with them.
    fn as_server(&self) -> &LocalDisk {
        thread_creds::restore();
        self
    }

    /// Reports the result of a read-only operation to the failure hook.
    fn watch<T>(&self, result: Result<T>) -> Result<T> {
        self.disk.flushes.failure_hook.watch(result)
    }
}

impl Vfs for LocalDisk {
    fn root(&self) -> FileId {
        self.disk.tree.root_id
    }

    fn verifier(&self) -> [u8; 8] {
        self.disk.flushes.verifier()
    }

    fn file_max(&self) -> u64 {
        self.disk.file_size_max.unwrap_or(OFFSET_MAX)
    }

    fn deferring(&self, ledger: &Arc<Ledger>) -> Option<Box<dyn Vfs>> {
        let deferral = Some(self.disk.flushes.defer(ledger));
        Some(Box::new(LocalDisk { disk: self.disk.clone(), deferral }))
    }

    fn tidy(&self) {
        self.as_server().disk.close_removed();
        self.close_idle(WRITE_IDLE_MAX);
        self.disk.listings.iter().for_each(OpenListings::close_idle);
        self.disk.release_expired_inodes();
        // Last, because it may wait for the disk.
        if self.disk.flushes.flush_idle(DIRTY_IDLE_MAX) {
            self.close_idle(WRITE_IDLE_MAX);
        }
    }

    fn getattr(&self, id: &FileId) -> Result<Attr> {
        let _kept = keep_creds();
        self.watch(self.disk.tree.attr_of(id))
    }

    fn setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        self.as_server().do_setattr(cred, id, attr, guard)
    }

    fn acls(&self, cred: &Cred, id: &FileId) -> Result<Acls> {
        let _kept = keep_creds();
        self.watch(self.do_acls(cred, id))
    }

    fn set_acls(&self, cred: &Cred, id: &FileId, acls: &Acls) -> Result<()> {
        self.as_server().do_set_acls(cred, id, acls)
    }

    fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        let _kept = keep_creds();
        self.watch(self.do_lookup(cred, dir, name))
    }

    fn access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        let _kept = keep_creds();
        self.watch(self.do_access(cred, id, wanted))
    }

    fn readlink(&self, _cred: &Cred, id: &FileId) -> Result<Bytes> {
        self.watch(self.as_server().do_readlink(id))
    }

    fn read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        let _kept = keep_creds();
        self.watch(self.do_read(cred, id, offset, count))
    }

    fn write(&self, cred: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)> {
        let _kept = keep_creds();
        self.do_write(cred, id, offset, data, stable)
    }

    fn create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        let _kept = keep_creds();
        self.do_create(cred, dir, name, how)
    }

    fn mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.as_server().do_mkdir(cred, dir, name, attr)
    }

    fn symlink(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made> {
        self.as_server().do_symlink(cred, dir, name, attr, target)
    }

    fn mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        self.as_server().do_mknod(cred, dir, name, what)
    }

    fn remove(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        let _kept = keep_creds();
        self.do_remove(cred, dir, name, AtFlags::empty())
    }

    fn rmdir(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.as_server().do_remove(cred, dir, name, AtFlags::REMOVEDIR)
    }

    fn rename(&self, cred: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs> {
        self.as_server().do_rename(cred, from, to)
    }

    fn link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.as_server().do_link(cred, id, dir, name)
    }

    fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd> {
        self.watch(self.as_server().do_readdir(cred, dir, query, take))
    }

    fn features(&self) -> Features {
        self.disk.features
    }

    fn fsstat(&self, id: &FileId) -> Result<FsStatOk> {
        self.watch(self.as_server().disk.tree.resolve(id))?;
        // A file with a hidden name frees no space, and each look at one may take a round trip.
        if !self.disk.caps().silly_renames {
            self.disk.close_removed();
        }
        self.disk.with_inode_reuse(InodeReuseGuard::release_expired);
        let s = fstatvfs(&self.disk.tree.root).nfs()?;
        let bytes = |blocks: u64| blocks.saturating_mul(s.f_frsize);
        Ok(FsStatOk {
            attr: None,
            total: bytes(s.f_blocks),
            free: bytes(s.f_bfree),
            avail: bytes(s.f_bavail),
            files: s.f_files,
            files_free: s.f_ffree,
            files_avail: s.f_favail,
            invar_secs: 0,
        })
    }

    fn pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        let tree = &self.disk.tree;
        let object = self.watch(self.as_server().disk.tree.resolve(id))?;
        let f_namemax = self.watch(fstatvfs(&tree.root).nfs())?.f_namemax;
        let dir = tree.dir_of(object);
        let open = dir.reopen_noatime().map(Arc::new).unwrap_or(dir.fd);
        let probe = || case_probe::is_case_insensitive(&open);
        Ok(self.disk.conventions.pathconf(&open, f_namemax, probe))
    }

    fn commit(&self, cred: &Cred, id: &FileId, _offset: u64, _count: u32) -> Result<Wcc> {
        let _kept = keep_creds();
        self.do_commit(cred, id)
    }
}
