//! Faults on demand: what fails, when, and how.

use std::collections::BTreeMap;

use remora_wire::nfs3::Status;

use crate::Result;

/// What a fault can hit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)] // each variant but the last is named after its operation
pub enum OpKind {
    GetAttr,
    SetAttr,
    Lookup,
    Access,
    ReadLink,
    Read,
    Write,
    Create,
    MkDir,
    SymLink,
    MkNod,
    Remove,
    RmDir,
    Rename,
    Link,
    ReadDir,
    FsStat,
    PathConf,
    Commit,
    /// The write-back within a stable WRITE or a COMMIT. When it fails, the file falls back
    /// to what was durable and the verifier changes.
    Flush,
}

type Hook = Box<dyn FnMut(OpKind) -> Option<Status> + Send>;

/// Faults that wait for their operation.
#[derive(Default)]
pub(super) struct Faults {
    hook: Option<Hook>,
    next: BTreeMap<OpKind, (Status, u32)>,
}

impl Faults {
    pub(super) fn set_hook(&mut self, hook: Option<Hook>) {
        self.hook = hook;
    }

    /// The next `count` operations of this kind fail with `status`.
    pub(super) fn fail_next(&mut self, kind: OpKind, status: Status, count: u32) {
        self.next.insert(kind, (status, count));
    }

    /// Fails if a fault is due.
    pub(super) fn check(&mut self, kind: OpKind) -> Result<()> {
        if let Some((status, left)) = self.next.get_mut(&kind)
            && *left > 0
        {
            *left -= 1;
            return Err(*status);
        }
        match self.hook.as_mut().and_then(|hook| hook(kind)) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }
}
