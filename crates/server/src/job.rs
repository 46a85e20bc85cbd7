//! Jobs: calls with all that their execution needs, and their results.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use remora_base::{Path, Peer, Time};
use remora_vfs::{self as vfs, Flush, Ledger};
use remora_wire::nfs2;
use remora_wire::nfs3::{self, Attr, Fh, Reply, Status};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Xdr, mount, nfsacl};

use crate::auth::Caller;
use crate::cache::FileTimes;
use crate::cookies::Cookies;
use crate::durability::Durability;
use crate::exec::{Exec, mnt};
use crate::{Exports, Limits, Version, v2};

/// Identifies a job, for its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub(crate) u64);

/// A job to execute.
#[derive(Clone, Debug)]
pub struct Execute {
    /// The ticket for [`Server::complete`](crate::Server::complete).
    pub ticket: Ticket,
    pub job: Job,
}

/// Work that may block on a disk. It owns what it needs, so any thread can execute it.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) exports: Arc<Exports>,
    pub(crate) limits: Limits,
    pub(crate) durability: Durability,
    pub(crate) cookies: Arc<Cookies>,
    pub(crate) peer: Peer,
    pub(crate) is_validated: bool,
    /// When the job was created.
    pub(crate) at: Time,
    pub(crate) xid: u32,
    pub(crate) work: Work,
}

#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Executes a call.
    Nfs { caller: Caller, call: nfs3::Call, form: Form, listing_verf: [u8; 8] },
    /// Looks up the handle of a path.
    Mount { caller: Caller, path: Bytes, version: Version },
    /// Reads the times of an object, for the duplicate request cache.
    Times(Fh),
}

impl Work {
    /// The procedure of the NFS call, if it is one.
    pub(crate) fn proc(&self) -> Option<nfs3::Proc> {
        match self {
            Work::Nfs { call, .. } => Some(call.proc()),
            Work::Mount { .. } | Work::Times(_) => None,
        }
    }
}

/// The form of a call and of its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// As it is executed.
    V3,
    /// This procedure of NFSv2.
    V2(nfs2::Proc),
    /// This call of NFSACL, in place of the one of NFSv3.
    Acl(Arc<nfsacl::Call>),
}

impl Form {
    pub(crate) fn version(&self) -> Version {
        match self {
            Form::V3 | Form::Acl(_) => Version::V3,
            Form::V2(_) => Version::V2,
        }
    }

    /// The reply for a `proc` that failed with `status`, without attributes.
    pub(crate) fn failed(&self, xid: u32, proc: nfs3::Proc, status: Status) -> Bytes {
        message(xid, Outcome::Success, |out| match self {
            Form::V3 => Reply::failed(proc, status).encode(out),
            Form::V2(proc) => nfs2::Reply::failed(*proc, v2::status(status)).encode(out),
            Form::Acl(call) => nfsacl::Reply::failed(call.proc(), status).encode(out),
        })
    }
}

/// The result of a [`Job`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The encoded reply. Empty if there is none to send.
    pub(crate) reply: Bytes,
    pub(crate) result: Result<(), Failure>,
    /// The error that the reply has.
    pub(crate) status: Option<Status>,
    /// The times of the call's target afterwards.
    pub(crate) times: Option<FileTimes>,
}

/// Why a job failed, for the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    Denied,
    BadHandle,
    /// Temporarily, in a protocol that has no error for it: no reply is sent.
    Busy,
    Other,
}

/// The progress of a [`Job`].
#[derive(Debug)]
pub enum Started {
    Done(Answer),
    /// The change is made, but not stable.
    Unflushed(Unflushed),
}

/// A job whose reply must wait until its changes are stable.
#[derive(Debug)]
pub struct Unflushed {
    next: Flush,
    further: VecDeque<Flush>,
    answer: Answer,
    /// The call, for the reply if a flush fails.
    call: (u32, Form, nfs3::Proc),
}

impl Unflushed {
    /// The flush that the job waits for. Any flush with the same key that begins from now on will do.
    pub fn flush(&self) -> &Flush {
        &self.next
    }

    /// Notes the result of that flush.
    pub fn flushed(mut self, result: vfs::Result<()>) -> Started {
        if let Err(status) = self.next.verdict(result) {
            let (xid, form, proc) = self.call;
            let reply = form.failed(xid, proc, status);
            return Started::Done(Answer { reply, result: Err(Failure::Other), status: Some(status), times: None });
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
    /// Executes the job, flushes included.
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

    /// Executes the job up to the flushes that it can share with other jobs.
    pub fn start(&self) -> Started {
        match &self.work {
            Work::Nfs { caller, call, form, .. } if self.durability.waits(call) || call.changes_names() => {
                let ledger = Arc::<Ledger>::default();
                let exec = Exec { ledger: Some(ledger.clone()), ..self.exec(caller, form.version()) };
                let answer = self.run_nfs(&exec, call, form);
                let mut further = VecDeque::from(ledger.take());
                let waits = answer.result.is_ok() && self.durability.waits(call);
                match further.pop_front().filter(|_| waits) {
                    Some(next) => {
                        let call = (self.xid, form.clone(), call.proc());
                        Started::Unflushed(Unflushed { next, further, answer, call })
                    }
                    None => Started::Done(answer),
                }
            }
            Work::Nfs { caller, call, form, listing_verf } => {
                let exec = Exec { listing_verf: *listing_verf, ..self.exec(caller, form.version()) };
                Started::Done(self.run_nfs(&exec, call, form))
            }
            Work::Mount { caller, path, version } => Started::Done(self.run_mount(&self.exec(caller, *version), path)),
            Work::Times(fh) => {
                let attr = self.exec(&None, Version::V3).attr(fh);
                Started::Done(Answer {
                    reply: Bytes::new(),
                    result: Ok(()),
                    status: None,
                    times: attr.as_ref().map(times),
                })
            }
        }
    }

    /// The answer for a job that could not be finished, for instance because it panicked: an error reply.
    pub fn abandon(&self) -> Answer {
        let reply = match &self.work {
            Work::Nfs { .. } | Work::Mount { .. } => message(self.xid, Outcome::SystemErr, |_| {}),
            Work::Times(_) => Bytes::new(),
        };
        Answer { reply, result: Err(Failure::Other), status: Some(Status::ServerFault), times: None }
    }

    /// The NFS call, if the job is one.
    pub fn nfs_call(&self) -> Option<&nfs3::Call> {
        match &self.work {
            Work::Nfs { call, .. } => Some(call),
            Work::Mount { .. } | Work::Times(_) => None,
        }
    }

    /// The procedure of the NFS call, if the job is one.
    pub fn nfs_proc(&self) -> Option<nfs3::Proc> {
        self.work.proc()
    }

    /// Whether the job reads times for the duplicate request cache, on behalf of no client. It costs as much as a
    /// GETATTR.
    pub fn is_cache_check(&self) -> bool {
        matches!(self.work, Work::Times(_))
    }

    /// The peer that sent the call.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether the client has proved that it receives at its address. Otherwise the address may be forged.
    pub fn is_validated(&self) -> bool {
        self.is_validated
    }

    fn exec<'a>(&'a self, caller: &'a Caller, version: Version) -> Exec<'a> {
        let Job { exports, limits, cookies, peer, at, .. } = self;
        Exec { exports, limits, peer: *peer, at: *at, caller, version, cookies, listing_verf: [0; 8], ledger: None }
    }

    fn run_mount(&self, exec: &Exec, path: &Bytes) -> Answer {
        let mounted = mnt::mount(exec, path);
        let status = mounted.as_ref().err().copied();
        let result = match mounted {
            Ok(mounted) => Ok(mounted),
            Err(status) => match mnt::error(status) {
                Some(error) => Err(error),
                None => {
                    return Answer {
                        reply: Bytes::new(),
                        result: Err(Failure::Busy),
                        status: Some(status),
                        times: None,
                    };
                }
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
        Answer { reply, result: result_of_job, status, times: None }
    }

    fn run_nfs(&self, exec: &Exec, call: &nfs3::Call, form: &Form) -> Answer {
        let (status, times, reply) = match (form, call) {
            (Form::V2(_), nfs3::Call::ReadDir(a)) => {
                let res = exec.read_dir_v2(a);
                let status = res.as_ref().err().copied();
                let reply = nfs2::Reply::ReadDir(res.map_err(v2::status));
                (status, None, message(self.xid, Outcome::Success, |out| reply.encode(out)))
            }
            (Form::Acl(call), _) => {
                let reply = exec.run_acl(call);
                let attr = if let nfsacl::Reply::SetAcl(Ok(attr)) = &reply { attr.as_ref() } else { None };
                (reply.status(), attr.map(times), message(self.xid, Outcome::Success, |out| reply.encode(out)))
            }
            (Form::V3, _) => {
                let reply = exec.run(call);
                let (status, times) = (reply.status(), target_attr(&reply).map(times));
                (status, times, message(self.xid, Outcome::Success, |out| reply.encode(out)))
            }
            (Form::V2(proc), _) => {
                let reply = exec.run(call);
                let (status, times) = (reply.status(), target_attr(&reply).map(times));
                let reply = v2::from_v3(*proc, reply);
                (status, times, message(self.xid, Outcome::Success, |out| reply.encode(out)))
            }
        };
        let is_datagram = self.peer.path == Path::Datagram;
        if is_datagram && form.version() == Version::V2 && status == Some(Status::Jukebox) {
            // NFSv2 has no JUKEBOX. Clients resend a datagram soon, so it gets no reply; on a stream they would wait
            // for minutes, so the reply is NFSERR_IO.
            return Answer { reply: Bytes::new(), result: Err(Failure::Busy), status, times: None };
        }
        let failure = status.map(|status| match status {
            Status::BadHandle | Status::Stale => Failure::BadHandle,
            Status::Access if self.is_denied(call) => Failure::Denied,
            _ => Failure::Other,
        });
        Answer { reply, result: failure.map_or(Ok(()), Err), status, times }
    }

    fn is_denied(&self, call: &nfs3::Call) -> bool {
        call.target().is_some_and(|fh| self.exports.resolve(fh, self.peer.addr).is_err())
    }
}

/// Encodes a reply. The buffer has no spare capacity, because the cache may keep it.
pub(crate) fn message(xid: u32, outcome: Outcome, body: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(256);
    ReplyHeader { xid, outcome }.encode(&mut out);
    body(&mut out);
    out.into_boxed_slice().into()
}

fn times(attr: &Attr) -> FileTimes {
    FileTimes { mtime: attr.mtime, ctime: attr.ctime }
}

/// The attributes of [`nfs3::Call::target`] after a non-idempotent call.
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
