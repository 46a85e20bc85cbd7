//! Injected faults.

use std::collections::BTreeMap;

use remora_wire::nfs3::Status;

use crate::types::Result;

/// The operations that a fault can hit.
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
    /// The write-back of a stable WRITE or a COMMIT. If it fails, the file reverts to its durable data and the verifier
    /// changes.
    Flush,
}

type Hook = Box<dyn FnMut(OpKind) -> Option<Status> + Send>;

/// The faults that are due.
#[derive(Default)]
pub(crate) struct Faults {
    hook: Option<Hook>,
    next: BTreeMap<OpKind, (Status, u32)>,
}

impl Faults {
    pub(crate) fn set_hook(&mut self, hook: Option<Hook>) {
        self.hook = hook;
    }

    /// Makes the next `count` operations of this kind fail with `status`.
    pub(crate) fn fail_next(&mut self, kind: OpKind, status: Status, count: u32) {
        self.next.insert(kind, (status, count));
    }

    /// Fails if a fault is due for `kind`.
    pub(crate) fn check(&mut self, kind: OpKind) -> Result<()> {
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
