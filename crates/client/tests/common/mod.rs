//! A client core driven by hand: a clock, and what it sends.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Time, Transmit};
use remora_client::{Answer, CallFailure, CallId, Client, ClientConfig, ClientEvent, Request};
use remora_wire::nfs3::{
    self, Call, CommitArgs, DirOp, Fh, Proc, ReadArgs, ReadOk, SetAttr, Stable, SymLinkArgs, WriteArgs,
};
use remora_wire::rpc::{CallHeader, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

/// A message of the client.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) xid: u32,
    pub(crate) proc: Proc,
    pub(crate) payload: Bytes,
}

impl Sent {
    /// Length of the reply with all attributes.
    pub(crate) fn reply_len(&self) -> usize {
        let count = self.payload.last_chunk::<4>().map_or(0, |count| u32::from_be_bytes(*count) as usize);
        if self.proc == Proc::Read { count + 128 } else { 128 }
    }
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) now: Time,
    pub(crate) done: Vec<(CallId, Result<Answer, CallFailure>)>,
}

pub(crate) fn server() -> Peer {
    Peer::datagram(([10, 0, 0, 1], 2049).into())
}

pub(crate) fn read(offset: u64) -> Request {
    read_of(offset, 4096)
}

pub(crate) fn read_of(offset: u64, count: u32) -> Request {
    Request::Nfs(Call::Read(ReadArgs { fh: Fh(Bytes::from_static(b"file")), offset, count }))
}

pub(crate) fn write(offset: u64, len: usize) -> Request {
    let fh = Fh(Bytes::from_static(b"file"));
    let (count, data) = (len as u32, Bytes::from(vec![0; len]));
    Request::Nfs(Call::Write(WriteArgs { fh, offset, count, stable: Stable::Unstable, data }))
}

pub(crate) fn commit() -> Request {
    Request::Nfs(Call::Commit(CommitArgs { fh: Fh(Bytes::from_static(b"file")), offset: 0, count: 0 }))
}

/// A symbolic link with a target of this many bytes.
pub(crate) fn symlink(target: usize) -> Request {
    let at = DirOp { dir: Fh(Bytes::from_static(b"dir")), name: Bytes::from_static(b"link") };
    Request::Nfs(Call::SymLink(SymLinkArgs { at, attr: SetAttr::NONE, target: Bytes::from(vec![b'x'; target]) }))
}

pub(crate) fn getattr() -> Request {
    Request::Nfs(Call::GetAttr(Fh(Bytes::from_static(b"file"))))
}

pub(crate) const MS: Duration = Duration::from_millis(1);

impl World {
    pub(crate) fn new(config: ClientConfig) -> World {
        let now = Time::from_secs(100);
        World { client: Client::new(config, server(), 1, now), now, done: Vec::new() }
    }

    pub(crate) fn submit(&mut self, request: Request) -> CallId {
        self.client.submit(self.now, request).expect("room to wait")
    }

    pub(crate) fn submit_all(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            self.submit(request);
        }
    }

    pub(crate) fn submit_reads(&mut self, n: u64) {
        self.submit_all((0..n).map(|i| read(i * 4096)));
    }

    /// What the client sends now.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut out = Vec::new();
        while let Some(Transmit { payload, .. }) = self.client.poll_transmit(self.now) {
            let header = CallHeader::decode(&mut Reader::new(payload.clone())).expect("a call");
            let proc = Proc::from_number(header.proc).expect("a procedure");
            out.push(Sent { at: self.now, xid: header.xid, proc, payload });
        }
        while let Some(ClientEvent::Done { id, result }) = self.client.poll_event() {
            self.done.push((id, result));
        }
        out
    }

    /// Lets `time` pass and returns the messages sent.
    pub(crate) fn pass(&mut self, time: Duration) -> Vec<Sent> {
        let end = self.now + time;
        let mut out = self.sent();
        while let Some(due) = self.client.poll_timeout().filter(|t| *t <= end) {
            assert!(due >= self.now || out.len() < 100_000, "time stands still");
            self.now = self.now.max(due);
            self.client.handle_timeout(self.now);
            out.extend(self.sent());
        }
        self.now = end;
        out
    }

    /// Answers `call` now with an empty success.
    pub(crate) fn answer(&mut self, call: &Sent) {
        let data = call.reply_len() - 128;
        self.client.handle_input(self.now, server(), reply_of(call.xid, call.proc, data));
    }
}

pub(crate) fn reply_to(xid: u32, proc: Proc) -> Bytes {
    reply_of(xid, proc, 4096)
}

/// The server puts it off.
pub(crate) fn refusal(xid: u32, proc: Proc) -> Bytes {
    let mut out = Vec::new();
    ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut out);
    nfs3::Reply::failed(proc, nfs3::Status::Jukebox).encode(&mut out);
    Bytes::from(out)
}

/// Answers a READ with this many bytes.
fn reply_of(xid: u32, proc: Proc, bytes: usize) -> Bytes {
    let reply = match proc {
        Proc::Read => {
            let (count, data) = (bytes as u32, Bytes::from(vec![0; bytes]));
            nfs3::Reply::Read(Ok(ReadOk { attr: None, count, eof: false, data }))
        }
        other => nfs3::Reply::failed(other, nfs3::Status::NoEnt),
    };
    let mut out = Vec::new();
    ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut out);
    reply.encode(&mut out);
    Bytes::from(out)
}
