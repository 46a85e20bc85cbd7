//! Requests, replies, and the classes that retransmission distinguishes.

use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome};
use remora_wire::{Error, Reader, Xdr, mount, nfs3, portmap};

/// Identifies a request of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub(crate) u64);

/// A call of a program that the client speaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// NFS version 3.
    Nfs(nfs3::Call),
    /// MOUNT version 3.
    Mount(mount::Call),
    /// The portmapper's GETPORT.
    GetPort(portmap::Mapping),
}

/// The results of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Reply to [`Request::Nfs`], with any NFS status.
    Nfs(nfs3::Reply),
    /// Reply to [`Request::Mount`].
    Mount(mount::Reply),
    /// Reply to [`Request::GetPort`]: the port, or 0.
    Port(u32),
}

/// Why a request has no reply.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallFailure {
    /// The server did not execute the call.
    #[error("{0}")]
    Rpc(#[from] Outcome),
    /// The results cannot be decoded.
    #[error("the server's reply makes no sense: {0}")]
    Garbled(#[from] Error),
    /// The server was silent for longer than [`ClientConfig::give_up`](crate::ClientConfig::give_up).
    #[error("the server does not answer")]
    TimedOut,
    /// The path drops datagrams of the length of the request or its reply. Later blocks are shorter.
    #[error("the path to the server drops datagrams of this length; use TCP")]
    Fragments,
}

/// Class of a call, for retransmission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CallClass {
    /// Reads something small: cheap to retransmit.
    Ask,
    /// Changes something, or waits for the disk: retransmitted later, for not every server has a duplicate request
    /// cache.
    Change,
    /// A READ with a large reply.
    Read,
    /// A large WRITE.
    Write,
}

impl CallClass {
    pub(crate) const ALL: [CallClass; 4] = [CallClass::Ask, CallClass::Change, CallClass::Read, CallClass::Write];

    /// Whether the window counts it.
    pub(crate) fn is_bulk(self) -> bool {
        matches!(self, CallClass::Read | CallClass::Write)
    }

    /// The class of the same call with little data.
    pub(crate) fn small(self) -> CallClass {
        match self {
            CallClass::Read | CallClass::Ask => CallClass::Ask,
            CallClass::Write | CallClass::Change => CallClass::Change,
        }
    }
}

impl Request {
    /// The class, if the call has much data.
    pub(crate) fn class(&self) -> CallClass {
        match self {
            Request::Nfs(nfs3::Call::Read(_)) => CallClass::Read,
            Request::Nfs(nfs3::Call::Write(_)) => CallClass::Write,
            Request::Nfs(nfs3::Call::Commit(_)) => CallClass::Change,
            Request::Nfs(call) if call.proc().is_non_idempotent() => CallClass::Change,
            _ => CallClass::Ask,
        }
    }

    /// Bytes of file data.
    pub(crate) fn data(&self) -> u32 {
        match self {
            Request::Nfs(nfs3::Call::Read(r)) => r.count,
            Request::Nfs(nfs3::Call::Write(w)) => u32::try_from(w.data.len()).unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    /// Whether it is a synchronous WRITE.
    pub(crate) fn syncs(&self) -> bool {
        matches!(self, Request::Nfs(nfs3::Call::Write(w)) if w.stable != nfs3::Stable::Unstable)
    }

    /// Bytes of results that the request allows beside a usual reply; 0 where it has no such limit.
    pub(crate) fn reply_max(&self) -> u32 {
        match self {
            Request::Nfs(nfs3::Call::Read(r)) => r.count,
            Request::Nfs(nfs3::Call::ReadDir(r)) => r.count,
            Request::Nfs(nfs3::Call::ReadDirPlus(r)) => r.max_count,
            _ => 0,
        }
    }

    /// Program, version and procedure.
    pub(crate) fn numbers(&self) -> (u32, u32, u32) {
        match self {
            Request::Nfs(call) => (nfs3::PROGRAM, nfs3::VERSION, call.proc() as u32),
            Request::Mount(call) => (mount::PROGRAM, mount::VERSION, call.proc()),
            Request::GetPort(_) => (portmap::PROGRAM, portmap::VERSION, portmap::PROC_GETPORT),
        }
    }

    pub(crate) fn encode(&self, xid: u32, cred: &OpaqueAuth) -> Vec<u8> {
        let (prog, vers, proc) = self.numbers();
        let data = if let Request::Nfs(nfs3::Call::Write(w)) = self { w.data.len() } else { 0 };
        let mut out = Vec::with_capacity(256 + data);
        CallHeader { xid, prog, vers, proc, cred: cred.clone(), verf: OpaqueAuth::none() }.encode(&mut out);
        match self {
            Request::Nfs(call) => call.encode(&mut out),
            Request::Mount(call) => call.encode(&mut out),
            Request::GetPort(mapping) => mapping.encode(&mut out),
        }
        out
    }
}

/// The type of the results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyKind {
    Nfs(nfs3::Proc),
    Mount(u32),
    Port,
}

impl From<&Request> for ReplyKind {
    fn from(request: &Request) -> ReplyKind {
        match request {
            Request::Nfs(call) => ReplyKind::Nfs(call.proc()),
            Request::Mount(call) => ReplyKind::Mount(call.proc()),
            Request::GetPort(_) => ReplyKind::Port,
        }
    }
}

impl ReplyKind {
    pub(crate) fn decode(self, outcome: Outcome, r: &mut Reader) -> Result<Answer, CallFailure> {
        if outcome != Outcome::Success {
            return Err(outcome.into());
        }
        Ok(match self {
            ReplyKind::Nfs(proc) => Answer::Nfs(nfs3::Reply::decode(proc, r)?),
            ReplyKind::Mount(proc) => Answer::Mount(mount::Reply::decode(proc, r)?),
            ReplyKind::Port => Answer::Port(u32::decode(r)?),
        })
    }
}
