//! The server in its machine: the core, a memory file system, an input queue, daemons that
//! execute, and crashes.
//!
//! A job takes effect at the *end* of its service time and daemons run side by side, so a
//! duplicate may overtake or undo what came after its original: DRC 89, Example 1.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use remora_base::{Core, Path, Peer, Rng, Time, Transmit};
use remora_server::{Access, Clients, Config, Execute, Export, Exports, Limits, Server, Squash, Terms, cache};
use remora_server::{Started, Ticket};
use remora_vfs::MemFs;
use remora_wire::mount;
use remora_wire::nfs3::{Fh, Proc};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, ReplyHeader};
use remora_wire::{Reader, Xdr};

use crate::agenda::Agenda;
use crate::describe;
use crate::disk::{Disk, DiskModel};
use crate::drc::ufs::{Ufs, Volume};
use crate::flushes::{Flushes, Parked};
use crate::net::{client_addr, client_of};

/// What a server is like.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Which duplicate request cache.
    pub cache: cache::Config,
    /// The core's bounds.
    pub limits: Limits,
    /// Daemons (at least 1): how many jobs run side by side. Four is the reference port's.
    pub slots: usize,
    /// When messages leave the input queue.
    pub intake: Intake,
    /// Bytes of datagrams the input queue holds; what finds it full is lost.
    pub inbox_bytes_max: usize,
    /// How long work takes.
    pub disk: DiskModel,
    /// Where given, how long writes take instead; those of one file then wait for one another.
    pub ufs: Option<Ufs>,
    /// Whether stable writes and commits wait for flushes that they share.
    pub group_commit: bool,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            cache: cache::Config::full(),
            limits: Limits::default(),
            slots: 4,
            intake: Intake::WhenFree,
            inbox_bytes_max: 256 << 10,
            disk: DiskModel::instant(),
            ufs: None,
            group_commit: false,
        }
    }
}

/// When a message leaves the input queue and meets the duplicate request cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intake {
    /// When a daemon is free to take it up, as the reference port's do (DRC 89, section 2.1).
    WhenFree,
    /// At once; jobs wait for a daemon behind the cache.
    AtOnce,
}

/// What has happened at the server. Counters never go down and survive crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerStats {
    /// Messages lost to a full input queue.
    pub inbox_dropped: u64,
    /// Messages that came while it was down.
    pub down_dropped: u64,
    /// Jobs that took effect.
    pub executed: u64,
    /// Non-idempotent requests that took effect again without a crash between.
    pub executed_again: u64,
    pub crashes: u64,
    /// The most bytes the core ever held.
    pub memory_max: usize,
}

/// What a daemon did, as a monitor in the kernel would see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Execution {
    /// Which daemon, from 0.
    pub daemon: usize,
    /// Transaction id of the call.
    pub xid: u32,
    /// What was called.
    pub proc: Proc,
    /// When it took the call up.
    pub from: Time,
    /// When it was done; what the call does it did then.
    pub to: Time,
}

/// Executions a log holds.
const EXECUTIONS_MAX: usize = 1 << 16;

/// A job at a daemon, or waiting for one.
#[derive(Debug)]
struct Task {
    execute: Execute,
    /// Since when it is at which daemon, once it is.
    taken_up: Option<(Time, usize)>,
    /// Whose it is; `None` for a stranger's.
    client: Option<usize>,
    xid: u32,
}

/// The server's machine.
pub struct ServerNode {
    config: ServerConfig,
    exports: Arc<Exports>,
    fs: Arc<MemFs>,
    seed: u64,
    /// `None` while it is down.
    core: Option<Server>,
    inbox: VecDeque<(Peer, Bytes)>,
    inbox_bytes: usize,
    ready: VecDeque<Task>,
    running: Agenda<Task>,
    /// Jobs whose daemon sleeps until a file is free.
    asleep: VecDeque<Task>,
    flushes: Flushes,
    disk: Disk,
    volume: Option<Volume>,
    rng: Rng,
    /// If they are kept.
    executions: Option<Vec<Execution>>,
    /// What each client's non-idempotent request was executed in: the number of crashes before.
    executed: BTreeMap<(usize, u32), u64>,
    stats: ServerStats,
}

impl ServerNode {
    /// A running server of an empty file system.
    pub fn new(config: ServerConfig, seed: u64) -> ServerNode {
        let fs = Arc::new(MemFs::new(seed));
        if config.group_commit {
            fs.defer();
        }
        let mut export = Export::new("/", fs.clone());
        let terms = Terms { squash: Squash::None, ..Terms::default() };
        export.access =
            Access::of("10.1.0.0/16".parse::<Clients>(), terms).unwrap_or_else(|e| unreachable!("one network: {e}"));
        let mut rng = Rng::stream(seed, "server");
        let mut key = [0; 16];
        rng.fill(&mut key);
        let exports = Exports::new(vec![export], &key).unwrap_or_else(|e| unreachable!("one export named '/': {e}"));
        let mut node = ServerNode {
            disk: Disk::new(config.disk.clone(), seed),
            volume: config.ufs.map(|ufs| Volume::new(ufs, seed)),
            exports: Arc::new(exports),
            fs,
            seed,
            core: None,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            ready: VecDeque::new(),
            running: Agenda::new(),
            asleep: VecDeque::new(),
            flushes: Flushes::default(),
            rng,
            executions: None,
            executed: BTreeMap::new(),
            stats: ServerStats::default(),
            config,
        };
        node.start(Time::ZERO);
        node
    }

    /// The file system, for checkers and for faults of the disk.
    pub fn fs(&self) -> &Arc<MemFs> {
        &self.fs
    }

    pub fn disk_mut(&mut self) -> &mut Disk {
        &mut self.disk
    }

    /// Keeps what the daemons do from now on.
    pub fn log_executions(&mut self) {
        self.executions = Some(Vec::new());
    }

    /// What the daemons did, in the order in which it was done, if it is kept.
    pub fn executions(&self) -> &[Execution] {
        self.executions.as_deref().unwrap_or_default()
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// The core, while it is up.
    pub fn core(&self) -> Option<&Server> {
        self.core.as_ref()
    }

    pub fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// Starts it, with an empty cache.
    pub fn start(&mut self, now: Time) {
        let config =
            Config { cache: self.config.cache, limits: self.config.limits, ..Config::new(self.exports.clone()) };
        self.core = Some(Server::new(config, self.seed.wrapping_add(self.stats.crashes), now));
        self.disk.reset(now);
        if let Some(volume) = &mut self.volume {
            volume.reset(now);
        }
    }

    /// It goes down. What waits is gone; what was being executed took effect or not, as chance
    /// has it, but is not answered; volatile data is lost.
    pub fn crash(&mut self, now: Time) {
        if self.core.take().is_none() {
            return;
        }
        self.inbox.clear();
        self.inbox_bytes = 0;
        self.ready.clear();
        self.flushes.clear();
        self.fs.set_time(now);
        let asleep = std::mem::take(&mut self.asleep);
        for task in self.running.drain().into_iter().chain(asleep) {
            if self.rng.chance(0.5) {
                self.note_execution(&task);
                // Nobody is there to take the answer.
                let _ = task.execute.job.run();
            }
        }
        self.fs.crash();
        self.stats.crashes += 1;
    }

    /// The stream to `peer` is gone, and what it brought with it.
    pub fn disconnected(&mut self, now: Time, peer: Peer) {
        self.inbox.retain(|(from, _)| from.path != peer.path);
        self.inbox_bytes = self.inbox.iter().map(|(_, bytes)| bytes.len()).sum();
        if let Some(core) = &mut self.core {
            core.disconnected(peer);
        }
        self.pump(now);
    }

    /// Takes a message.
    pub fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes) {
        if self.core.is_none() {
            self.stats.down_dropped += 1;
            return;
        }
        // A stream holds its sender back instead of dropping.
        let full = self.inbox_bytes + bytes.len() > self.config.inbox_bytes_max;
        if full && from.path == Path::Datagram && !self.inbox.is_empty() {
            self.stats.inbox_dropped += 1;
            return;
        }
        self.inbox_bytes += bytes.len();
        self.inbox.push_back((from, bytes));
        self.pump(now);
    }

    /// Ends the jobs that are done by now.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, task)) = self.running.pop_due(now) {
            self.fs.set_time(now);
            self.note_execution(&task);
            self.log_execution(now, &task);
            if let Some(volume) = &mut self.volume {
                volume.unlock(task.execute.job.nfs_call());
            }
            let started = task.execute.job.start();
            self.take_result(now, started, task.execute.ticket, (task.client, task.xid));
            if self.config.ufs.is_some_and(|ufs| !ufs.overtaking) {
                self.wake(now);
            }
            // The daemon that is done goes on with what it finds in the queue; only then do those
            // run that sleep.
            self.pump(now);
            self.wake(now);
        }
        self.end_flushes(now);
        if let Some(core) = &mut self.core {
            core.handle_timeout(now);
        }
    }

    /// A job has come this far: it is answered, or waits for its flush. `whose`: the client and
    /// the transaction id.
    fn take_result(&mut self, now: Time, started: Started, ticket: Ticket, whose: (Option<usize>, u32)) {
        let (client, xid) = whose;
        match started {
            Started::Done(answer) => {
                if let Some(core) = &mut self.core {
                    core.complete(now, ticket, answer);
                }
                self.take_events(client, xid);
            }
            Started::Unflushed(unflushed) => {
                self.flushes.park(now, Parked { ticket, unflushed, client, xid }, &mut self.rng);
            }
        }
    }

    fn end_flushes(&mut self, now: Time) {
        if self.flushes.next_at().is_none_or(|at| at > now) {
            return;
        }
        self.fs.set_time(now);
        let disk = &mut self.disk;
        let done = self.flushes.handle_timeout(now, &mut self.rng, || disk.flush());
        for (Parked { ticket, unflushed, client, xid }, result) in done {
            self.take_result(now, unflushed.flushed(result), ticket, (client, xid));
        }
        self.pump(now);
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.core.as_mut()?.poll_transmit(now)
    }

    /// When a job ends or the core has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        let core = self.core.as_ref()?;
        [core.poll_timeout(), self.running.next_at(), self.flushes.next_at()].into_iter().flatten().min()
    }

    /// Jobs at a daemon, or waiting for one or for a flush.
    pub fn jobs(&self) -> usize {
        self.busy() + self.ready.len() + self.flushes.len()
    }

    /// Daemons that are not free.
    fn busy(&self) -> usize {
        self.running.len() + self.asleep.len()
    }

    /// The handle of the root directory, as MOUNT gives it.
    pub fn root_handle(&self) -> Option<Fh> {
        let config = Config { cache: cache::Config::Off, ..Config::new(self.exports.clone()) };
        let mut core = Server::new(config, 0, Time::ZERO);
        let cred = OpaqueAuth::unix(&AuthUnix::default());
        let call = mount::Call::Mnt(Bytes::from_static(b"/"));
        let mut message = Vec::new();
        let (prog, vers, proc) = (mount::PROGRAM, mount::VERSION, call.proc());
        CallHeader { xid: 1, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut message);
        call.encode(&mut message);
        core.handle_input(Time::ZERO, Peer::datagram(client_addr(0, 1)), message.into());
        let execute = core.poll_event()?;
        core.complete(Time::ZERO, execute.ticket, execute.job.run());
        let mut reply = Reader::new(core.poll_transmit(Time::ZERO)?.payload);
        ReplyHeader::decode(&mut reply).ok()?;
        match mount::Reply::decode(proc, &mut reply) {
            Ok(mount::Reply::Mnt(Ok(mounted))) => Some(mounted.fh),
            _ => None,
        }
    }

    /// Moves messages to the core and jobs to the daemons, as far as there are free ones.
    fn pump(&mut self, now: Time) {
        loop {
            self.start_ready(now);
            let free = self.busy() + self.ready.len() < self.config.slots.max(1);
            if !free && self.config.intake == Intake::WhenFree {
                return;
            }
            let (Some(core), Some((next, _))) = (&mut self.core, self.inbox.front()) else { return };
            if matches!(next.path, Path::Stream(_)) && !core.has_room(next.addr.ip()) {
                return;
            }
            let Some((from, bytes)) = self.inbox.pop_front() else { return };
            self.inbox_bytes -= bytes.len();
            let xid = describe::xid(&bytes).unwrap_or(0);
            core.handle_input(now, from, bytes);
            self.take_events(client_of(from.addr), xid);
        }
    }

    fn take_events(&mut self, client: Option<usize>, xid: u32) {
        let Some(core) = &mut self.core else { return };
        while let Some(execute) = core.poll_event() {
            self.ready.push_back(Task { execute, taken_up: None, client, xid });
        }
        self.stats.memory_max = self.stats.memory_max.max(core.memory());
    }

    fn start_ready(&mut self, now: Time) {
        while self.busy() < self.config.slots.max(1) {
            let Some(mut task) = self.ready.pop_front() else { return };
            task.taken_up = Some((now, self.free_daemon()));
            if self.volume.as_mut().is_none_or(|v| v.lock(task.execute.job.nfs_call())) {
                self.run(now, task);
            } else {
                self.asleep.push_back(task);
            }
        }
    }

    /// The daemon that has slept longest for a file that is free now takes it.
    fn wake(&mut self, now: Time) {
        let Some(volume) = &mut self.volume else { return };
        let first = self.asleep.iter().position(|task| volume.lock(task.execute.job.nfs_call()));
        if let Some(task) = first.and_then(|n| self.asleep.remove(n)) {
            self.run(now, task);
        }
    }

    /// Executes a job for which nothing has to be waited but the disk.
    fn run(&mut self, now: Time, task: Task) {
        let call = task.execute.job.nfs_call();
        let done = self.volume.as_mut().and_then(|v| v.schedule(now, call));
        let done = done.unwrap_or_else(|| self.disk.schedule(now, call));
        self.running.push(done, task);
    }

    /// The first daemon that has nothing to do.
    fn free_daemon(&self) -> usize {
        let taken =
            |n: &usize| self.running.iter().chain(&self.asleep).any(|t| t.taken_up.is_some_and(|(_, d)| d == *n));
        (0..).find(|n| !taken(n)).unwrap_or(0)
    }

    fn log_execution(&mut self, now: Time, task: &Task) {
        let (Some(log), Some((from, daemon))) = (&mut self.executions, task.taken_up) else { return };
        if let Some(proc) = task.execute.job.nfs_proc().filter(|_| log.len() < EXECUTIONS_MAX) {
            log.push(Execution { daemon, xid: task.xid, proc, from, to: now });
        }
    }

    /// Counts a job that takes effect, and whether it had done so before.
    fn note_execution(&mut self, task: &Task) {
        self.stats.executed += 1;
        let Some(client) = task.client else { return };
        if !task.execute.job.nfs_proc().is_some_and(Proc::is_non_idempotent) {
            return;
        }
        let before = self.executed.insert((client, task.xid), self.stats.crashes);
        self.stats.executed_again += u64::from(before == Some(self.stats.crashes));
    }
}

impl fmt::Debug for ServerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerNode").field("config", &self.config).field("stats", &self.stats).finish_non_exhaustive()
    }
}
