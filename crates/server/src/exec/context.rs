//! The context of a call, and the object that a handle names.

use std::sync::Arc;

use remora_base::{Peer, Time};
use remora_vfs::{self as vfs, Cred, FileId, Ledger, Vfs};
use remora_wire::nfs2::DATA_MAX;
use remora_wire::nfs3::{Attr, Failed, Fh, Res, Status, Wcc};

use crate::auth::Caller;
use crate::cookies::Cookies;
use crate::exports::Exported;
use crate::{Exports, Limits, Terms, Version};

/// The context of a call.
pub(crate) struct Exec<'a> {
    pub(crate) exports: &'a Exports,
    pub(crate) limits: &'a Limits,
    pub(crate) peer: Peer,
    /// When the call arrived.
    pub(crate) at: Time,
    pub(crate) caller: &'a Caller,
    /// The version whose handles and sizes the reply has.
    pub(crate) version: Version,
    pub(crate) cookies: &'a Cookies,
    /// The verifier of a directory page; zeros for none.
    pub(crate) listing_verf: [u8; 8],
    /// Collects the flushes that changes need. `None`: changes are made stable at once.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// The object of a handle, and the credential that acts on it.
pub(super) struct Object<'a> {
    pub(super) exports: &'a Exports,
    pub(super) exported: &'a Exported,
    pub(super) terms: &'a Terms,
    /// The file system that defers flushes, with a ledger.
    pub(super) deferring: Option<Box<dyn Vfs>>,
    pub(super) version: Version,
    pub(super) id: FileId,
    pub(super) cred: Cred,
}

impl Exec<'_> {
    /// The attributes of `fh`.
    pub(crate) fn attr(&self, fh: &Fh) -> Option<Attr> {
        self.object(fh).ok()?.attr()
    }

    pub(super) fn io_max(&self) -> u32 {
        match self.version {
            // An NFSv2 WRITE reply cannot report a short write. This size fits any datagram.
            Version::V2 => DATA_MAX,
            Version::V3 => self.limits.io_max(self.peer.path),
        }
    }

    pub(super) fn object(&self, fh: &Fh) -> Result<Object<'_>, Status> {
        let (exported, terms, id) = self.exports.resolve(fh, self.peer.addr)?;
        let cred = terms.cred(self.caller);
        let deferring = self.ledger.as_ref().and_then(|ledger| exported.export.vfs.deferring(ledger));
        Ok(Object { exports: self.exports, exported, terms, deferring, version: self.version, id, cred })
    }

    /// Executes an operation that changes nothing. A failure returns the object's attributes.
    pub(super) fn look<T>(&self, fh: &Fh, op: impl FnOnce(&Object) -> vfs::Result<T>) -> Res<T, Option<Attr>> {
        let object = self.object(fh).map_err(|status| Failed { status, info: None })?;
        op(&object).map_err(|status| Failed { status, info: object.attr() })
    }

    /// Executes an operation that changes the object. A failure returns its attributes.
    pub(super) fn change<T>(&self, fh: &Fh, op: impl FnOnce(&Object) -> vfs::Result<T>) -> Res<T, Wcc> {
        let object = self.object(fh).map_err(|status| Failed { status, info: Wcc::NONE })?;
        let result = object.writable().and_then(|()| op(&object));
        result.map_err(|status| Failed { status, info: object.wcc() })
    }
}

impl Object<'_> {
    pub(super) fn vfs(&self) -> &dyn Vfs {
        self.deferring.as_deref().unwrap_or(&*self.exported.export.vfs)
    }

    pub(super) fn attr(&self) -> Option<Attr> {
        self.vfs().getattr(&self.id).ok()
    }

    /// The attributes after a change; those before are unknown.
    pub(super) fn wcc(&self) -> Wcc {
        Wcc { before: None, after: self.attr() }
    }

    pub(super) fn read_only(&self) -> bool {
        self.terms.read_only
    }

    pub(super) fn writable(&self) -> vfs::Result<()> {
        if self.read_only() { Err(Status::RoFs) } else { Ok(()) }
    }

    /// The handle of another object of the same export.
    pub(super) fn handle(&self, id: &FileId) -> Fh {
        self.exports.handle(self.exported, id, self.version)
    }

    /// Fails with XDEV if `other` is in another export.
    pub(super) fn same_export(&self, other: &Object) -> vfs::Result<()> {
        if std::ptr::eq(self.exported, other.exported) { Ok(()) } else { Err(Status::XDev) }
    }
}
