//! What an executor does for the server: a call bound to what it needs, and the answer.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use remora_base::{Path, Peer, Time};
use remora_vfs::{self as vfs, Flush, Ledger};
use remora_wire::nfs2;
use remora_wire::nfs3::{self, Attr, Fh, Reply, Status};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Xdr, mount};

use crate::auth::Caller;
use crate::cache::FileTimes;
use crate::cookies::Cookies;
use crate::durability::Durability;
use crate::exec::{Exec, mnt};
use crate::{Exports, Limits, Version, v2};

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
    pub(crate) durability: Durability,
    pub(crate) cookies: Arc<Cookies>,
    pub(crate) peer: Peer,
    pub(crate) is_validated: bool,
    /// When it was made.
    pub(crate) at: Time,
    pub(crate) xid: u32,
    pub(crate) work: Work,
}

#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Execute a call.
    Nfs { caller: Caller, call: nfs3::Call, form: Form, listing_verf: [u8; 8] },
    /// Find the handle of a path, for clients of this version.
    Mount { caller: Caller, path: Bytes, version: Version },
    /// Ask for the times of an object, for the duplicate request cache.
    Times(Fh),
}

/// How a call came in, and its reply is to go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// As it is executed.
    V3,
    /// As this procedure of version 2.
    V2(nfs2::Proc),
}

impl Form {
    /// The version it belongs to.
    pub(crate) fn version(self) -> Version {
        match self {
            Form::V3 => Version::V3,
            Form::V2(_) => Version::V2,
        }
    }

    /// The reply that `proc` failed with `status` and nothing more is known.
    pub(crate) fn failed(self, xid: u32, proc: nfs3::Proc, status: Status) -> Bytes {
        message(xid, Outcome::Success, |out| match self {
            Form::V3 => Reply::failed(proc, status).encode(out),
            Form::V2(proc) => nfs2::Reply::failed(proc, v2::status(status)).encode(out),
        })
    }
}

/// What came of a [`Job`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The whole reply; empty for a question of the cache's, and where there is to be none.
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
    /// There is no word for that, and no reply.
    Busy,
    Other,
}

/// How far a [`Job`] has come.
#[derive(Debug)]
pub enum Started {
    /// To its end.
    Done(Answer),
    /// The change is made, but not stable.
    Unflushed(Unflushed),
}

/// A job whose answer must not be given before its changes are stable.
#[derive(Debug)]
pub struct Unflushed {
    next: Flush,
    further: VecDeque<Flush>,
    answer: Answer,
    /// Of the call, for the reply if a flush fails.
    call: (u32, Form, nfs3::Proc),
}

impl Unflushed {
    /// What it waits for: this flush, or another with its key, that begins from now on.
    pub fn flush(&self) -> &Flush {
        &self.next
    }

    /// That flush has been done and come to `result`.
    pub fn flushed(mut self, result: vfs::Result<()>) -> Started {
        if let Err(status) = self.next.verdict(result) {
            let (xid, form, proc) = self.call;
            let reply = form.failed(xid, proc, status);
            return Started::Done(Answer { reply, result: Err(Failure::Other), times: None });
        }
        match self.further.pop_front() {
            Some(next) => {
                self.next = next;
                Started::Unflushed(self)
            }
            None => Started::Done(self.answer),
        }
    }
}

impl Job {
    /// Does it to its end. Blocks as long as the file system does.
    pub fn run(&self) -> Answer {
        let mut started = self.start();
        loop {
            match started {
                Started::Done(answer) => return answer,
                Started::Unflushed(unflushed) => {
                    let result = unflushed.flush().run(&[]);
                    started = unflushed.flushed(result);
                }
            }
        }
    }

    /// Does it, but for the flushes that it may share with other jobs.
    pub fn start(&self) -> Started {
        match &self.work {
            Work::Nfs { caller, call, form, .. } if self.durability.waits(call) || call.changes_names() => {
                let ledger = Arc::<Ledger>::default();
                let exec = Exec { ledger: Some(ledger.clone()), ..self.exec(caller, form.version()) };
                let answer = self.run_nfs(&exec, call, *form);
                let mut further = VecDeque::from(ledger.take());
                let waits = answer.result.is_ok() && self.durability.waits(call);
                match further.pop_front().filter(|_| waits) {
                    Some(next) => {
                        let call = (self.xid, *form, call.proc());
                        Started::Unflushed(Unflushed { next, further, answer, call })
                    }
                    None => Started::Done(answer),
                }
            }
            Work::Nfs { caller, call, form, listing_verf } => {
                let exec = Exec { listing_verf: *listing_verf, ..self.exec(caller, form.version()) };
                Started::Done(self.run_nfs(&exec, call, *form))
            }
            Work::Mount { caller, path, version } => Started::Done(self.run_mount(&self.exec(caller, *version), path)),
            Work::Times(fh) => {
                let attr = self.exec(&None, Version::V3).attr(fh);
                Started::Done(Answer { reply: Bytes::new(), result: Ok(()), times: attr.as_ref().map(times) })
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

    /// Whether the job is a question of the duplicate request cache's own: as cheap as a
    /// GETATTR, and no client's.
    pub fn is_cache_check(&self) -> bool {
        matches!(self.work, Work::Times(_))
    }

    /// Who asked.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether the client has proved that it receives at its address. Others may have forged it.
    pub fn is_validated(&self) -> bool {
        self.is_validated
    }

    fn exec<'a>(&'a self, caller: &'a Caller, version: Version) -> Exec<'a> {
        let Job { exports, limits, cookies, peer, at, .. } = self;
        Exec { exports, limits, peer: *peer, at: *at, caller, version, cookies, listing_verf: [0; 8], ledger: None }
    }

    fn run_mount(&self, exec: &Exec, path: &Bytes) -> Answer {
        let result = match mnt::mount(exec, path) {
            Ok(mounted) => Ok(mounted),
            Err(status) => match mnt::error(status) {
                Some(error) => Err(error),
                None => return Answer { reply: Bytes::new(), result: Err(Failure::Busy), times: None },
            },
        };
        let result_of_job = result.as_ref().map(drop).map_err(|e| match e {
            mount::MountError::Access => Failure::Denied,
            _ => Failure::Other,
        });
        let reply = message(self.xid, Outcome::Success, |out| match exec.version {
            Version::V2 => mount::ReplyV1::Mnt(v2::mounted(result)).encode(out),
            Version::V3 => mount::Reply::Mnt(result).encode(out),
        });
        Answer { reply, result: result_of_job, times: None }
    }

    fn run_nfs(&self, exec: &Exec, call: &nfs3::Call, form: Form) -> Answer {
        let (status, times, reply) = match (form, call) {
            (Form::V2(_), nfs3::Call::ReadDir(a)) => {
                let res = exec.read_dir_v2(a);
                let status = res.as_ref().err().copied();
                let reply = nfs2::Reply::ReadDir(res.map_err(v2::status));
                (status, None, message(self.xid, Outcome::Success, |out| reply.encode(out)))
            }
            _ => {
                let reply = exec.run(call);
                let (status, times) = (reply.status(), target_attr(&reply).map(times));
                let reply = message(self.xid, Outcome::Success, |out| match form {
                    Form::V3 => reply.encode(out),
                    Form::V2(proc) => v2::from_v3(proc, reply).encode(out),
                });
                (status, times, reply)
            }
        };
        let is_datagram = self.peer.path == Path::Datagram;
        if is_datagram && form.version() == Version::V2 && status == Some(Status::Jukebox) {
            // Version 2 has no error for "later". Clients send a datagram again soon. On a stream they would wait for
            // minutes: there the answer is NFSERR_IO.
            return Answer { reply: Bytes::new(), result: Err(Failure::Busy), times: None };
        }
        let failure = status.map(|status| match status {
            Status::BadHandle | Status::Stale => Failure::BadHandle,
            Status::Access if self.is_denied(call) => Failure::Denied,
            _ => Failure::Other,
        });
        Answer { reply, result: failure.map_or(Ok(()), Err), times }
    }

    fn is_denied(&self, call: &nfs3::Call) -> bool {
        call.target().is_some_and(|fh| self.exports.resolve(fh, self.peer.addr).is_err())
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
