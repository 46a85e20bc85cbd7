//! The caches as data structures, each by its rules, and the full one against a model.

mod historical;
mod model;
mod unit;

use remora_wire::nfs3::Proc;

use super::*;
use crate::Version;

/// A cache, its connections and a clock.
struct Bench {
    cache: Cache,
    live: Connections,
    now: Time,
}

impl Bench {
    fn new(config: Config) -> Bench {
        Bench { cache: Cache::new(config), live: Connections::default(), now: Time::from_secs(1) }
    }

    fn begin(&mut self, request: &Request) -> Verdict {
        self.live.heard(request.peer, Some(request.xid));
        self.decide(request, &())
    }

    /// What is decided of a request that has been heard of.
    fn decide(&mut self, request: &Request, ends: &dyn Ends) -> Verdict {
        let verdict = self.cache.begin(self.now, request, Streams { connections: &self.live, ends }, true);
        if verdict.is_known() {
            self.live.heard_before(request.peer);
        }
        verdict
    }

    /// Begins what must be executed.
    fn start(&mut self, request: &Request) -> EntryId {
        match self.begin(request) {
            Verdict::Execute(Some(id)) => id,
            other => panic!("{other:?} for {request:?}"),
        }
    }

    fn finish(&mut self, request: &Request, id: EntryId, done: Completion) -> Option<Finished> {
        self.cache.finish(self.now, request, Some(id), &self.live, done)
    }

    /// Executes what must be executed, successfully.
    fn run(&mut self, request: &Request, reply: &str) {
        let id = self.start(request);
        let sent = self.finish(request, id, ok(reply)).expect("the path is live");
        assert_eq!(sent, Finished { to: request.peer, reply: Bytes::copy_from_slice(reply.as_bytes()) });
    }

    fn wait(&mut self, secs: u64) {
        self.now += Duration::from_secs(secs);
    }
}

/// Streams on which all has arrived, and those that were broken off.
struct Told {
    arrived: Vec<u64>,
    broken: Vec<u64>,
}

impl Ends for Told {
    fn has_arrived(&self, stream: u64) -> bool {
        self.arrived.contains(&stream)
    }

    fn is_broken(&self, stream: u64) -> bool {
        self.broken.contains(&stream)
    }
}

fn ok(reply: &str) -> Completion {
    Completion { reply: Bytes::copy_from_slice(reply.as_bytes()), ok: true, times: Some(times(1)) }
}

fn failed(reply: &str) -> Completion {
    Completion { ok: false, times: None, ..ok(reply) }
}

fn times(secs: u32) -> FileTimes {
    let t = NfsTime { secs, nanos: 0 };
    FileTimes { mtime: t, ctime: t }
}

fn udp(addr: &str) -> Peer {
    Peer::datagram(addr.parse().expect("an address"))
}

fn tcp(addr: &str, id: u64) -> Peer {
    Peer::stream(addr.parse().expect("an address"), id)
}

fn request(peer: Peer, xid: u32, proc: Proc) -> Request {
    Request { peer, xid, version: Version::V3, proc, len: 100, hash: 7 }
}
