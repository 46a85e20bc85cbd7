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
use remora_server::{Config, Execute, Export, Exports, Limits, Server, Squash, cache};
use remora_vfs::MemFs;
use remora_wire::mount;
use remora_wire::nfs3::{Fh, Proc};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, ReplyHeader};
use remora_wire::{Reader, Xdr};

use crate::agenda::Agenda;
use crate::describe;
use crate::disk::{Disk, DiskModel};
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
    /// Crashes.
    pub crashes: u64,
    /// The most bytes the core ever held.
    pub memory_max: usize,
}

/// A job at a daemon, or waiting for one.
#[derive(Debug)]
struct Task {
    execute: Execute,
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
    disk: Disk,
    rng: Rng,
    /// What each client's non-idempotent request was executed in: the number of crashes before.
    executed: BTreeMap<(usize, u32), u64>,
    stats: ServerStats,
}

impl ServerNode {
    /// A running server of an empty file system.
    pub fn new(config: ServerConfig, seed: u64) -> ServerNode {
        let fs = Arc::new(MemFs::new(seed));
        let mut export = Export::new("/", fs.clone());
        export.squash = Squash::None;
        export.allow = "10.1.0.0/16".parse().into_iter().collect();
        let mut rng = Rng::stream(seed, "server");
        let mut key = [0; 16];
        rng.fill(&mut key);
        let exports = Exports::new(vec![export], &key).unwrap_or_else(|e| unreachable!("one export named '/': {e}"));
        let mut node = ServerNode {
            disk: Disk::new(config.disk.clone(), seed),
            exports: Arc::new(exports),
            fs,
            seed,
            core: None,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            ready: VecDeque::new(),
            running: Agenda::new(),
            rng,
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

    /// The disk.
    pub fn disk_mut(&mut self) -> &mut Disk {
        &mut self.disk
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// The core, while it is up.
    pub fn core(&self) -> Option<&Server> {
        self.core.as_ref()
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// Starts it, with an empty cache.
    pub fn start(&mut self, now: Time) {
        let config = Config { exports: self.exports.clone(), cache: self.config.cache, limits: self.config.limits };
        self.core = Some(Server::new(config, self.seed.wrapping_add(self.stats.crashes), now));
        self.disk.reset(now);
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
        self.fs.set_time(now);
        for task in self.running.drain() {
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
            let answer = task.execute.job.run();
            if let Some(core) = &mut self.core {
                core.complete(now, task.execute.ticket, answer);
            }
            self.take_events(task.client, task.xid);
            self.pump(now);
        }
        if let Some(core) = &mut self.core {
            core.handle_timeout(now);
        }
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.core.as_mut()?.poll_transmit(now)
    }

    /// When a job ends or the core has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        let core = self.core.as_ref()?;
        [core.poll_timeout(), self.running.next_at()].into_iter().flatten().min()
    }

    /// Jobs at a daemon or waiting for one.
    pub fn jobs(&self) -> usize {
        self.running.len() + self.ready.len()
    }

    /// The handle of the root directory, as MOUNT gives it.
    pub fn root_handle(&self) -> Option<Fh> {
        let config = Config { exports: self.exports.clone(), cache: cache::Config::Off, limits: Limits::default() };
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
            let free = self.jobs() < self.config.slots.max(1);
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
            self.ready.push_back(Task { execute, client, xid });
        }
        self.stats.memory_max = self.stats.memory_max.max(core.memory());
    }

    fn start_ready(&mut self, now: Time) {
        while self.running.len() < self.config.slots.max(1) {
            let Some(task) = self.ready.pop_front() else { return };
            let done = self.disk.schedule(now, task.execute.job.nfs_call());
            self.running.push(done, task);
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
