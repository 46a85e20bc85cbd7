//! The server, the mounts with their client cores, and the messages between them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Rng, Time};
use remora_cache::{Cache, Connectivity, LinkState, LogChange, SavedObject};
use remora_server::{Access, Config, Export, Exports, Server, Squash, Terms};
use remora_vfs::MemFs;
use remora_wire::fuse::{Errno, Header, Operation, Reply, Request};
use remora_wire::nfs3::{self, Fh};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount};

use super::client::ClientCalls;
use super::disk::Disk;
use super::disk_cache::{DiskCache, DiskFaults};
use super::system_calls::Kernel;

const KEY: [u8; 16] = [7; 16];
/// Procedures from CREATE to LINK (RFC 1813, section 3).
const CHANGES_OF_NAMES: RangeInclusive<u32> = 8..=15;
/// Maximum delay of a message. A WRITE that the client sent again with less data, for it seemed too long for the path,
/// could otherwise arrive after a later change of the same bytes.
const DELAY_MAX: Duration = Duration::from_secs(3);
/// Mean time that the store takes for a job.
const STORE_DELAY: Duration = Duration::from_millis(2);
/// How late the disk cache answers when it is stuck.
const STUCK_DELAY: Duration = Duration::from_secs(3);
/// How often a cache learns how long the server has been silent.
const SILENCE_PERIOD: Duration = Duration::from_secs(1);
/// Maximum length of a run: a program that waits longer is stuck.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// Faults of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// Mean delay of a message.
    pub(super) delay: Duration,
    /// Probability that a message is delayed a hundred times as long.
    pub(super) late: f64,
    /// Probability that a message is lost, and that it arrives twice.
    pub(super) loss: f64,
    pub(super) duplicates: f64,
    /// Granularity of the server's timestamps.
    pub(super) tick: Duration,
    /// Bytes of a READ or WRITE.
    pub(super) block: u32,
    /// Bytes of a file that are written synchronously at fsync and close; see [`LinkState::sync_max`].
    pub(super) sync_max: u64,
    pub(super) disk_cache: DiskFaults,
}

enum Event {
    /// A message arrives at the server.
    ToServer {
        mount: usize,
        message: Bytes,
    },
    ToMount {
        mount: usize,
        message: Bytes,
    },
    /// The caller of a request is killed.
    Kill {
        mount: usize,
        unique: u64,
    },
    /// The server loses what is volatile and starts again.
    Crash,
    /// The store of a mount executes its next job.
    Store {
        mount: usize,
    },
    /// The disk cache of a mount executes its next job.
    DiskCache {
        mount: usize,
    },
    /// A program that sleeps goes on.
    Wake,
}

/// A machine with a mount.
struct Machine {
    cache: Cache,
    client: ClientCalls,
    /// The machine's disk. Jobs leave only for a mount that writes back.
    disk: Disk,
    disk_cache: DiskCache,
    /// The mount's process has ended; another machine has its disk.
    is_dead: bool,
    /// No message comes through between the machine and the server.
    is_cut: bool,
    silence: Silence,
    answers: BTreeMap<u64, Result<Reply, Errno>>,
}

/// How long the server owes a reply.
#[derive(Debug, Default)]
struct Silence {
    since: Option<Time>,
    /// When the cache learns of it again.
    due: Option<Time>,
}

impl Machine {
    fn poll_timeout(&self) -> Option<Time> {
        [self.cache.poll_timeout(), self.client.poll_timeout(), self.silence.due].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.cache.handle_timeout(now);
        self.client.handle_timeout(now);
        if let Some(since) = self.silence.since
            && self.silence.due.is_some_and(|due| due <= now)
        {
            self.silence.due = Some(now + SILENCE_PERIOD);
            self.cache.set_silence(now, now.since(since));
        }
    }

    /// The server has sent something.
    fn heard(&mut self, now: Time) {
        if self.silence.since.is_some() {
            self.silence = Silence::default();
            self.cache.set_silence(now, Duration::ZERO);
        }
    }

    /// Notes whether the server owes a reply.
    fn note_calls(&mut self, now: Time) {
        match (self.client.is_waiting(), self.silence.since) {
            (true, None) => self.silence = Silence { since: Some(now), due: Some(now + SILENCE_PERIOD) },
            (false, Some(_)) => self.heard(now),
            _ => {}
        }
    }
}

/// Address of a machine.
fn peer(mount: usize) -> Peer {
    Peer::datagram(([10, 0, 0, 1 + mount as u8], 700).into())
}

/// A world in virtual time.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) fs: Arc<MemFs>,
    faults: Faults,
    server: Server,
    boots: u64,
    /// Changes of names by machine and xid, with the boot of the server that executed them first.
    changes: BTreeMap<(usize, u32), u64>,
    /// Of them, those that a later boot executed again.
    pub(super) repeated: u64,
    next_unique: u64,
    next_event: u64,
    events: BTreeMap<(Time, u64), Event>,
    machines: Vec<Machine>,
}

fn server(fs: &Arc<MemFs>, boot: u64, now: Time) -> Server {
    let terms = Terms { squash: Squash::None, ..Terms::default() };
    let export = Export { access: Access::everybody(terms), ..Export::new("/", fs.clone()) };
    let exports = Exports::new(vec![export], &KEY).expect("one export of a file system in memory");
    // As `remora serve` sets it.
    let config = Config { address_validation: true, ..Config::new(Arc::new(exports)) };
    Server::new(config, boot, now)
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> World {
        let fs = Arc::new(MemFs::new(seed));
        fs.set_time_grain(faults.tick);
        let now = Time::from_secs(1_000);
        World {
            now,
            rng: Rng::stream(seed, "mount"),
            server: server(&fs, 1, now),
            fs,
            faults,
            boots: 1,
            changes: BTreeMap::new(),
            repeated: 0,
            next_unique: 1,
            next_event: 0,
            events: BTreeMap::new(),
            machines: Vec::new(),
        }
    }

    /// Mounts the export on one more machine.
    pub(super) fn mount(&mut self, config: remora_cache::Config) -> usize {
        let mount = self.add_machine(config);
        self.drain(mount);
        mount
    }

    fn add_machine(&mut self, config: remora_cache::Config) -> usize {
        let root = self.root();
        let mount = self.machines.len();
        let mut cache = Cache::new(config, root, self.now);
        cache.set_link(LinkState {
            read_block: self.faults.block,
            write_block: self.faults.block,
            sync_max: self.faults.sync_max,
            ..LinkState::default()
        });
        let client = ClientCalls::new(self.rng.next_u64(), self.now);
        self.machines.push(Machine {
            cache,
            client,
            disk: Disk::default(),
            disk_cache: DiskCache::default(),
            is_dead: false,
            is_cut: false,
            silence: Silence::default(),
            answers: BTreeMap::new(),
        });
        mount
    }

    /// The process of `mount` is killed, or its machine loses power, and it is mounted again. Returns the new mount.
    pub(super) fn crash_mount(&mut self, mount: usize, loses_power: bool, config: remora_cache::Config) -> usize {
        let machine = &mut self.machines[mount];
        machine.is_dead = true;
        let is_cut = machine.is_cut;
        let mut disk = std::mem::take(&mut machine.disk);
        let mut disk_cache = std::mem::take(&mut machine.disk_cache);
        let held: Vec<u64> = machine.cache.held().iter().map(|held| held.unique).collect();
        held.into_iter().for_each(|unique| _ = machine.answers.insert(unique, Err(Errno::ENOTCONN)));
        // Its calls arrive before those of the next mount, or never.
        let is_own = |event: &Event| matches!(event, Event::ToServer { mount: caller, .. } if *caller == mount);
        let calls: Vec<_> = self.events.iter().filter(|(_, event)| is_own(event)).map(|(key, _)| *key).collect();
        for key in calls {
            if let Some(call) = self.events.remove(&key)
                && self.rng.chance(0.5)
            {
                self.schedule(Duration::ZERO, call);
            }
        }
        while self.events.first_key_value().is_some_and(|((at, _), event)| *at <= self.now && is_own(event)) {
            self.step();
        }
        // Programs go on from the data that they find now, so a later crash of the server must not take it back.
        self.fs.sync();
        let (log, objects) = disk.crash(&mut self.rng, loses_power);
        disk_cache.crash(&mut self.rng, loses_power, self.faults.disk_cache);
        let next = self.add_machine(config);
        let now = self.now;
        let machine = &mut self.machines[next];
        (machine.disk, machine.disk_cache, machine.is_cut) = (disk, disk_cache, is_cut);
        machine.cache.restore_log(now, log);
        machine.cache.restore(now, objects);
        self.drain(next);
        next
    }

    fn root(&mut self) -> Fh {
        let mut message = Vec::new();
        let call = mount::Call::Mnt("/".into());
        header(0, mount::PROGRAM, mount::VERSION, call.proc(), &AuthUnix::default()).encode(&mut message);
        call.encode(&mut message);
        let reply = self.exchange(Peer::stream(peer(0).addr, 0), message.into()).pop().expect("a reply to MNT");
        let mut reader = Reader::new(reply);
        let header = ReplyHeader::decode(&mut reader).expect("a reply of MOUNT");
        assert_eq!(header.outcome, Outcome::Success);
        match mount::Reply::decode(call.proc(), &mut reader) {
            Ok(mount::Reply::Mnt(Ok(mounted))) => mounted.fh,
            other => panic!("MNT is answered with {other:?}"),
        }
    }

    /// A message to the server, and its replies: none if the duplicate request cache drops it.
    fn exchange(&mut self, from: Peer, message: Bytes) -> Vec<Bytes> {
        self.fs.set_time(self.now);
        self.server.handle_input(self.now, from, message);
        let mut replies = Vec::new();
        loop {
            if let Some(reply) = self.server.poll_transmit(self.now) {
                replies.push(reply.payload);
            } else if let Some(work) = self.server.poll_event() {
                let answer = work.job.run();
                self.server.complete(self.now, work.ticket, answer);
            } else {
                return replies;
            }
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + after, self.next_event), event);
    }

    fn delay(&mut self) -> Duration {
        let late = if self.rng.chance(self.faults.late) { 100 } else { 1 };
        (self.rng.exponential(self.faults.delay) * late).min(DELAY_MAX)
    }

    /// Notes changes of names that the server executes a second time after a crash, for its duplicate request cache is
    /// in memory.
    fn count_repeated(&mut self, mount: usize, message: &Bytes) {
        let call = CallHeader::decode(&mut Reader::new(message.clone())).expect("a call of the client");
        if call.prog == nfs3::PROGRAM && CHANGES_OF_NAMES.contains(&call.proc) {
            let boot = *self.changes.entry((mount, call.xid)).or_insert(self.boots);
            self.repeated += u64::from(boot != self.boots);
        }
    }

    /// Sends a message from or to `mount`, which may be lost or arrive twice.
    fn send(&mut self, mount: usize, event: impl Fn() -> Event) {
        if self.machines[mount].is_cut || self.rng.chance(self.faults.loss) {
            return;
        }
        let copies = if self.rng.chance(self.faults.duplicates) { 2 } else { 1 };
        for _ in 0..copies {
            let after = self.delay();
            self.schedule(after, event());
        }
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
        let machine = &mut self.machines[mount];
        while let Some((id, result)) = machine.client.poll_reply(self.now) {
            machine.cache.handle_reply(self.now, id, result);
        }
        while let Some(job) = self.machines[mount].cache.poll_store_job() {
            self.machines[mount].disk.push(job);
            let after = self.rng.exponential(STORE_DELAY);
            self.schedule(after, Event::Store { mount });
        }
        while let Some(job) = self.machines[mount].cache.poll_disk_job() {
            self.machines[mount].disk_cache.push(job);
            let after = if self.rng.chance(self.faults.disk_cache.stuck) {
                STUCK_DELAY
            } else {
                self.rng.exponential(STORE_DELAY)
            };
            self.schedule(after, Event::DiskCache { mount });
        }
        let machine = &mut self.machines[mount];
        while let Some(call) = machine.cache.poll_call(machine.client.room()) {
            machine.client.submit(self.now, call);
        }
        let mut messages = Vec::new();
        while let Some(message) = machine.client.poll_transmit(self.now) {
            messages.push(message);
        }
        while let Some((unique, answer)) = machine.cache.poll_answer() {
            let earlier = machine.answers.insert(unique, answer);
            assert!(earlier.is_none(), "request {unique} is answered twice");
        }
        while machine.cache.poll_notification().is_some() {}
        machine.note_calls(self.now);
        for message in messages {
            self.send(mount, || Event::ToServer { mount, message: message.clone() });
        }
    }

    /// Takes the next event; `false` if there is none.
    fn step(&mut self) -> bool {
        let timeout = |(mount, machine): (usize, &Machine)| Some((machine.poll_timeout()?, mount));
        let living = self.machines.iter().enumerate().filter(|(_, machine)| !machine.is_dead);
        let timer = living.filter_map(timeout).min();
        let next = self.events.first_key_value().map(|(key, _)| key.0);
        if let Some((at, mount)) = timer
            && next.is_none_or(|next| at <= next)
        {
            self.now = self.now.max(at);
            self.machines[mount].handle_timeout(self.now);
            self.drain(mount);
            return true;
        }
        let Some(((at, _), event)) = self.events.pop_first() else { return false };
        self.now = self.now.max(at);
        match event {
            Event::ToServer { mount, message } => {
                self.count_repeated(mount, &message);
                for message in self.exchange(peer(mount), message) {
                    self.send(mount, || Event::ToMount { mount, message: message.clone() });
                }
            }
            Event::ToMount { mount, .. }
            | Event::Kill { mount, .. }
            | Event::Store { mount }
            | Event::DiskCache { mount }
                if self.is_dead(mount) => {}
            Event::DiskCache { mount } => {
                let faults = self.faults.disk_cache;
                if let Some((id, done)) = self.machines[mount].disk_cache.execute(&mut self.rng, faults) {
                    self.machines[mount].cache.handle_disk_done(self.now, id, done);
                }
                self.drain(mount);
            }
            Event::Store { mount } => {
                if let Some((id, result)) = self.machines[mount].disk.execute() {
                    self.machines[mount].cache.handle_store_done(self.now, id, result);
                }
                self.drain(mount);
            }
            Event::ToMount { mount, message } => {
                self.machines[mount].client.handle_input(self.now, message);
                self.machines[mount].heard(self.now);
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
                // No message outlives a restart: a late copy of a call that was answered before it would be executed
                // again, and no duplicate request cache knows it.
                self.events.retain(|_, event| !matches!(event, Event::ToServer { .. } | Event::ToMount { .. }));
            }
            Event::Wake => {}
        }
        true
    }

    fn is_dead(&self, mount: usize) -> bool {
        self.machines[mount].is_dead
    }

    fn living(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(|machine| !machine.is_dead)
    }

    /// Whether every mount has sent all that was written, and waits for nothing.
    pub(super) fn is_quiet(&self) -> bool {
        let is_sent = |cache: &Cache| cache.status().dirty_files == cache.refused_files();
        self.living().all(|machine| is_sent(&machine.cache) && machine.cache.status().calls_in_flight == 0)
    }

    /// The network between a machine and the server fails, or works again.
    pub(super) fn set_cut(&mut self, mount: usize, is_cut: bool) {
        self.machines[mount].is_cut = is_cut;
    }

    /// The cache of a machine.
    pub(super) fn cache(&self, mount: usize) -> &Cache {
        &self.machines[mount].cache
    }

    /// Changes the cache of a machine.
    pub(super) fn with_cache(&mut self, mount: usize, change: impl FnOnce(&mut Cache, Time)) {
        change(&mut self.machines[mount].cache, self.now);
        self.drain(mount);
    }

    /// Whether a mount has sent all that was changed there.
    pub(super) fn is_reintegrated(&self, mount: usize) -> bool {
        let cache = &self.machines[mount].cache;
        let (status, log) = (cache.status(), cache.log_status());
        let is_connected = !matches!(cache.connectivity(), Connectivity::Disconnected { .. });
        let is_sent = status.dirty_files == cache.refused_files() && log.records == log.refused;
        is_connected && is_sent && log.in_flight == 0 && status.calls_in_flight == 0
    }

    /// The paths that the cache of a mount lacked, for people.
    pub(super) fn missed(&self, mount: usize) -> Vec<String> {
        let missed = self.machines[mount].cache.missed();
        missed.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    /// What a mount has not sent, for people.
    pub(super) fn unsettled(&self, mount: usize) -> String {
        let cache = &self.machines[mount].cache;
        let (state, log, status) = (cache.connectivity(), cache.log_status(), cache.status());
        let unsent = cache.unsent(4);
        let path = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let files: Vec<_> = unsent.iter().map(|file| (path(&file.path), file.bytes, file.refusal)).collect();
        let records = cache.log_records(6);
        let records: Vec<_> =
            records.iter().map(|record| (record.id, path(&record.path), kind(&record.change))).collect();
        format!(
            "{state:?}, {log:?}, {} dirty files ({} refused), {} calls in flight, records {records:?}, files {files:?}",
            status.dirty_files,
            cache.refused_files(),
            status.calls_in_flight
        )
    }

    /// What the disk of `mount` has of files that are kept and not sent.
    pub(super) fn refused(&self, mount: usize) -> Vec<SavedObject> {
        let machine = &self.machines[mount];
        let unsent = machine.cache.unsent(usize::MAX);
        let refused: Vec<_> = unsent.iter().filter(|u| u.refusal.is_some()).filter_map(|u| u.object).collect();
        let objects = machine.disk.objects();
        objects.into_iter().filter(|saved| refused.contains(&saved.record.object)).collect()
    }

    /// Bytes of files that came from disk caches.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.machines.iter().map(|machine| machine.cache.status().figures.disk_bytes).sum()
    }

    /// Uncommitted bytes of all mounts.
    pub(super) fn dirty_bytes(&self) -> u64 {
        self.living().map(|machine| machine.cache.status().dirty_bytes).sum()
    }
}

fn header(xid: u32, prog: u32, vers: u32, proc: u32, credential: &AuthUnix) -> CallHeader {
    CallHeader { xid, prog, vers, proc, cred: OpaqueAuth::unix(credential), verf: OpaqueAuth::none() }
}

/// What a record changes, for people.
fn kind(change: &LogChange) -> &'static str {
    match change {
        LogChange::Make { .. } => "make",
        LogChange::Link { .. } => "link",
        LogChange::Remove { .. } => "remove",
        LogChange::Rename { .. } => "rename",
        LogChange::SetAttr { .. } => "attributes",
    }
}

/// The world as programs share it.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Rc<RefCell<World>>);

impl Kernel for Shared {
    async fn call(
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
}

impl Shared {
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
