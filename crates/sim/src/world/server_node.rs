//! A server host: the server core, a memory file system, an input queue, daemons that execute jobs,
//! and crashes.
//!
//! A job takes effect at the *end* of its service time and daemons run in parallel, so a duplicate
//! may overtake or undo the effect of a later job: DRC 89, Example 1.

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

use super::disk::{Disk, DiskModel};
use super::group_commit::{GroupCommit, WaitingJob};
use super::ufs::{Ufs, Volume};
use crate::events::EventQueue;
use crate::events::message_text;
use crate::net::{client_addr, client_of};

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub cache: cache::Config,
    /// The core's limits.
    pub limits: Limits,
    /// Daemons (at least 1), the number of concurrent jobs. The reference port has four.
    pub slots: usize,
    pub intake: Intake,
    /// Capacity of the input queue in bytes of datagrams; further ones are lost.
    pub inbox_bytes_max: usize,
    pub disk: DiskModel,
    /// Service times of writes, if given; those of one file then exclude one another.
    pub ufs: Option<Ufs>,
    /// Whether stable writes and commits share flushes.
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

/// When a message leaves the input queue and reaches the duplicate request cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intake {
    /// When a daemon is free, as in the reference port (DRC 89, section 2.1).
    WhenFree,
    /// At once; jobs wait for a daemon behind the cache.
    AtOnce,
}

/// Counters of the server. They never decrease and survive crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerStats {
    /// Messages lost to a full input queue.
    pub inbox_dropped: u64,
    /// Messages that arrived during downtime.
    pub down_dropped: u64,
    /// Jobs that took effect.
    pub executed: u64,
    /// Non-idempotent requests that took effect again without a crash in between.
    pub executed_again: u64,
    pub crashes: u64,
    /// Maximum memory of the core in bytes.
    pub memory_max: usize,
}

/// An execution by a daemon, as seen by a monitor in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Execution {
    /// Number of the daemon, from 0.
    pub daemon: usize,
    /// Transaction ID of the call.
    pub xid: u32,
    pub proc: Proc,
    pub from: Time,
    /// End, at which the call took effect.
    pub to: Time,
}

/// Capacity of a log of executions.
const EXECUTIONS_MAX: usize = 1 << 16;

/// A job at a daemon, or waiting for one.
#[derive(Debug)]
struct Task {
    execute: Execute,
    /// Start and daemon, once a daemon took it.
    taken_up: Option<(Time, usize)>,
    /// Its client; `None` for an address that is no client's.
    client: Option<usize>,
    xid: u32,
}

pub struct ServerNode {
    config: ServerConfig,
    exports: Arc<Exports>,
    fs: Arc<MemFs>,
    seed: u64,
    /// `None` during downtime.
    core: Option<Server>,
    inbox: VecDeque<(Peer, Bytes)>,
    inbox_bytes: usize,
    ready: VecDeque<Task>,
    running: EventQueue<Task>,
    /// Jobs whose daemon sleeps until a file is unlocked.
    asleep: VecDeque<Task>,
    flushes: GroupCommit,
    disk: Disk,
    volume: Option<Volume>,
    rng: Rng,
    /// The log of executions, if started.
    executions: Option<Vec<Execution>>,
    /// By client and transaction ID of a non-idempotent request: the number of crashes before its
    /// execution.
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
            running: EventQueue::new(),
            asleep: VecDeque::new(),
            flushes: GroupCommit::default(),
            rng,
            executions: None,
            executed: BTreeMap::new(),
            stats: ServerStats::default(),
            config,
        };
        node.start(Time::ZERO);
        node
    }

    /// The file system, for checkers and disk faults.
    pub fn fs(&self) -> &Arc<MemFs> {
        &self.fs
    }

    pub fn disk_mut(&mut self) -> &mut Disk {
        &mut self.disk
    }

    /// Starts the log of executions.
    pub fn log_executions(&mut self) {
        self.executions = Some(Vec::new());
    }

    /// Executions in the order of their ends, if logged.
    pub fn executions(&self) -> &[Execution] {
        self.executions.as_deref().unwrap_or_default()
    }

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

    /// Starts the server with an empty cache.
    pub fn start(&mut self, now: Time) {
        let config =
            Config { cache: self.config.cache, limits: self.config.limits, ..Config::new(self.exports.clone()) };
        self.core = Some(Server::new(config, self.seed.wrapping_add(self.stats.crashes), now));
        self.disk.reset(now);
        if let Some(volume) = &mut self.volume {
            volume.reset(now);
        }
    }

    /// Crashes. Waiting jobs are lost; jobs in execution take effect or not, at random, without a
    /// reply; volatile data is lost.
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
                // The result is lost with the server.
                let _ = task.execute.job.run();
            }
        }
        self.fs.crash();
        self.stats.crashes += 1;
    }

    /// The stream to `peer` broke, and its messages are lost.
    pub fn disconnected(&mut self, now: Time, peer: Peer) {
        self.inbox.retain(|(from, _)| from.path != peer.path);
        self.inbox_bytes = self.inbox.iter().map(|(_, bytes)| bytes.len()).sum();
        if let Some(core) = &mut self.core {
            core.disconnected(peer);
        }
        self.pump(now);
    }

    /// Handles a message.
    pub fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes) {
        if self.core.is_none() {
            self.stats.down_dropped += 1;
            return;
        }
        // A stream applies back pressure instead of dropping.
        let full = self.inbox_bytes + bytes.len() > self.config.inbox_bytes_max;
        if full && from.path == Path::Datagram && !self.inbox.is_empty() {
            self.stats.inbox_dropped += 1;
            return;
        }
        self.inbox_bytes += bytes.len();
        self.inbox.push_back((from, bytes));
        self.pump(now);
    }

    /// Completes the jobs that are done by now.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, task)) = self.running.pop_due(now) {
            self.fs.set_time(now);
            self.note_execution(&task);
            self.log_execution(now, &task);
            if let Some(volume) = &mut self.volume {
                volume.unlock(task.execute.job.nfs_call());
            }
            let started = task.execute.job.start();
            self.take_result(now, started, task.execute.ticket, task.client, task.xid);
            if self.config.ufs.is_some_and(|ufs| !ufs.overtaking) {
                self.wake(now);
            }
            // The finished daemon continues with the queue before sleeping ones run.
            self.pump(now);
            self.wake(now);
        }
        self.end_flushes(now);
        if let Some(core) = &mut self.core {
            core.handle_timeout(now);
        }
    }

    /// Completes a job: sends its reply, or makes it wait for its flush.
    fn take_result(&mut self, now: Time, started: Started, ticket: Ticket, client: Option<usize>, xid: u32) {
        match started {
            Started::Done(answer) => {
                if let Some(core) = &mut self.core {
                    core.complete(now, ticket, answer);
                }
                self.take_events(client, xid);
            }
            Started::Unflushed(unflushed) => {
                self.flushes.park(now, WaitingJob { ticket, unflushed, client, xid }, &mut self.rng);
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
        for (WaitingJob { ticket, unflushed, client, xid }, result) in done {
            self.take_result(now, unflushed.flushed(result), ticket, client, xid);
        }
        self.pump(now);
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.core.as_mut()?.poll_transmit(now)
    }

    /// When a job ends or the core has a timer.
    pub fn poll_timeout(&self) -> Option<Time> {
        let core = self.core.as_ref()?;
        [core.poll_timeout(), self.running.next_at(), self.flushes.next_at()].into_iter().flatten().min()
    }

    /// Jobs at a daemon, or waiting for one or for a flush.
    pub fn jobs(&self) -> usize {
        self.busy() + self.ready.len() + self.flushes.len()
    }

    fn busy(&self) -> usize {
        self.running.len() + self.asleep.len()
    }

    /// The handle of the root directory.
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

    /// Moves messages to the core and jobs to free daemons.
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
            let xid = message_text::xid(&bytes).unwrap_or(0);
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

    /// Gives an unlocked file to the daemon that slept longest for it.
    fn wake(&mut self, now: Time) {
        let Some(volume) = &mut self.volume else { return };
        let first = self.asleep.iter().position(|task| volume.lock(task.execute.job.nfs_call()));
        if let Some(task) = first.and_then(|n| self.asleep.remove(n)) {
            self.run(now, task);
        }
    }

    /// Executes a job that waits for the disk only.
    fn run(&mut self, now: Time, task: Task) {
        let call = task.execute.job.nfs_call();
        let done = self.volume.as_mut().and_then(|v| v.schedule(now, call));
        let done = done.unwrap_or_else(|| self.disk.schedule(now, call));
        self.running.push(done, task);
    }

    /// The first idle daemon.
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

    /// Counts a job that takes effect, and whether it did before.
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
