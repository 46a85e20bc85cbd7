//! The server, the mounts, and the calls between them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Rng, Time};
use remora_cache::{Cache, CallId};
use remora_server::{Access, Config, Export, Exports, Server, Squash, Terms};
use remora_vfs::MemFs;
use remora_wire::fuse::{Errno, Header, Operation, Reply, Request};
use remora_wire::nfs3::{self, Fh};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount};

const KEY: [u8; 16] = [7; 16];
/// Maximum length of a run: a program that waits longer is stuck.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// Faults of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// Mean delay of a message.
    pub(super) delay: Duration,
    /// Probability that a message is delayed a hundred times as long.
    pub(super) late: f64,
    /// Granularity of the server's timestamps.
    pub(super) tick: Duration,
}

enum Event {
    /// A call arrives at the server.
    Call {
        mount: usize,
        id: CallId,
        credential: Arc<AuthUnix>,
        call: nfs3::Call,
    },
    Reply {
        mount: usize,
        id: CallId,
        reply: nfs3::Reply,
    },
    /// The caller of a request is killed.
    Kill {
        mount: usize,
        unique: u64,
    },
    /// The server loses what is volatile and starts again.
    Crash,
    /// A program that sleeps goes on.
    Wake,
}

/// A machine with a mount.
struct Machine {
    cache: Cache,
    answers: BTreeMap<u64, Result<Reply, Errno>>,
}

/// A world in virtual time.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) fs: Arc<MemFs>,
    faults: Faults,
    server: Server,
    boots: u64,
    next_xid: u32,
    next_unique: u64,
    next_event: u64,
    events: BTreeMap<(Time, u64), Event>,
    machines: Vec<Machine>,
}

fn server(fs: &Arc<MemFs>, boot: u64, now: Time) -> Server {
    let terms = Terms { squash: Squash::None, ..Terms::default() };
    let export = Export { access: Access::everybody(terms), ..Export::new("/", fs.clone()) };
    let exports = Exports::new(vec![export], &KEY).expect("one export of a file system in memory");
    Server::new(Config::new(Arc::new(exports)), boot, now)
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> World {
        let fs = Arc::new(MemFs::new(seed));
        let now = Time::from_secs(1_000);
        World {
            now,
            rng: Rng::stream(seed, "mount"),
            server: server(&fs, 1, now),
            fs,
            faults,
            boots: 1,
            next_xid: 1,
            next_unique: 1,
            next_event: 0,
            events: BTreeMap::new(),
            machines: Vec::new(),
        }
    }

    /// Mounts the export on one more machine.
    pub(super) fn mount(&mut self, config: remora_cache::Config) -> usize {
        let root = self.root();
        let cache = Cache::new(config, root, self.now);
        self.machines.push(Machine { cache, answers: BTreeMap::new() });
        let mount = self.machines.len() - 1;
        self.drain(mount);
        mount
    }

    fn root(&mut self) -> Fh {
        let mut message = Vec::new();
        let call = mount::Call::Mnt("/".into());
        header(0, mount::PROGRAM, mount::VERSION, call.proc(), &AuthUnix::default()).encode(&mut message);
        call.encode(&mut message);
        let mut reader = Reader::new(self.exchange(message.into()));
        let header = ReplyHeader::decode(&mut reader).expect("a reply of MOUNT");
        assert_eq!(header.outcome, Outcome::Success);
        match mount::Reply::decode(call.proc(), &mut reader) {
            Ok(mount::Reply::Mnt(Ok(mounted))) => mounted.fh,
            other => panic!("MNT is answered with {other:?}"),
        }
    }

    /// A message to the server, and its reply.
    fn exchange(&mut self, message: Bytes) -> Bytes {
        let tick = self.faults.tick.as_nanos().max(1) as u64;
        self.fs.set_time(Time::from_nanos(self.now.as_nanos() / tick * tick));
        let peer = Peer::stream("10.0.0.1:700".parse().expect("an address"), self.boots);
        self.server.handle_input(self.now, peer, message);
        loop {
            if let Some(reply) = self.server.poll_transmit(self.now) {
                return reply.payload;
            }
            let work = self.server.poll_event().expect("a job of the call");
            let answer = work.job.run();
            self.server.complete(self.now, work.ticket, answer);
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + after, self.next_event), event);
    }

    fn delay(&mut self) -> Duration {
        let late = if self.rng.chance(self.faults.late) { 100 } else { 1 };
        self.rng.exponential(self.faults.delay) * late
    }

    /// The server crashes after this time.
    pub(super) fn crash_after(&mut self, after: Duration) {
        self.schedule(after, Event::Crash);
    }

    /// Hands over a request of the kernel; returns its number.
    fn submit(&mut self, mount: usize, nodeid: u64, op: Operation) -> u64 {
        let unique = self.next_unique;
        self.next_unique += 1;
        let header = Header { unique, nodeid, uid: 0, gid: 0, pid: 1, opcode: 0 };
        self.machines[mount].cache.handle_request(self.now, Request { header, op }, &[]);
        self.drain(mount);
        unique
    }

    fn drain(&mut self, mount: usize) {
        while let Some(call) = self.machines[mount].cache.poll_call(true) {
            let after = self.delay();
            let (id, credential, call) = (call.id, call.credential, call.call);
            self.schedule(after, Event::Call { mount, id, credential, call });
        }
        let machine = &mut self.machines[mount];
        while let Some((unique, answer)) = machine.cache.poll_answer() {
            let earlier = machine.answers.insert(unique, answer);
            assert!(earlier.is_none(), "request {unique} is answered twice");
        }
        while machine.cache.poll_notification().is_some() {}
    }

    /// Takes the next event; `false` if there is none.
    fn step(&mut self) -> bool {
        let timeout = |(mount, machine): (usize, &Machine)| Some((machine.cache.poll_timeout()?, mount));
        let timer = self.machines.iter().enumerate().filter_map(timeout).min();
        let next = self.events.first_key_value().map(|(key, _)| key.0);
        if let Some((at, mount)) = timer
            && next.is_none_or(|next| at <= next)
        {
            self.now = self.now.max(at);
            self.machines[mount].cache.handle_timeout(self.now);
            self.drain(mount);
            return true;
        }
        let Some(((at, _), event)) = self.events.pop_first() else { return false };
        self.now = self.now.max(at);
        match event {
            Event::Call { mount, id, credential, call } => {
                let reply = self.execute(&credential, &call);
                let after = self.delay();
                self.schedule(after, Event::Reply { mount, id, reply });
            }
            Event::Reply { mount, id, reply } => {
                self.machines[mount].cache.handle_reply(self.now, id, Ok(reply));
                self.drain(mount);
            }
            Event::Kill { mount, unique } => {
                self.machines[mount].cache.handle_interrupt(self.now, unique);
                self.drain(mount);
            }
            Event::Crash => {
                self.fs.crash();
                self.boots += 1;
                self.server = server(&self.fs, self.boots, self.now);
            }
            Event::Wake => {}
        }
        true
    }

    fn execute(&mut self, credential: &AuthUnix, call: &nfs3::Call) -> nfs3::Reply {
        self.next_xid += 1;
        let mut message = Vec::new();
        let proc = call.proc();
        header(self.next_xid, nfs3::PROGRAM, nfs3::VERSION, proc as u32, credential).encode(&mut message);
        call.encode(&mut message);
        let mut reader = Reader::new(self.exchange(message.into()));
        let header = ReplyHeader::decode(&mut reader).expect("a reply of NFS");
        assert_eq!(header.outcome, Outcome::Success);
        nfs3::Reply::decode(proc, &mut reader).expect("results of NFS")
    }

    /// Whether every mount has sent all that was written, and waits for nothing.
    pub(super) fn is_quiet(&self) -> bool {
        self.machines.iter().all(|machine| machine.cache.is_clean() && machine.cache.status().calls_in_flight == 0)
    }

    /// Uncommitted bytes of all mounts.
    pub(super) fn dirty_bytes(&self) -> u64 {
        self.machines.iter().map(|machine| machine.cache.status().dirty_bytes).sum()
    }
}

fn header(xid: u32, prog: u32, vers: u32, proc: u32, credential: &AuthUnix) -> CallHeader {
    CallHeader { xid, prog, vers, proc, cred: OpaqueAuth::unix(credential), verf: OpaqueAuth::none() }
}

/// The world as programs share it.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Rc<RefCell<World>>);

impl Shared {
    /// Makes a request of the kernel and waits for its answer. With `kill_after`, the caller is killed after this
    /// time.
    pub(super) async fn call(
        &self,
        mount: usize,
        nodeid: u64,
        op: Operation,
        kill_after: Option<Duration>,
    ) -> Result<Reply, Errno> {
        let unique = {
            let mut world = self.0.borrow_mut();
            let unique = world.submit(mount, nodeid, op);
            if let Some(after) = kill_after {
                world.schedule(after, Event::Kill { mount, unique });
            }
            unique
        };
        std::future::poll_fn(|_| match self.0.borrow_mut().machines[mount].answers.remove(&unique) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    /// Waits for this time.
    pub(super) async fn sleep(&self, time: Duration) {
        let until = {
            let mut world = self.0.borrow_mut();
            world.schedule(time, Event::Wake);
            world.now + time
        };
        std::future::poll_fn(|_| if self.0.borrow().now >= until { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Waits until every mount is quiet.
    pub(super) async fn settle(&self) {
        std::future::poll_fn(|_| if self.0.borrow().is_quiet() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Runs `programs` until all have ended; fails if none of them can go on.
pub(super) fn run(world: &Shared, programs: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) -> Result<(), String> {
    let mut programs: Vec<_> = programs.into_iter().map(Some).collect();
    let mut context = Context::from_waker(Waker::noop());
    let limit = world.0.borrow().now + RUN_MAX;
    loop {
        for slot in &mut programs {
            if let Some(program) = slot
                && program.as_mut().poll(&mut context).is_ready()
            {
                *slot = None;
            }
        }
        if programs.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut world = world.0.borrow_mut();
        if !world.step() || world.now > limit {
            let held: Vec<_> = world.machines.iter().flat_map(|machine| machine.cache.held()).collect();
            return Err(format!("programs are stuck at {:?}: {held:?}", world.now));
        }
    }
}
