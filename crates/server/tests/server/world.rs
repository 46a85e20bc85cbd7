//! A server over a file system in memory, with the executor's part played by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Time, Transmit};
use remora_server::{Access, Config, Execute, Export, Exports, Limits, Server, Squash, Terms, cache};
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::nfs3::{self, Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable, WriteArgs};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount};

pub(crate) const KEY: [u8; 16] = [9; 16];
pub(crate) const ROOT: Cred = Cred { uid: 0, gid: 0, gids: vec![] };

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) fs: Arc<MemFs>,
    pub(crate) now: Time,
    pub(crate) jobs: VecDeque<Execute>,
    pub(crate) sent: Vec<Transmit>,
    next_xid: u32,
}

pub(crate) fn udp() -> Peer {
    Peer::datagram("10.0.0.1:700".parse().unwrap())
}

pub(crate) fn tcp(id: u64) -> Peer {
    Peer::stream("10.0.0.1:700".parse().unwrap(), id)
}

/// Access for everybody without squashing, but for these changes.
pub(crate) fn everybody(change: impl Fn(&mut Terms)) -> Access {
    let mut terms = Terms { squash: Squash::None, ..Terms::default() };
    change(&mut terms);
    Access::everybody(terms)
}

/// Access for these clients only, without squashing.
pub(crate) fn only(clients: &[&str]) -> Access {
    let terms = Terms { squash: Squash::None, ..Terms::default() };
    Access::of(clients.iter().map(|c| c.parse().unwrap()), terms).unwrap()
}

impl World {
    pub(crate) fn new(cache: cache::Config) -> World {
        World::with(cache, Limits::default(), |_| {})
    }

    pub(crate) fn with(cache: cache::Config, limits: Limits, change: impl Fn(&mut Export)) -> World {
        let fs = Arc::new(MemFs::new(1));
        let mut export = Export { access: everybody(|_| {}), ..Export::new("/", fs.clone()) };
        change(&mut export);
        let exports = Arc::new(Exports::new(vec![export], &KEY).unwrap());
        let now = Time::from_secs(1_000);
        let server = Server::new(Config { cache, limits, ..Config::new(exports) }, 1, now);
        World { server, fs, now, jobs: VecDeque::new(), sent: vec![], next_xid: 1000 }
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, d: Duration) {
        self.now += d;
        self.fs.set_time(self.now);
        self.server.handle_timeout(self.now);
        self.drain();
    }

    /// Hands the server a message; what comes of it waits in `jobs` and `sent`.
    pub(crate) fn input(&mut self, from: Peer, message: Bytes) {
        self.server.handle_input(self.now, from, message);
        self.drain();
    }

    pub(crate) fn send(&mut self, from: Peer, xid: u32, call: &Call) {
        self.input(from, encode(xid, call));
    }

    pub(crate) fn drain(&mut self) {
        while let Some(t) = self.server.poll_transmit(self.now) {
            self.sent.push(t);
        }
        while let Some(e) = self.server.poll_event() {
            self.jobs.push_back(e);
        }
    }

    /// Takes the next job off the queue without running it.
    pub(crate) fn take_job(&mut self) -> Execute {
        self.jobs.pop_front().expect("a job")
    }

    /// Runs one job to its end.
    pub(crate) fn run(&mut self, e: Execute) {
        let answer = e.job.run();
        self.server.complete(self.now, e.ticket, answer);
        self.drain();
    }

    pub(crate) fn run_all(&mut self) {
        while let Some(e) = self.jobs.pop_front() {
            self.run(e);
        }
    }

    /// A whole exchange over datagrams: bytes in, bytes out.
    pub(crate) fn call(&mut self, call: &Call) -> Reply {
        self.call_from(udp(), call)
    }

    pub(crate) fn call_from(&mut self, from: Peer, call: &Call) -> Reply {
        self.next_xid += 1;
        let xid = self.next_xid;
        self.send(from, xid, call);
        self.run_all();
        let reply = self.sent.pop().expect("a reply");
        assert_eq!((reply.to, self.sent.len()), (from, 0));
        decode(call.proc(), xid, reply.payload)
    }

    pub(crate) fn mount(&mut self, from: Peer, call: &mount::Call) -> mount::Reply {
        let (outcome, mut r) = self.ask_mount(from, call);
        assert_eq!(outcome, Outcome::Success);
        let reply = mount::Reply::decode(call.proc(), &mut r).unwrap();
        assert_eq!(r.remaining(), 0);
        reply
    }

    /// Hands the server a call of MOUNT; says by which xid.
    pub(crate) fn send_mount(&mut self, from: Peer, call: &mount::Call) -> u32 {
        self.next_xid += 1;
        let (xid, mut out) = (self.next_xid, Vec::new());
        header(xid, mount::PROGRAM, mount::VERSION, call.proc()).encode(&mut out);
        call.encode(&mut out);
        self.input(from, out.into());
        xid
    }

    /// What becomes of a call of MOUNT, and its results.
    pub(crate) fn ask_mount(&mut self, from: Peer, call: &mount::Call) -> (Outcome, Reader) {
        let xid = self.send_mount(from, call);
        self.run_all();
        let mut r = Reader::new(self.sent.pop().expect("a reply").payload);
        let header = ReplyHeader::decode(&mut r).unwrap();
        assert_eq!(header.xid, xid);
        (header.outcome, r)
    }

    /// The handle of the export's root.
    pub(crate) fn root(&mut self) -> Fh {
        match self.mount(udp(), &mount::Call::Mnt("/".into())) {
            mount::Reply::Mnt(Ok(m)) => m.fh,
            other => panic!("{other:?}"),
        }
    }

    /// What is in the file called `name`.
    pub(crate) fn content(&self, name: &str) -> Bytes {
        let (id, _) = self.fs.lookup(&ROOT, &self.fs.root(), name.as_bytes()).unwrap();
        self.fs.read_all(&id).unwrap()
    }

    /// Makes a file and returns its handle.
    pub(crate) fn file(&mut self, root: &Fh, name: &str) -> Fh {
        match self.call(&create(root, name)) {
            Reply::Create(Ok(made)) => made.fh.unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn header(xid: u32, prog: u32, vers: u32, proc: u32) -> CallHeader {
    let cred = OpaqueAuth::unix(&AuthUnix { machine: "client".into(), ..AuthUnix::default() });
    CallHeader { xid, prog, vers, proc, cred, verf: OpaqueAuth::none() }
}

pub(crate) fn encode(xid: u32, call: &Call) -> Bytes {
    let mut out = Vec::new();
    header(xid, nfs3::PROGRAM, nfs3::VERSION, call.proc() as u32).encode(&mut out);
    call.encode(&mut out);
    out.into()
}

pub(crate) fn decode(proc: nfs3::Proc, xid: u32, payload: Bytes) -> Reply {
    let mut r = Reader::new(payload);
    assert_eq!(ReplyHeader::decode(&mut r), Ok(ReplyHeader { xid, outcome: Outcome::Success }));
    let reply = Reply::decode(proc, &mut r).unwrap();
    assert_eq!(r.remaining(), 0);
    reply
}

pub(crate) fn at(dir: &Fh, name: &str) -> DirOp {
    DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name.as_bytes()) }
}

/// CREATE that empties a file that exists.
pub(crate) fn create(dir: &Fh, name: &str) -> Call {
    let attr = SetAttr { mode: Some(0o644), size: Some(0), ..SetAttr::NONE };
    Call::Create(CreateArgs { at: at(dir, name), how: CreateHow::Unchecked(attr) })
}

pub(crate) fn write(fh: &Fh, offset: u64, data: &'static [u8]) -> Call {
    Call::Write(WriteArgs {
        fh: fh.clone(),
        offset,
        count: data.len() as u32,
        stable: Stable::FileSync,
        data: Bytes::from_static(data),
    })
}

pub(crate) fn set_size(fh: &Fh, size: u64) -> Call {
    let attr = SetAttr { size: Some(size), ..SetAttr::NONE };
    Call::SetAttr(nfs3::SetAttrArgs { fh: fh.clone(), attr, guard: None })
}

/// Every procedure that changes something, about the name `at`.
pub(crate) fn changes_at(at: &DirOp) -> Vec<Call> {
    let (at, dir, attr) = (at.clone(), at.dir.clone(), SetAttr::NONE);
    vec![
        Call::Create(CreateArgs { at: at.clone(), how: CreateHow::Guarded(attr.clone()) }),
        Call::MkDir(nfs3::MkDirArgs { at: at.clone(), attr: attr.clone() }),
        Call::SymLink(nfs3::SymLinkArgs { at: at.clone(), attr: attr.clone(), target: "t".into() }),
        Call::MkNod(nfs3::MkNodArgs { at: at.clone(), what: nfs3::NodeKind::Fifo(attr) }),
        Call::Remove(at.clone()),
        Call::RmDir(at.clone()),
        Call::Rename(nfs3::RenameArgs { from: at.clone(), to: at.clone() }),
        Call::Link(nfs3::LinkArgs { fh: dir, at }),
    ]
}

/// Every procedure that changes something, about `fh`.
pub(crate) fn changes(fh: &Fh) -> Vec<Call> {
    let commit = Call::Commit(nfs3::CommitArgs { fh: fh.clone(), offset: 0, count: 0 });
    [changes_at(&at(fh, "new")), vec![set_size(fh, 0), write(fh, 0, b"x"), commit]].concat()
}

/// Every procedure but NULL, about `fh`.
pub(crate) fn every_procedure(fh: &Fh) -> Vec<Call> {
    let (dir, verf) = (fh.clone(), [0; 8]);
    let looks = vec![
        Call::GetAttr(fh.clone()),
        Call::Lookup(at(fh, "x")),
        Call::Access(nfs3::AccessArgs { fh: fh.clone(), access: 1 }),
        Call::ReadLink(fh.clone()),
        Call::Read(nfs3::ReadArgs { fh: fh.clone(), offset: 0, count: 1 }),
        Call::ReadDir(nfs3::ReadDirArgs { dir: dir.clone(), cookie: 0, verf, count: 4096 }),
        Call::ReadDirPlus(nfs3::ReadDirPlusArgs { dir, cookie: 0, verf, dir_count: 4096, max_count: 4096 }),
        Call::FsStat(fh.clone()),
        Call::FsInfo(fh.clone()),
        Call::PathConf(fh.clone()),
    ];
    [looks, changes(fh)].concat()
}

#[test]
fn every_procedure_is_every_procedure() {
    let mut procs: Vec<_> = every_procedure(&Fh(Bytes::new())).iter().map(Call::proc).collect();
    procs.sort();
    assert_eq!(procs, nfs3::Proc::ALL[1..]);
}
