//! The server over a file system in memory, sent a sequence of messages: it never panics,
//! answers with replies only, finishes what it begins and keeps within its bounds.
//!
//! The input is a row of commands `kind length bytes`. Most are the arguments of a procedure
//! behind a good header and the handle of the root; some are whole messages.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_base::{Core, Peer, Time};
use remora_server::{Config, Export, Exports, Limits, Server, cache};
use remora_vfs::MemFs;
use remora_wire::nfs3::{self, Fh};
use remora_wire::portmap::{self, Mapping};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount, nfs2};

/// Kinds of command: a procedure's number with a new xid, and with this bit with the last one
/// again, as a retransmission has it.
const AGAIN: u8 = 0x40;
/// The procedure is NFSv2's.
const VERSION_2: u8 = 0x20;
/// The bytes are the whole message.
const WHOLE: u8 = 0x80;
/// More than the server may hold with these limits and inputs this small, in bytes.
const MEMORY_MAX: usize = 4 << 20;

struct World {
    server: Server,
    peer: Peer,
    now: Time,
    xid: u32,
    root: Fh,
    root_v2: Bytes,
}

impl World {
    fn new() -> Option<World> {
        let vfs = Arc::new(MemFs::new(1));
        vfs.set_capacity(1 << 20);
        vfs.set_file_max(1 << 20);
        vfs.defer();
        let exports = Exports::new(vec![Export::new("/", vfs)], &[7; 16]).ok()?;
        let limits = Limits { stream_io_max: 64 << 10, in_flight_bytes_max: 1 << 20, ..Limits::default() };
        let config = Config { cache: cache::Config::default(), limits, ..Config::new(Arc::new(exports)) };
        let mut world = World {
            server: Server::new(config, 1, Time::ZERO),
            peer: Peer::datagram(([127, 0, 0, 1], 700).into()),
            now: Time::ZERO,
            xid: 0,
            root: Fh(Bytes::new()),
            root_v2: Bytes::new(),
        };
        let nfs = Mapping { prog: nfs3::PROGRAM, vers: nfs3::VERSION, prot: portmap::IPPROTO_UDP, port: 2049 };
        world.server.set_portmap(vec![nfs]);
        world.root = world.mount()?;
        world.root_v2 = world.mount_v2()?;
        Some(world)
    }

    /// The results of MNT of the root.
    fn mnt(&mut self, vers: u32) -> Option<Reader> {
        let mut args = Vec::new();
        mount::Call::Mnt(Bytes::from_static(b"/")).encode(&mut args);
        let reply = self.send(self.call(mount::PROGRAM, vers, 1, &args))?;
        let mut r = Reader::new(reply);
        ReplyHeader::decode(&mut r).ok()?;
        Some(r)
    }

    fn mount_v2(&mut self) -> Option<Bytes> {
        match mount::ReplyV1::decode(1, &mut self.mnt(mount::VERSION_1)?).ok()? {
            mount::ReplyV1::Mnt(Ok(fh)) => Some(fh.to_bytes()),
            _ => None,
        }
    }

    /// The root's handle, asked for as a client asks.
    fn mount(&mut self) -> Option<Fh> {
        let mut r = self.mnt(mount::VERSION)?;
        match mount::Reply::decode(1, &mut r).ok()? {
            mount::Reply::Mnt(Ok(mounted)) => Some(mounted.fh),
            _ => None,
        }
    }

    fn call(&self, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Bytes {
        let cred = OpaqueAuth::unix(&AuthUnix { uid: 1000, gid: 1000, ..AuthUnix::default() });
        let mut out = Vec::new();
        CallHeader { xid: self.xid, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut out);
        out.extend_from_slice(args);
        out.into()
    }

    fn command(&mut self, kind: u8, bytes: &[u8]) {
        if kind & WHOLE != 0 {
            self.send(Bytes::copy_from_slice(bytes));
            return;
        }
        if kind & AGAIN == 0 {
            self.xid += 1;
        }
        let (vers, root) = match kind & VERSION_2 {
            0 => (nfs3::VERSION, self.root.to_bytes()),
            _ => (nfs2::VERSION, self.root_v2.clone()),
        };
        let args = [&root[..], bytes].concat();
        let proc = u32::from(kind & 0x1f);
        if let Some(reply) = self.send(self.call(nfs3::PROGRAM, vers, proc, &args)) {
            self.check(vers, proc, reply);
        }
    }

    /// Hands a message to the server and lets it come to rest; gives its last reply.
    fn send(&mut self, message: Bytes) -> Option<Bytes> {
        self.now += std::time::Duration::from_millis(100);
        self.server.handle_input(self.now, self.peer, message);
        let mut last = None;
        loop {
            while let Some(transmit) = self.server.poll_transmit(self.now) {
                ReplyHeader::decode(&mut Reader::new(transmit.payload.clone())).expect("a server sends replies");
                last = Some(transmit.payload);
            }
            let Some(execute) = self.server.poll_event() else { break };
            let answer = execute.job.run();
            self.server.complete(self.now, execute.ticket, answer);
        }
        assert_eq!(self.server.in_flight(), 0);
        assert!(self.server.memory() <= MEMORY_MAX);
        if self.server.poll_timeout().is_some_and(|at| at <= self.now) {
            self.server.handle_timeout(self.now);
        }
        last
    }

    /// What the server sends after success is what a client can read.
    fn check(&self, vers: u32, proc: u32, reply: Bytes) {
        let mut r = Reader::new(reply);
        let header = ReplyHeader::decode(&mut r).expect("checked when it was sent");
        assert_eq!(header.xid, self.xid);
        if header.outcome != Outcome::Success {
            return;
        }
        if vers == nfs2::VERSION {
            let proc = nfs2::Proc::from_number(proc).expect("a procedure that succeeded");
            nfs2::Reply::decode(proc, &mut r).expect("results of the procedure called");
        } else {
            let proc = nfs3::Proc::from_number(proc).expect("a procedure that succeeded");
            nfs3::Reply::decode(proc, &mut r).expect("results of the procedure called");
        }
        assert_eq!(r.remaining(), 0);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new().expect("a server that can be mounted");
    let mut rest = data;
    while let [kind, len, more @ ..] = rest {
        let (bytes, after) = more.split_at(usize::from(*len).min(more.len()));
        world.command(*kind, bytes);
        rest = after;
    }
});
