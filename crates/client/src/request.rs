//! What is asked of a server and what comes of it.

use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome};
use remora_wire::{Error, Reader, Xdr, mount, nfs3, portmap};

/// Names a request among those of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub(crate) u64);

/// A call of one of the programs a client speaks.
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
    /// Of [`Request::Nfs`]; an NFS status other than OK is an answer, too.
    Nfs(nfs3::Reply),
    /// Of [`Request::Mount`].
    Mount(mount::Reply),
    /// Of [`Request::GetPort`]; 0 for none.
    Port(u32),
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The server answered, but did not execute the call.
    #[error("{0}")]
    Rpc(#[from] Outcome),
    /// The results make no sense.
    #[error("the server's reply makes no sense: {0}")]
    Garbled(#[from] Error),
    /// The server has been silent for longer than the client may wait.
    #[error("the server does not answer")]
    TimedOut,
    /// The request or its reply is longer than what the path carries, which drops fragments, or packets of some
    /// length: nothing of it arrives. Blocks are shorter from now on.
    #[error("the path to the server drops datagrams of this length; use TCP")]
    Fragments,
}

/// What retransmission needs to know about a procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CallClass {
    /// Reads something small: cheap to ask again.
    Ask,
    /// Changes something, or waits for the server's disk: left alone for longer, since not
    /// every server knows a duplicate.
    Change,
    /// A READ with a large reply.
    Read,
    /// A WRITE of much data.
    Write,
}

impl CallClass {
    pub(crate) const ALL: [CallClass; 4] = [CallClass::Ask, CallClass::Change, CallClass::Read, CallClass::Write];

    /// Whether it moves file data, and so counts against the window.
    pub(crate) fn is_bulk(self) -> bool {
        matches!(self, CallClass::Read | CallClass::Write)
    }

    /// The class of what moves hardly any data.
    pub(crate) fn small(self) -> CallClass {
        match self {
            CallClass::Read | CallClass::Ask => CallClass::Ask,
            CallClass::Write | CallClass::Change => CallClass::Change,
        }
    }
}

impl Request {
    /// Its class if the data it moves, if any, is much.
    pub(crate) fn class(&self) -> CallClass {
        match self {
            Request::Nfs(nfs3::Call::Read(_)) => CallClass::Read,
            Request::Nfs(nfs3::Call::Write(_)) => CallClass::Write,
            Request::Nfs(nfs3::Call::Commit(_)) => CallClass::Change,
            Request::Nfs(call) if call.proc().is_non_idempotent() => CallClass::Change,
            _ => CallClass::Ask,
        }
    }

    /// Bytes of file data that it moves.
    pub(crate) fn data(&self) -> u32 {
        match self {
            Request::Nfs(nfs3::Call::Read(r)) => r.count,
            Request::Nfs(nfs3::Call::Write(w)) => u32::try_from(w.data.len()).unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    /// Whether it is file data that is answered only when the server's disk has it.
    pub(crate) fn syncs(&self) -> bool {
        matches!(self, Request::Nfs(nfs3::Call::Write(w)) if w.stable != nfs3::Stable::Unstable)
    }

    /// Bytes of the results that it leaves room for, beside what every reply has; 0 where they are
    /// no matter of its own.
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

    /// The whole message.
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

/// Which results to expect: all that must be kept of a request beside its message.
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
    pub(crate) fn decode(self, outcome: Outcome, r: &mut Reader) -> Result<Answer, Failure> {
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
