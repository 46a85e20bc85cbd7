//! A cache with its connections and a clock, for tests.

pub(super) use remora_wire::nfs3::Proc;

pub(super) use bytes::Bytes;
pub(super) use remora_base::{Peer, Time};
pub(super) use std::time::Duration;

pub(super) use crate::Version;
pub(super) use crate::cache::*;
use remora_wire::nfs3::NfsTime;

/// A cache, its connections and a clock.
pub(super) struct Bench {
    pub(super) cache: Cache,
    pub(super) live: Connections,
    pub(super) now: Time,
}

impl Bench {
    pub(super) fn new(config: Config) -> Bench {
        Bench { cache: Cache::new(config), live: Connections::default(), now: Time::from_secs(1) }
    }

    pub(super) fn begin(&mut self, request: &Request) -> Verdict {
        self.live.heard(request.peer, Some(request.xid));
        self.decide(request, &())
    }

    /// Decides about a request that is noted already.
    pub(super) fn decide(&mut self, request: &Request, ends: &dyn Ends) -> Verdict {
        let verdict = self.cache.begin(self.now, request, Streams { connections: &self.live, ends }, true);
        if verdict.is_known() {
            self.live.heard_before(request.peer);
        }
        verdict
    }

    /// Begins a request that must be executed.
    pub(super) fn start(&mut self, request: &Request) -> EntryId {
        match self.begin(request) {
            Verdict::Execute(Some(id)) => id,
            other => panic!("{other:?} for {request:?}"),
        }
    }

    pub(super) fn finish(&mut self, request: &Request, id: EntryId, done: Completion) -> Option<Finished> {
        self.cache.finish(self.now, request, Some(id), &self.live, done)
    }

    /// Executes a request that must be executed.
    pub(super) fn run(&mut self, request: &Request, reply: &str) {
        let id = self.start(request);
        let sent = self.finish(request, id, ok(reply)).expect("the path is live");
        assert_eq!(sent, Finished { to: request.peer, reply: Bytes::copy_from_slice(reply.as_bytes()) });
    }

    pub(super) fn wait(&mut self, secs: u64) {
        self.now += Duration::from_secs(secs);
    }
}

/// Streams on which everything was delivered, and those that were broken off.
pub(super) struct TestEnds {
    pub(super) arrived: Vec<u64>,
    pub(super) broken: Vec<u64>,
}

impl Ends for TestEnds {
    fn has_arrived(&self, stream: u64) -> bool {
        self.arrived.contains(&stream)
    }

    fn is_broken(&self, stream: u64) -> bool {
        self.broken.contains(&stream)
    }
}

pub(super) fn ok(reply: &str) -> Completion {
    Completion { reply: Bytes::copy_from_slice(reply.as_bytes()), ok: true, times: Some(times(1)) }
}

pub(super) fn failed(reply: &str) -> Completion {
    Completion { ok: false, times: None, ..ok(reply) }
}

pub(super) fn times(secs: u32) -> FileTimes {
    let t = NfsTime { secs, nanos: 0 };
    FileTimes { mtime: t, ctime: t }
}

pub(super) fn udp(addr: &str) -> Peer {
    Peer::datagram(addr.parse().expect("an address"))
}

pub(super) fn tcp(addr: &str, id: u64) -> Peer {
    Peer::stream(addr.parse().expect("an address"), id)
}

pub(super) fn request(peer: Peer, xid: u32, proc: Proc) -> Request {
    Request { peer, xid, version: Version::V3, proc, len: 100, hash: 7 }
}
