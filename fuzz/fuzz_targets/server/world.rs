//! The server, its disk, its clients' paths, and the jobs under way.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Path, Peer, Time, Transmit};
use remora_server::cache::Ends;
use remora_server::{Execute, Programs, Server};
use remora_vfs::MemFs;
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth};
use remora_wire::rpcbind::{Netid, Service};
use remora_wire::{mount, nfs3, nfsacl};

use crate::asked::{Asked, Handles};
use crate::replays::{Replays, xid};
use crate::setup::{self, CACHE_MAX, MEMORY_MAX};

/// More than the small cache may hold for one that is under way, in bytes.
const ENTRY_MAX: usize = 801;
/// Zeros behind all arguments, for short inputs to be calls, too.
const PADDING: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) prog: u32,
    pub(crate) vers: u32,
    pub(crate) proc: u32,
}

impl Call {
    /// Whether it is one that the cache is for.
    fn changes(self) -> bool {
        match (self.prog, self.vers) {
            (nfs3::PROGRAM, nfs3::VERSION) => {
                nfs3::Proc::from_number(self.proc).is_some_and(nfs3::Proc::is_non_idempotent)
            }
            (nfs3::PROGRAM, _) => matches!(self.proc, 2 | 8..=15),
            (nfsacl::PROGRAM, nfsacl::VERSION) => self.proc == nfsacl::Proc::SetAcl as u32,
            _ => false,
        }
    }
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) vfs: Arc<MemFs>,
    pub(crate) now: Time,
    /// The transaction number of the next call.
    pub(crate) xid: u32,
    pub(crate) peers: [Peer; 6],
    /// Streams that the server does not know to have ended.
    pub(crate) live: BTreeSet<u64>,
    pub(crate) handles: Handles,
    /// Whether all that was acknowledged on a stream has arrived there.
    pub(crate) arrived: bool,
    pub(crate) replays: Replays,
    next_stream: u64,
    pending: Vec<Execute>,
    asked: Asked,
    small_cache: bool,
    messages: u64,
    replies: u64,
    /// What the last message brought.
    came: Vec<(Peer, Bytes)>,
}

/// What is said of every stream.
struct Told {
    arrived: bool,
}

impl Ends for Told {
    fn has_arrived(&self, _: u64) -> bool {
        self.arrived
    }

    // The cache's own tests have streams that are broken off.
    fn is_broken(&self, _: u64) -> bool {
        false
    }
}

impl World {
    pub(crate) fn new(setup: u8) -> World {
        let vfs = setup::disk(setup);
        let peers = setup::peers();
        let mut world = World {
            server: Server::new(setup::config(setup, vfs.clone()), 1, Time::ZERO),
            vfs,
            now: Time::ZERO,
            xid: 0,
            live: peers.iter().filter_map(stream).collect(),
            next_stream: peers.len() as u64,
            peers,
            handles: Handles::default(),
            arrived: false,
            replays: Replays::new(setup::is_exact(setup)),
            pending: Vec::new(),
            asked: Asked::default(),
            small_cache: setup::is_small(setup),
            messages: 0,
            replies: 0,
            came: Vec::new(),
        };
        let at = SocketAddr::from(([0, 0, 0, 0], 2049));
        let nfs = Service { prog: nfs3::PROGRAM, vers: nfs3::VERSION, netid: Netid::Udp, at };
        world.server.set_portmap(vec![nfs]);
        world.mount();
        world
    }

    /// Asks for the handles of the roots, as clients do.
    fn mount(&mut self) {
        for (path, vers) in [("/", mount::VERSION), ("/", mount::VERSION_1), ("/other", mount::VERSION), ("/ro", 3)] {
            let mut args = Vec::new();
            mount::Call::Mnt(Bytes::from(path)).encode(&mut args);
            self.xid += 1;
            self.call(0, Call { prog: mount::PROGRAM, vers, proc: 1 }, args, false);
        }
        assert_eq!(self.handles.count(), (3, 1));
    }

    /// A client calls. Its job waits for [`finish`](World::finish) if it is to `hold`.
    pub(crate) fn call(&mut self, peer: usize, call: Call, args: Vec<u8>, hold: bool) {
        let message = self.message(peer, call, args);
        self.asked.insert(self.xid, call);
        let from = self.peers[peer];
        let expected = self.replays.asks(self.now, from, self.xid, &message, call.changes());
        self.came.clear();
        self.input(peer, message, hold);
        if let Some(expected) = expected {
            let mine = |(to, reply): &&(Peer, Bytes)| *to == from && xid(reply) == self.xid;
            let mine: Vec<_> = self.came.iter().filter(mine).map(|(_, reply)| reply).collect();
            assert_eq!(mine, [&expected], "another reply to the same change");
        }
    }

    fn message(&self, peer: usize, Call { prog, vers, proc }: Call, args: Vec<u8>) -> Bytes {
        let id = if peer.is_multiple_of(2) { 0 } else { 1000 };
        let cred = OpaqueAuth::unix(&AuthUnix { uid: id, gid: id, ..AuthUnix::default() });
        let mut out = Vec::new();
        CallHeader { xid: self.xid, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut out);
        out.extend_from_slice(&args);
        out.extend_from_slice(&[0; PADDING]);
        out.into()
    }

    /// A client sends a whole message, whatever it is.
    pub(crate) fn whole(&mut self, peer: usize, message: Bytes) {
        if let Some(number) = message.first_chunk() {
            let number = u32::from_be_bytes(*number);
            self.replays.asks(self.now, self.peers[peer], number, &message, false);
        }
        self.input(peer, message, false);
    }

    /// Hands a message to the server and lets it come to rest.
    fn input(&mut self, peer: usize, message: Bytes, hold: bool) {
        let from = self.peers[peer];
        self.live.extend(stream(&from));
        self.messages += 1;
        let read = self.server.intake().read(from, Programs::All, message);
        self.server.take(self.now, read, &Told { arrived: self.arrived });
        self.settle(hold);
    }

    fn settle(&mut self, hold: bool) {
        loop {
            while let Some(transmit) = self.server.poll_transmit(self.now) {
                self.take(transmit);
            }
            let Some(execute) = self.server.poll_event() else { break };
            if hold {
                self.pending.push(execute);
            } else {
                let answer = execute.job.run();
                self.server.complete(self.now, execute.ticket, answer);
            }
        }
        self.check();
        if self.server.poll_timeout().is_some_and(|at| at <= self.now) {
            self.server.handle_timeout(self.now);
        }
    }

    fn take(&mut self, Transmit { to, payload, .. }: Transmit) {
        self.replies += 1;
        assert!(stream(&to).is_none_or(|id| self.live.contains(&id)), "a reply to nobody");
        self.replays.note(self.now, to, &payload);
        self.came.push((to, payload.clone()));
        self.asked.read(payload, &mut self.handles);
    }

    fn check(&self) {
        assert!(self.replies <= self.messages, "more replies than messages");
        assert_eq!(self.server.in_flight(), self.pending.len());
        assert!(self.server.memory() <= MEMORY_MAX);
        let cache_max = CACHE_MAX + ENTRY_MAX * (1 + self.pending.len());
        assert!(!self.small_cache || self.server.cache_bytes() <= cache_max, "{}", self.server.cache_bytes());
    }

    /// One of the jobs under way comes to its end, or is not done.
    pub(crate) fn finish(&mut self, n: u8, abandon: bool) {
        if self.pending.is_empty() {
            return;
        }
        let execute = self.pending.remove(usize::from(n) % self.pending.len());
        let answer = if abandon { execute.job.abandon() } else { execute.job.run() };
        self.server.complete(self.now, execute.ticket, answer.clone());
        if abandon {
            // A stray answer.
            self.server.complete(self.now, execute.ticket, answer);
        }
        self.settle(true);
    }

    /// A client has a new connection, from the port it had or from another.
    pub(crate) fn reconnect(&mut self, peer: usize, same_port: bool) {
        let old = self.peers[peer].addr;
        let port = if same_port { old.port() } else { 900 + (self.next_stream % 100) as u16 };
        self.peers[peer] = Peer::stream(SocketAddr::new(old.ip(), port), self.next_stream);
        self.next_stream += 1;
    }

    /// All jobs end; and of the small cache nothing is left when all has expired.
    pub(crate) fn end(&mut self) {
        while !self.pending.is_empty() {
            self.finish(0, false);
        }
        for _ in 0..200 {
            self.now += Duration::from_secs(700);
            self.server.handle_timeout(self.now);
        }
        assert!(!self.small_cache || self.server.cache_bytes() == 0);
    }
}

/// The number of a stream.
fn stream(peer: &Peer) -> Option<u64> {
    match peer.path {
        Path::Stream(id) => Some(id),
        Path::Datagram => None,
    }
}
