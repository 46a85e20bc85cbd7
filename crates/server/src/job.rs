//! What an executor does for the server: a call bound to what it needs, and the answer.

use std::sync::Arc;

use bytes::Bytes;
use remora_base::Peer;
use remora_wire::nfs3::{self, Attr, Fh, Reply, Status};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Xdr, mount};

use crate::auth::Caller;
use crate::cache::FileTimes;
use crate::exec::{Exec, mnt};
use crate::{Exports, Limits};

/// Ties an [`Answer`] to its [`Execute`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub(crate) u64);

/// A job to run, and the ticket to bring its answer back with.
#[derive(Clone, Debug)]
pub struct Execute {
    /// To be given to [`Server::complete`](crate::Server::complete).
    pub ticket: Ticket,
    /// What to do.
    pub job: Job,
}

/// Something that may block on a disk. It holds all it needs, so any thread can run it.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) exports: Arc<Exports>,
    pub(crate) limits: Limits,
    pub(crate) peer: Peer,
    pub(crate) xid: u32,
    pub(crate) work: Work,
}

#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Execute a call.
    Nfs { caller: Caller, call: nfs3::Call },
    /// Find the handle of a path.
    Mount { caller: Caller, path: Bytes },
    /// Ask for the times of an object, for the duplicate request cache.
    Times(Fh),
}

/// What came of a [`Job`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The whole reply; empty for a question of the cache's.
    pub(crate) reply: Bytes,
    pub(crate) result: Result<(), Failure>,
    /// Times of the call's target afterwards.
    pub(crate) times: Option<FileTimes>,
}

/// How a job failed, as far as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    Denied,
    BadHandle,
    Other,
}

impl Job {
    /// Does it. Blocks as long as the file system does.
    pub fn run(&self) -> Answer {
        match &self.work {
            Work::Nfs { caller, call } => self.answer_nfs(call, self.exec(caller).run(call)),
            Work::Mount { caller, path } => {
                let result = mnt::mount(&self.exec(caller), path);
                let failure = result.as_ref().err().map(|e| match e {
                    mount::MountError::Access => Failure::Denied,
                    _ => Failure::Other,
                });
                Answer {
                    reply: message(self.xid, Outcome::Success, |out| mount::Reply::Mnt(result).encode(out)),
                    result: failure.map_or(Ok(()), Err),
                    times: None,
                }
            }
            Work::Times(fh) => {
                let attr = self.exec(&None).attr(fh);
                Answer { reply: Bytes::new(), result: Ok(()), times: attr.as_ref().map(times) }
            }
        }
    }

    /// The answer when the job could not be run to its end, for instance because its thread
    /// died. The client is told of a failure on the server.
    pub fn abandon(&self) -> Answer {
        let reply = match &self.work {
            Work::Nfs { .. } | Work::Mount { .. } => message(self.xid, Outcome::SystemErr, |_| {}),
            Work::Times(_) => Bytes::new(),
        };
        Answer { reply, result: Err(Failure::Other), times: None }
    }

    /// The NFS call that is to be executed, if it is one.
    pub fn nfs_call(&self) -> Option<&nfs3::Call> {
        match &self.work {
            Work::Nfs { call, .. } => Some(call),
            Work::Mount { .. } | Work::Times(_) => None,
        }
    }

    /// The procedure of the NFS call that is to be executed, if it is one.
    pub fn nfs_proc(&self) -> Option<nfs3::Proc> {
        self.nfs_call().map(nfs3::Call::proc)
    }

    /// The path to be mounted, if the job is a mount.
    pub fn mount_path(&self) -> Option<&Bytes> {
        match &self.work {
            Work::Mount { path, .. } => Some(path),
            Work::Nfs { .. } | Work::Times(_) => None,
        }
    }

    /// Whether the job is a question of the duplicate request cache's own: as cheap as a
    /// GETATTR, and no client's.
    pub fn is_cache_check(&self) -> bool {
        matches!(self.work, Work::Times(_))
    }

    /// Who asked.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    fn exec<'a>(&'a self, caller: &'a Caller) -> Exec<'a> {
        Exec { exports: &self.exports, limits: &self.limits, peer: self.peer, caller }
    }

    fn answer_nfs(&self, call: &nfs3::Call, reply: Reply) -> Answer {
        let failure = reply.status().map(|status| match status {
            Status::BadHandle | Status::Stale => Failure::BadHandle,
            Status::Access if self.is_denied(call) => Failure::Denied,
            _ => Failure::Other,
        });
        let times = target_attr(&reply).map(times);
        let reply = message(self.xid, Outcome::Success, |out| reply.encode(out));
        Answer { reply, result: failure.map_or(Ok(()), Err), times }
    }

    fn is_denied(&self, call: &nfs3::Call) -> bool {
        call.target().is_some_and(|fh| self.exports.resolve(fh, self.peer.addr.ip()).is_err())
    }
}

/// A reply message. Its buffer is as long as its contents, because the cache may keep it.
pub(crate) fn message(xid: u32, outcome: Outcome, body: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(256);
    ReplyHeader { xid, outcome }.encode(&mut out);
    body(&mut out);
    out.into_boxed_slice().into()
}

fn times(attr: &Attr) -> FileTimes {
    FileTimes { mtime: attr.mtime, ctime: attr.ctime }
}

/// The attributes, after a non-idempotent call, of what [`nfs3::Call::target`] names.
fn target_attr(reply: &Reply) -> Option<&Attr> {
    match reply {
        Reply::SetAttr(Ok(wcc)) | Reply::Remove(Ok(wcc)) | Reply::RmDir(Ok(wcc)) => wcc.after.as_ref(),
        Reply::Write(Ok(ok)) => ok.wcc.after.as_ref(),
        Reply::Create(Ok(ok)) | Reply::MkDir(Ok(ok)) | Reply::SymLink(Ok(ok)) | Reply::MkNod(Ok(ok)) => {
            ok.dir.after.as_ref()
        }
        Reply::Rename(Ok(dirs)) => dirs.from.after.as_ref(),
        Reply::Link(Ok(ok)) => ok.attr.as_ref(),
        _ => None,
    }
}
