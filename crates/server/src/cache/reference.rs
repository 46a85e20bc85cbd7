//! The cache of the reference port (DRC 89, section 2.5).
//!
//! It notes the XIDs of successful requests of five procedures. When such a request fails, and its XID is there, it
//! must be a duplicate, and the client gets a success. This spares clients a wrong error. It does not prevent the
//! loss in DRC 89's Example 1, because the duplicate has been executed by then.

use bytes::Bytes;
use remora_wire::nfs3::{LinkAttrs, MadeOk, Proc, Reply, Wcc};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Xdr, nfs2};

use super::key::Request;
use super::ring::Ring;
use super::types::{Completion, Stats};
use crate::Version;

#[derive(Debug)]
pub(super) struct Reference(Ring<()>);

impl Reference {
    pub(super) fn new(entries: usize) -> Reference {
        Reference(Ring::new(entries))
    }

    /// Takes the result of `request`. Returns the reply to send.
    pub(super) fn finish(&mut self, request: &Request, done: Completion, stats: &mut Stats) -> Bytes {
        let key = request.xid_key();
        let known = self.0.find(&key).is_some();
        stats.executed_again += u64::from(known);
        match made_up(request.version, request.proc) {
            Some(success) if !done.ok && known => {
                stats.replays += 1;
                reply(request.xid, &success)
            }
            _ if done.ok && !known => {
                if self.0.insert(key, (), |()| true).is_none() {
                    stats.uncached += 1;
                }
                done.reply
            }
            _ => done.reply,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes(|()| 0)
    }
}

/// A success without the original's reply. NFSv3 may leave out handles and attributes, which the client then looks
/// up. NFSv2's CREATE and MKDIR may not: their failure stands.
fn made_up(version: Version, proc: Proc) -> Option<Bytes> {
    let made = || MadeOk { fh: None, attr: None, dir: Wcc::NONE };
    let mut out = Vec::new();
    match (version, proc) {
        (Version::V3, Proc::Create) => Reply::Create(Ok(made())).encode(&mut out),
        (Version::V3, Proc::MkDir) => Reply::MkDir(Ok(made())).encode(&mut out),
        (Version::V3, Proc::Remove) => Reply::Remove(Ok(Wcc::NONE)).encode(&mut out),
        (Version::V3, Proc::RmDir) => Reply::RmDir(Ok(Wcc::NONE)).encode(&mut out),
        (Version::V3, Proc::Link) => Reply::Link(Ok(LinkAttrs { attr: None, dir: Wcc::NONE })).encode(&mut out),
        (Version::V2, Proc::Remove) => nfs2::Reply::Remove(Ok(())).encode(&mut out),
        (Version::V2, Proc::RmDir) => nfs2::Reply::RmDir(Ok(())).encode(&mut out),
        (Version::V2, Proc::Link) => nfs2::Reply::Link(Ok(())).encode(&mut out),
        _ => return None,
    }
    Some(out.into())
}

fn reply(xid: u32, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(64);
    ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut out);
    out.extend_from_slice(body);
    out.into()
}
