//! The reference port's cache (DRC 89, section 2.5).
//!
//! It notes the xids of what succeeded, of five procedures only, and is asked only once an
//! operation has failed: if it is there, the failure must be due to its being a duplicate, and
//! the client is told of success. It spares clients a wrong error. It does not prevent the
//! destruction in DRC 89's Example 1, because by then the duplicate has been executed.

use bytes::Bytes;
use remora_wire::Xdr;
use remora_wire::nfs3::{LinkAttrs, MadeOk, Proc, Reply, Wcc};
use remora_wire::rpc::{Outcome, ReplyHeader};

use super::ring::Ring;
use super::{Completion, Request, Stats};

/// The cache.
#[derive(Debug)]
pub(super) struct Reference(Ring<()>);

/// Whether `proc` is one of the five.
pub(super) fn covers(proc: Proc) -> bool {
    made_up(proc).is_some()
}

impl Reference {
    pub(super) fn new(entries: usize) -> Reference {
        Reference(Ring::new(entries))
    }

    /// `request` was executed; returns what to tell the client.
    pub(super) fn finish(&mut self, request: &Request, done: Completion, stats: &mut Stats) -> Bytes {
        let key = request.xid_key();
        let known = self.0.find(&key).is_some();
        stats.executed_again += u64::from(known);
        match made_up(request.proc) {
            Some(success) if !done.ok && known => {
                stats.replays += 1;
                reply(request.xid, &success)
            }
            Some(_) if done.ok && !known => {
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

/// Success as far as it can be told without the original's reply: in NFSv3 handles and
/// attributes may be left out, and the client looks them up.
fn made_up(proc: Proc) -> Option<Reply> {
    let made = || MadeOk { fh: None, attr: None, dir: Wcc::NONE };
    Some(match proc {
        Proc::Create => Reply::Create(Ok(made())),
        Proc::MkDir => Reply::MkDir(Ok(made())),
        Proc::Remove => Reply::Remove(Ok(Wcc::NONE)),
        Proc::RmDir => Reply::RmDir(Ok(Wcc::NONE)),
        Proc::Link => Reply::Link(Ok(LinkAttrs { attr: None, dir: Wcc::NONE })),
        _ => return None,
    })
}

fn reply(xid: u32, body: &Reply) -> Bytes {
    let mut out = Vec::with_capacity(64);
    ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut out);
    body.encode(&mut out);
    out.into()
}
