//! Messages of the file system that no request asked for.

use super::fields::Structure;
use super::types::{Name, OUT_HEADER_LEN};

const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const DELETE: u32 = 6;
const INC_EPOCH: u32 = 8;
/// Flag of INVAL_ENTRY.
const EXPIRE_ONLY: u32 = 1;

/// A message that makes the kernel drop what it caches. Writing it can block while a LOOKUP in that
/// directory or a READ of that file is outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notification {
    /// Drops the attributes of an object, and its pages from `offset` on; none if `offset` is
    /// negative. A `len` of 0 reaches to the end.
    InvalInode { nodeid: u64, offset: i64, len: i64 },
    /// Drops a name, with everything below it. With `expire_only` the kernel looks the name up again
    /// at its next use.
    InvalEntry { parent: u64, name: Name, expire_only: bool },
    /// Drops a name that was removed, if its object is `child`.
    Delete { parent: u64, child: u64, name: Name },
    /// Expires all names at once (from version 7.44).
    IncEpoch,
}

impl Notification {
    /// The notification as one message.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Structure::default();
        let code = match self {
            Notification::InvalInode { nodeid, offset, len } => {
                body.u64(*nodeid).u64(*offset as u64).u64(*len as u64);
                INVAL_INODE
            }
            Notification::InvalEntry { parent, name, expire_only } => {
                let flags = if *expire_only { EXPIRE_ONLY } else { 0 };
                body.u64(*parent).u32(name.len() as u32).u32(flags).name(name);
                INVAL_ENTRY
            }
            Notification::Delete { parent, child, name } => {
                body.u64(*parent).u64(*child).u32(name.len() as u32).u32(0).name(name);
                DELETE
            }
            Notification::IncEpoch => INC_EPOCH,
        };
        // A header without request number: its error field holds the code.
        let mut message = Structure::default();
        message.u32((OUT_HEADER_LEN + body.0.len()) as u32).u32(code).u64(0).bytes(&body.0);
        message.0
    }
}
