//! The procedures of NFSv3 (RFC 1813, section 3.3), and of NFSv2 in its terms, over a
//! [`Vfs`](remora_vfs::Vfs).
//!
//! `files` has those about one object, `names` those that change a directory, `dirs` the
//! listings, `mnt` MOUNT's walk from a path to a handle. What is common to them is here: from
//! a handle to an object that the caller may touch, and the attributes that go with a failure.

#![expect(clippy::result_large_err, reason = "a failure carries attributes, as its reply does")]

mod dirs;
mod files;
pub(crate) mod mnt;
mod names;

use std::sync::Arc;

use remora_base::{Peer, Time};
use remora_vfs::{self as vfs, Cred, FileId, Ledger, Vfs};
use remora_wire::nfs2::DATA_MAX;
use remora_wire::nfs3::{Attr, Call, Failed, Fh, Reply, Res, Status, Wcc};

use crate::auth::Caller;
use crate::cookies::Cookies;
use crate::exports::Exported;
use crate::{Exports, Limits, Terms, Version};

/// One call's surroundings.
pub(crate) struct Exec<'a> {
    pub(crate) exports: &'a Exports,
    pub(crate) limits: &'a Limits,
    pub(crate) peer: Peer,
    /// When the call was taken.
    pub(crate) at: Time,
    pub(crate) caller: &'a Caller,
    /// The version that handles are made for and sizes must fit.
    pub(crate) version: Version,
    pub(crate) cookies: &'a Cookies,
    /// The verifier of a directory page, in place of one of zeros.
    pub(crate) listing_verf: [u8; 8],
    /// Where changes note what they owe to stable storage; `None` if they are to be stable at
    /// once.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// An object that a handle stands for, and as whom the caller acts on it.
struct Object<'a> {
    exports: &'a Exports,
    exported: &'a Exported,
    terms: &'a Terms,
    /// The file system through which changes are deferred, if they are.
    deferring: Option<Box<dyn Vfs>>,
    version: Version,
    id: FileId,
    cred: Cred,
}

impl Exec<'_> {
    /// Executes `call`.
    pub(crate) fn run(&self, call: &Call) -> Reply {
        match call {
            Call::Null => Reply::Null,
            Call::GetAttr(fh) => Reply::GetAttr(self.get_attr(fh)),
            Call::SetAttr(a) => Reply::SetAttr(self.set_attr(a)),
            Call::Lookup(a) => Reply::Lookup(self.lookup(a)),
            Call::Access(a) => Reply::Access(self.access(a)),
            Call::ReadLink(fh) => Reply::ReadLink(self.read_link(fh)),
            Call::Read(a) => Reply::Read(self.read(a)),
            Call::Write(a) => Reply::Write(self.write(a)),
            Call::Create(a) => Reply::Create(self.create(a)),
            Call::MkDir(a) => Reply::MkDir(self.mkdir(a)),
            Call::SymLink(a) => Reply::SymLink(self.symlink(a)),
            Call::MkNod(a) => Reply::MkNod(self.mknod(a)),
            Call::Remove(a) => Reply::Remove(self.remove(a)),
            Call::RmDir(a) => Reply::RmDir(self.rmdir(a)),
            Call::Rename(a) => Reply::Rename(self.rename(a)),
            Call::Link(a) => Reply::Link(self.link(a)),
            Call::ReadDir(a) => Reply::ReadDir(self.read_dir(a)),
            Call::ReadDirPlus(a) => Reply::ReadDirPlus(self.read_dir_plus(a)),
            Call::FsStat(fh) => Reply::FsStat(self.fs_stat(fh)),
            Call::FsInfo(fh) => Reply::FsInfo(self.fs_info(fh)),
            Call::PathConf(fh) => Reply::PathConf(self.path_conf(fh)),
            Call::Commit(a) => Reply::Commit(self.commit(a)),
        }
    }

    /// The attributes behind `fh`.
    pub(crate) fn attr(&self, fh: &Fh) -> Option<Attr> {
        self.object(fh).ok()?.attr()
    }

    /// Largest READ, WRITE or directory page for this caller, in bytes.
    fn io_max(&self) -> u32 {
        match self.version {
            // A reply to its WRITE cannot say that less was written. This fits any datagram.
            Version::V2 => DATA_MAX,
            Version::V3 => self.limits.io_max(self.peer.path),
        }
    }

    fn object(&self, fh: &Fh) -> Result<Object<'_>, Status> {
        let (exported, terms, id) = self.exports.resolve(fh, self.peer.addr)?;
        let cred = terms.cred(self.caller);
        let deferring = self.ledger.as_ref().and_then(|ledger| exported.export.vfs.deferring(ledger));
        Ok(Object { exports: self.exports, exported, terms, deferring, version: self.version, id, cred })
    }

    /// Does something that changes nothing; a failure brings the object's attributes.
    fn look<T>(&self, fh: &Fh, op: impl FnOnce(&Object) -> vfs::Result<T>) -> Res<T, Option<Attr>> {
        let object = self.object(fh).map_err(|status| Failed { status, info: None })?;
        op(&object).map_err(|status| Failed { status, info: object.attr() })
    }

    /// Does something that changes the object; a failure brings its attributes.
    fn change<T>(&self, fh: &Fh, op: impl FnOnce(&Object) -> vfs::Result<T>) -> Res<T, Wcc> {
        let object = self.object(fh).map_err(|status| Failed { status, info: Wcc::NONE })?;
        let result = object.writable().and_then(|()| op(&object));
        result.map_err(|status| Failed { status, info: object.wcc() })
    }
}

impl Object<'_> {
    fn vfs(&self) -> &dyn Vfs {
        self.deferring.as_deref().unwrap_or(&*self.exported.export.vfs)
    }

    fn attr(&self) -> Option<Attr> {
        self.vfs().getattr(&self.id).ok()
    }

    /// The object as it is; how it was before is not known.
    fn wcc(&self) -> Wcc {
        Wcc { before: None, after: self.attr() }
    }

    fn read_only(&self) -> bool {
        self.terms.read_only
    }

    fn writable(&self) -> vfs::Result<()> {
        if self.read_only() { Err(Status::RoFs) } else { Ok(()) }
    }

    /// The handle of another object of the same export.
    fn handle(&self, id: &FileId) -> Fh {
        self.exports.handle(self.exported, id, self.version)
    }

    /// Whether the other one is of the same export.
    fn same_export(&self, other: &Object) -> vfs::Result<()> {
        if std::ptr::eq(self.exported, other.exported) { Ok(()) } else { Err(Status::XDev) }
    }
}
