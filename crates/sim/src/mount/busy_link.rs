//! Small operations on a mount while a large file crosses the emulated channel.
//!
//! A cache core and a client core are stacked as the mount's driver stacks them; calls travel as datagrams.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};
use remora_cache::{Cache, LinkState};
use remora_channel::Channel;
use remora_client::{Answer, CallFailure, CallId, Client, ClientConfig, FRAME_PAYLOAD, Request};
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::fuse::{Errno, Header, Operation, Reply};
use remora_wire::nfs3::{CreateHow, Fh, SetAttr, Stable};
use remora_wire::rpc::OpaqueAuth;

use super::client::room;
use super::system_calls::{Kernel, Machine, O_RDONLY, ROOT};
use crate::copy::Direction;
use crate::events::Trace;
use crate::net::{Medium, Radio};
use crate::world::{ClientNode, ServerConfig, ServerNode, User, World};

/// Interval at which the cache learns the block sizes that suit the link.
const LINK_INTERVAL: Duration = Duration::from_millis(50);
/// Largest block that the server takes, in bytes.
const BLOCK_MAX: u32 = 32 << 10;
const LIST_PAGE: u32 = 8 << 10;
const SYNC_MAX: u64 = 32 << 10;
/// Bytes of a read(2) or write(2) of the large file.
const PIECE: usize = 128 << 10;
const DOCUMENTS: usize = 200;
const DOCUMENT_BYTES: usize = 20 << 10;
const SMALL_BYTES: usize = 100;
/// Bytes of an operation on the link beside file data, at least: three calls and their replies.
const HEADERS_MIN: usize = 1 << 10;
/// When the small operations begin, and the time between two.
const BEGIN: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(800);
pub(super) const RUN_MAX: Duration = Duration::from_secs(1000);

/// A large file and the operations beside it.
#[derive(Clone, Debug)]
pub struct Load {
    pub client: ClientConfig,
    pub channel: remora_channel::Config,
    pub direction: Direction,
    /// Bytes of the large file.
    pub bytes: usize,
    /// Whether small operations go on until the large file is done.
    pub has_small: bool,
}

/// Durations in seconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Times {
    /// The large file, until it is committed or read.
    pub large: f64,
    /// A document of 20 KiB opened and read.
    pub documents: Vec<f64>,
    /// A file of 100 bytes created, written and closed.
    pub creations: Vec<f64>,
    /// An editor's save: 20 KiB into a new file, fsync, rename.
    pub saves: Vec<f64>,
}

impl Times {
    /// Bytes of the small operations on the link, at least.
    pub fn small_bytes(&self) -> usize {
        let [documents, creations, saves] = [&self.documents, &self.creations, &self.saves].map(Vec::len);
        let calls = (documents + creations + saves) * HEADERS_MIN;
        (documents + saves) * DOCUMENT_BYTES + creations * SMALL_BYTES + calls
    }
}

/// Runs a load in virtual time.
pub fn run(load: &Load, seed: u64) -> Result<Times, String> {
    let server = ServerNode::new(ServerConfig::default(), seed);
    let root = server.root_handle().ok_or("the server has no root")?;
    prepare(server.fs(), load, seed);
    let mut world = World::new(seed, server, Trace::quiet());
    let radio = Radio::new(load.channel.clone(), None, Channel::seed_of(seed, 0), 1).map_err(|e| e.to_string())?;
    world.net.set_radio(radio);
    let shared = Shared(Rc::new(RefCell::new(MountState::new(root))));
    let user = MountUser { programs: programs(&shared, load), shared: shared.clone() };
    world.add_client(ClientNode::new(load.client.clone(), seed, user), Medium::Radio { mobile: 0 });
    let is_done = world.run(Time::ZERO + RUN_MAX, |w| w.clients[0].user().programs.is_empty());
    if !is_done.map_err(|stuck| stuck.to_string())? {
        return Err(format!("not done after {RUN_MAX:?}: {:?}", shared.0.borrow().cache.held()));
    }
    let times = shared.0.borrow().times.clone();
    Ok(times)
}

fn prepare(fs: &MemFs, load: &Load, seed: u64) {
    let cred = Cred { uid: 0, gid: 0, gids: Vec::new() };
    let mut rng = Rng::stream(seed, "documents");
    let mut add = |name: &str, len: usize| {
        let mut data = vec![0; len];
        rng.fill(&mut data);
        let made = fs.create(&cred, &fs.root(), name.as_bytes(), &CreateHow::Guarded(SetAttr::NONE));
        let made = made.expect("a new name");
        fs.write(&cred, &made.id, 0, &Bytes::from(data), Stable::FileSync).expect("room for the file");
    };
    (0..DOCUMENTS).for_each(|n| add(&document(n), DOCUMENT_BYTES));
    if load.direction == Direction::Read {
        add("large", load.bytes);
    }
}

/// In another order than that of the names, so that none is read ahead.
fn document(number: usize) -> String {
    format!("document{:03}", number * 77 % DOCUMENTS)
}

pub(super) type Program = Pin<Box<dyn Future<Output = ()>>>;

fn programs(shared: &Shared, load: &Load) -> Vec<Program> {
    let machine = Machine { world: shared.clone(), mount: 0, kill_after: None, open: Rc::default() };
    let mut programs: Vec<Program> = vec![Box::pin(large(machine.clone(), load.clone()))];
    if load.has_small {
        programs.push(Box::pin(small(machine)));
    }
    programs
}

async fn large(machine: Machine<Shared>, load: Load) {
    let result = match load.direction {
        Direction::Write => write(&machine, "large", &vec![7; load.bytes]).await,
        Direction::Read => read(&machine, "large", load.bytes).await,
    };
    result.expect("no error on this link");
    let mut state = machine.world.0.borrow_mut();
    state.times.large = state.now.since(Time::ZERO).as_secs_f64();
    state.is_large_done = true;
}

async fn write(machine: &Machine<Shared>, name: &str, data: &[u8]) -> Result<(), Errno> {
    let file = machine.create(ROOT, name, false).await?;
    for (n, piece) in data.chunks(PIECE).enumerate() {
        machine.write(file, (n * PIECE) as u64, Bytes::copy_from_slice(piece)).await?;
    }
    machine.fsync(file).await?;
    machine.close(file).await
}

async fn read(machine: &Machine<Shared>, name: &str, bytes: usize) -> Result<(), Errno> {
    let file = machine.open_flags(ROOT, name, O_RDONLY).await?;
    for n in 0..bytes.div_ceil(PIECE) {
        let op = Operation::Read { fh: file.fh, offset: (n * PIECE) as u64, size: PIECE as u32, flags: 0 };
        match machine.call(file.nodeid, op).await? {
            Reply::Data(data) => assert_eq!(data.len(), PIECE.min(bytes - n * PIECE)),
            other => panic!("READ is answered with {other:?}"),
        }
    }
    machine.close(file).await
}

async fn small(machine: Machine<Shared>) {
    let shared = machine.world.clone();
    shared.sleep(BEGIN).await;
    for n in 0..DOCUMENTS {
        let began = shared.now();
        read(&machine, &document(n), DOCUMENT_BYTES).await.expect("no error on this link");
        if shared.is_over(began, |times| &mut times.documents).await {
            return;
        }
        let began = shared.now();
        create(&machine, &format!("small{n}")).await.expect("no error on this link");
        if shared.is_over(began, |times| &mut times.creations).await {
            return;
        }
        let began = shared.now();
        save(&machine).await.expect("no error on this link");
        if shared.is_over(began, |times| &mut times.saves).await {
            return;
        }
    }
}

async fn create(machine: &Machine<Shared>, name: &str) -> Result<(), Errno> {
    let file = machine.create(ROOT, name, false).await?;
    machine.write(file, 0, Bytes::from(vec![1; SMALL_BYTES])).await?;
    machine.close(file).await
}

async fn save(machine: &Machine<Shared>) -> Result<(), Errno> {
    write(machine, "temporary", &[5; DOCUMENT_BYTES]).await?;
    machine.rename(ROOT, "temporary", "saved").await
}

/// The mount of the only machine.
pub(super) struct MountState {
    pub(super) now: Time,
    pub(super) cache: Cache,
    root: Fh,
    link_checked: Option<Time>,
    /// Calls in flight: the client's numbers and the cache's.
    calls: BTreeMap<CallId, remora_cache::CallId>,
    next_unique: u64,
    answers: BTreeMap<u64, Result<Reply, Errno>>,
    /// When programs that sleep go on.
    wakes: Vec<Time>,
    times: Times,
    is_large_done: bool,
}

impl MountState {
    pub(super) fn new(root: Fh) -> MountState {
        let cache = Cache::new(remora_cache::Config::default(), root.clone(), Time::ZERO);
        MountState {
            now: Time::ZERO,
            cache,
            root,
            link_checked: None,
            calls: BTreeMap::new(),
            next_unique: 1,
            answers: BTreeMap::new(),
            wakes: Vec::new(),
            times: Times::default(),
            is_large_done: false,
        }
    }

    /// Takes the cache's answers. Returns whether there were any.
    fn take_answers(&mut self) -> bool {
        let before = self.answers.len();
        self.answers.extend(std::iter::from_fn(|| self.cache.poll_answer()));
        while self.cache.poll_notification().is_some() {}
        self.answers.len() > before
    }

    /// Sends calls while the client has room, as the mount's driver does.
    fn send_calls(&mut self, client: &mut Client) {
        if self.link_checked.is_none_or(|at| self.now >= at + LINK_INTERVAL) {
            self.link_checked = Some(self.now);
            self.cache.set_link(LinkState {
                read_block: client.read_block(BLOCK_MAX),
                write_block: client.write_block(&self.root, BLOCK_MAX),
                list_page: client.reply_max().unwrap_or(LIST_PAGE),
                sync_max: if client.is_near() { 0 } else { SYNC_MAX },
                prefetch_max: LinkState::prefetch_max_of(rate(client), client.min_rtt()),
                ..LinkState::default()
            });
        }
        while let Some(call) = self.cache.poll_call(room(client)) {
            let (credential, urgency) = (OpaqueAuth::unix(&call.credential), call.priority.urgency());
            let id = client.submit_as(self.now, Request::Nfs(call.call), &credential, Some(urgency));
            let id = id.expect("few calls wait");
            self.calls.insert(id, call.id);
        }
    }
}

/// Bytes per second of the link, if they are known.
fn rate(client: &Client) -> Option<f64> {
    client.frames_per_second().map(|frames| frames * f64::from(FRAME_PAYLOAD))
}

#[derive(Clone)]
pub(super) struct Shared(pub(super) Rc<RefCell<MountState>>);

impl Shared {
    pub(super) fn now(&self) -> Time {
        self.0.borrow().now
    }

    /// Notes how long an operation took and waits before the next one. Returns whether the large file is done.
    async fn is_over(&self, began: Time, of: impl Fn(&mut Times) -> &mut Vec<f64>) -> bool {
        {
            let mut state = self.0.borrow_mut();
            let took = state.now.since(began).as_secs_f64();
            of(&mut state.times).push(took);
        }
        self.sleep(PAUSE).await;
        self.0.borrow().is_large_done
    }

    pub(super) async fn sleep(&self, time: Duration) {
        let until = {
            let mut state = self.0.borrow_mut();
            let until = state.now + time;
            state.wakes.push(until);
            until
        };
        std::future::poll_fn(|_| if self.0.borrow().now >= until { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Kernel for Shared {
    async fn call(&self, _: usize, nodeid: u64, op: Operation, _: Option<Duration>) -> Result<Reply, Errno> {
        let unique = {
            let mut state = self.0.borrow_mut();
            let (unique, now) = (state.next_unique, state.now);
            state.next_unique += 1;
            let header = Header { unique, nodeid, uid: 0, gid: 0, pid: 1, opcode: 0 };
            state.cache.handle_request(now, remora_wire::fuse::Request { header, op }, &[]);
            state.take_answers();
            unique
        };
        std::future::poll_fn(|_| match self.0.borrow_mut().answers.remove(&unique) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }
}

/// The cache as the user of a client, and the programs.
pub(super) struct MountUser {
    pub(super) shared: Shared,
    pub(super) programs: Vec<Program>,
}

impl User for MountUser {
    fn drive(&mut self, now: Time, client: &mut Client) {
        {
            let mut state = self.shared.0.borrow_mut();
            state.now = now;
            state.wakes.retain(|at| *at > now);
            if state.cache.poll_timeout().is_some_and(|at| at <= now) {
                state.cache.handle_timeout(now);
            }
        }
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.shared.0.borrow_mut().take_answers();
            self.programs.retain_mut(|program| program.as_mut().poll(&mut context).is_pending());
            self.shared.0.borrow_mut().send_calls(client);
            if !self.shared.0.borrow_mut().take_answers() {
                return;
            }
        }
    }

    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, CallFailure>) {
        let mut state = self.shared.0.borrow_mut();
        let Some(id) = state.calls.remove(&id) else { return };
        let reply = match result {
            Ok(Answer::Nfs(reply)) => Ok(reply),
            Ok(_) | Err(_) => Err(remora_cache::CallFailure::Failed),
        };
        state.cache.handle_reply(now, id, reply);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let state = self.shared.0.borrow();
        state.wakes.iter().copied().chain(state.cache.poll_timeout()).min()
    }
}

impl fmt::Debug for MountUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountUser").field("programs", &self.programs.len()).finish_non_exhaustive()
    }
}
