//! Programs that use many small files of a mount over the emulated channel: `ls -lR`, `git status`, `tar x`.
//!
//! The kernel's cache of names and attributes is modelled: what it was answered, it keeps as long as it may.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};
use remora_channel::Channel;
use remora_client::ClientConfig;
use remora_vfs::{Cred, FileId, MemFs, Vfs};
use remora_wire::fuse::{Errno, Operation, Reply, SetAttr, TimeChange, Timestamp};
use remora_wire::nfs3::{self, CreateHow, Stable};

use super::busy_link::{MountState, MountUser, Program, RUN_MAX, Shared};
use super::system_calls::{Machine, O_RDONLY, OpenFile, ROOT, entries};
use crate::events::Trace;
use crate::net::{Medium, Radio};
use crate::world::{ClientNode, ServerConfig, ServerNode, World};

pub const DIRECTORIES: usize = 50;
/// Files of a directory.
pub const FILES: usize = 40;
/// Bytes of a file.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 50..=400;
const INDEX_BYTES: usize = 161_569;
const ARCHIVED: usize = 200;
/// Threads of `git status` that compare attributes at once.
const THREADS: usize = 4;
/// Bytes of a request for entries of a directory.
const PAGE: u32 = 32 << 10;

/// What a program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// `ls -lR`, twice.
    List,
    /// `git status` of a repository whose files were touched, twice.
    GitStatus,
    /// `tar x`, by root.
    Untar,
}

/// What a walk took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WalkTimes {
    /// Seconds, at first and again.
    pub first: f64,
    pub again: f64,
    /// Bytes of files that were read ahead, and those of them that the program used.
    pub ahead_bytes: u64,
    pub ahead_used_bytes: u64,
}

/// A walk, and the link that it uses.
#[derive(Clone, Debug)]
pub struct WalkLoad {
    pub walk: Walk,
    /// Idle time before the program runs again.
    pub pause: Duration,
    pub client: ClientConfig,
    pub channel: remora_channel::Config,
}

/// Runs a walk in virtual time.
pub fn run(load: &WalkLoad, seed: u64) -> Result<WalkTimes, String> {
    let walk = load.walk;
    let server = ServerNode::new(ServerConfig::default(), seed);
    let root = server.root_handle().ok_or("the server has no root")?;
    prepare(server.fs(), walk, seed);
    let mut world = World::new(seed, server, Trace::quiet());
    let radio = Radio::new(load.channel.clone(), None, Channel::seed_of(seed, 0), 1).map_err(|e| e.to_string())?;
    world.net.set_radio(radio);
    let shared = Shared(Rc::new(RefCell::new(MountState::new(root))));
    let machine = Machine { world: shared.clone(), mount: 0, kill_after: None, open: Rc::default() };
    let times = Rc::new(RefCell::new(WalkTimes::default()));
    let kernel = Kernel { machine, cached: Rc::default() };
    let programs: Vec<Program> = vec![Box::pin(twice(load.clone(), kernel, times.clone()))];
    world.add_client(
        ClientNode::new(load.client.clone(), seed, MountUser { programs, shared: shared.clone() }),
        Medium::Radio { mobile: 0 },
    );
    let is_done = world.run(Time::ZERO + RUN_MAX, |w| w.clients[0].user().programs.is_empty());
    if !is_done.map_err(|stuck| stuck.to_string())? {
        return Err(format!("not done after {RUN_MAX:?}: {:?}", shared.0.borrow().cache.held()));
    }
    let figures = shared.0.borrow().cache.status().figures;
    let (ahead_bytes, ahead_used_bytes) = (figures.ahead_bytes, figures.ahead_used_bytes);
    let times = WalkTimes { ahead_bytes, ahead_used_bytes, ..*times.borrow() };
    Ok(times)
}

async fn twice(load: WalkLoad, kernel: Kernel, times: Rc<RefCell<WalkTimes>>) {
    let mut seconds = [0.0; 2];
    let runs = if load.walk == Walk::Untar { 1 } else { 2 };
    for took in &mut seconds[..runs] {
        let began = kernel.now();
        program(load.walk, &kernel).await.expect("no error on this link");
        *took = kernel.now().since(began).as_secs_f64();
        kernel.machine.world.sleep(load.pause).await;
    }
    let mut times = times.borrow_mut();
    [times.first, times.again] = seconds;
}

async fn program(walk: Walk, kernel: &Kernel) -> Result<(), Errno> {
    match walk {
        Walk::List => list_all(kernel).await,
        Walk::GitStatus => git_status(kernel).await,
        Walk::Untar => untar(kernel).await,
    }
}

fn directory(number: usize) -> String {
    format!("d-{number:02}")
}

fn file(number: usize) -> String {
    format!("f-{number:02}.txt")
}

/// The server's files.
struct Files<'f> {
    fs: &'f MemFs,
    cred: Cred,
    rng: Rng,
}

impl Files<'_> {
    fn directory(&self, dir: &FileId, name: &str) -> FileId {
        let attr = nfs3::SetAttr { mode: Some(0o755), ..nfs3::SetAttr::NONE };
        self.fs.mkdir(&self.cred, dir, name.as_bytes(), &attr).expect("a new name").id
    }

    fn add(&mut self, dir: &FileId, name: &str, bytes: usize) {
        let mut data = vec![0; bytes];
        self.rng.fill(&mut data);
        let attr = nfs3::SetAttr { mode: Some(0o644), ..nfs3::SetAttr::NONE };
        let made = self.fs.create(&self.cred, dir, name.as_bytes(), &CreateHow::Guarded(attr)).expect("a new name");
        self.fs.write(&self.cred, &made.id, 0, &Bytes::from(data), Stable::FileSync).expect("room for the file");
    }
}

fn prepare(fs: &MemFs, walk: Walk, seed: u64) {
    let cred = Cred { uid: 0, gid: 0, gids: Vec::new() };
    let mut files = Files { fs, cred, rng: Rng::stream(seed, "files") };
    let root = files.fs.root();
    if walk == Walk::Untar {
        files.directory(&root, "unpacked");
        return;
    }
    for number in 0..DIRECTORIES {
        let dir = files.directory(&root, &directory(number));
        for number in 0..FILES {
            let bytes = FILE_BYTES.start() + files.rng.below(FILE_BYTES.end() - FILE_BYTES.start() + 1);
            files.add(&dir, &file(number), bytes as usize);
        }
    }
    if walk == Walk::GitStatus {
        let git = files.directory(&root, ".git");
        for (name, bytes) in [("HEAD", 23), ("config", 92), ("index", INDEX_BYTES)] {
            files.add(&git, name, bytes);
        }
    }
}

/// The kernel with its caches, and a program.
#[derive(Clone)]
struct Kernel {
    machine: Machine<Shared>,
    cached: Rc<RefCell<Cached>>,
}

#[derive(Default)]
struct Cached {
    names: BTreeMap<(u64, String), CachedName>,
    /// Until when attributes are valid.
    attrs: BTreeMap<u64, Time>,
}

#[derive(Clone, Copy)]
struct CachedName {
    /// `None` if there is no such name.
    node: Option<u64>,
    until: Time,
}

impl Kernel {
    fn now(&self) -> Time {
        self.machine.world.now()
    }

    async fn call(&self, node: u64, op: Operation) -> Result<Reply, Errno> {
        self.machine.call(node, op).await
    }

    fn learn(&self, dir: u64, name: &str, node: Option<u64>, valid: Duration) {
        let until = self.now() + valid;
        let mut cached = self.cached.borrow_mut();
        cached.names.insert((dir, name.to_owned()), CachedName { node, until });
        if let Some(node) = node {
            cached.attrs.insert(node, until);
        }
    }

    fn forget(&self, dir: u64, name: &str) {
        self.cached.borrow_mut().names.remove(&(dir, name.to_owned()));
    }

    async fn lookup(&self, dir: u64, name: &str) -> Result<u64, Errno> {
        let known = self.cached.borrow().names.get(&(dir, name.to_owned())).copied();
        if let Some(known) = known.filter(|known| known.until > self.now()) {
            return known.node.ok_or(Errno::ENOENT);
        }
        let op = Operation::Lookup { name: Bytes::copy_from_slice(name.as_bytes()) };
        let Reply::Entry(entry) = self.call(dir, op).await? else { panic!("LOOKUP has another answer") };
        let node = Some(entry.nodeid).filter(|node| *node != 0);
        self.learn(dir, name, node, entry.entry_valid);
        node.ok_or(Errno::ENOENT)
    }

    async fn stat(&self, dir: u64, name: &str) -> Result<u64, Errno> {
        let node = self.lookup(dir, name).await?;
        let until = self.cached.borrow().attrs.get(&node).copied();
        if until.is_none_or(|until| until <= self.now()) {
            let Reply::Attr { valid, .. } = self.call(node, Operation::GetAttr { fh: None }).await? else {
                panic!("GETATTR has another answer")
            };
            let until = self.now() + valid;
            self.cached.borrow_mut().attrs.insert(node, until);
        }
        Ok(node)
    }

    async fn open(&self, dir: u64, name: &str) -> Result<OpenFile, Errno> {
        for _ in 0..8 {
            let nodeid = self.lookup(dir, name).await?;
            match self.call(nodeid, Operation::Open { flags: O_RDONLY }).await {
                Ok(Reply::Opened(opened)) => return Ok(OpenFile { nodeid, fh: opened.fh }),
                Err(Errno::ESTALE) => self.forget(dir, name),
                Err(errno) => return Err(errno),
                Ok(other) => panic!("OPEN is answered with {other:?}"),
            }
        }
        Err(Errno::ESTALE)
    }

    async fn read(&self, dir: u64, name: &str) -> Result<(), Errno> {
        let file = self.open(dir, name).await?;
        let mut offset = 0;
        loop {
            let op = Operation::Read { fh: file.fh, offset, size: 128 << 10, flags: O_RDONLY };
            let Reply::Data(data) = self.call(file.nodeid, op).await? else { panic!("READ has another answer") };
            offset += data.len() as u64;
            if data.len() < 128 << 10 {
                break;
            }
        }
        self.machine.close(file).await
    }

    /// The names in a directory with their attributes, as getdents(2) of `ls -l`.
    async fn list(&self, dir: u64) -> Result<Vec<String>, Errno> {
        let Reply::Opened(opened) = self.call(dir, Operation::OpenDir { flags: 0 }).await? else {
            panic!("OPENDIR has another answer")
        };
        let mut names = Vec::new();
        let mut offset = 0;
        loop {
            let op = Operation::ReadDir { fh: opened.fh, offset, size: PAGE };
            let Reply::Directory(page) = self.call(dir, op).await? else { panic!("READDIR has another answer") };
            if page.is_empty() {
                break;
            }
            for entry in entries(&page) {
                offset = entry.cookie;
                names.push(entry.name);
            }
        }
        self.call(dir, Operation::ReleaseDir { fh: opened.fh }).await?;
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }
}

async fn list_all(kernel: &Kernel) -> Result<(), Errno> {
    let directories = list_one(kernel, ROOT).await?;
    for directory in directories {
        list_one(kernel, directory).await?;
    }
    Ok(())
}

async fn list_one(kernel: &Kernel, dir: u64) -> Result<Vec<u64>, Errno> {
    let mut nodes = Vec::new();
    for name in kernel.list(dir).await? {
        nodes.push(kernel.stat(dir, &name).await?);
    }
    Ok(nodes)
}

async fn git_status(kernel: &Kernel) -> Result<(), Errno> {
    let is_first = kernel.cached.borrow().names.is_empty();
    let git = kernel.lookup(ROOT, ".git").await?;
    for name in ["HEAD", "config", "config", "config", "HEAD"] {
        kernel.read(git, name).await?;
    }
    for name in ["commondir", "MERGE_HEAD", "CHERRY_PICK_HEAD", "packed-refs"] {
        assert_eq!(kernel.lookup(git, name).await, Err(Errno::ENOENT));
    }
    kernel.read(git, "index").await?;
    all((0..THREADS).map(|thread| boxed(compare(kernel.clone(), thread)))).await?;
    kernel.lookup(git, "index.lock").await.expect_err("no lock");
    let flags = 0o302;
    let name = Bytes::from_static(b"index.lock");
    let op = Operation::Create { name, mode: 0o644, umask: 0, flags };
    let Reply::Created(entry, opened) = kernel.call(git, op).await? else { panic!("CREATE has another answer") };
    let lock = OpenFile { nodeid: entry.nodeid, fh: opened.fh };
    kernel.forget(git, "index.lock");
    for number in 0..DIRECTORIES {
        let dir = kernel.stat(ROOT, &directory(number)).await?;
        if is_first {
            kernel.lookup(dir, ".gitattributes").await.expect_err("no such file");
            for number in 0..FILES {
                kernel.stat(dir, &file(number)).await?;
                kernel.read(dir, &file(number)).await?;
            }
        }
    }
    kernel.list(ROOT).await?;
    for number in 0..DIRECTORIES {
        let dir = kernel.lookup(ROOT, &directory(number)).await?;
        kernel.list(dir).await?;
    }
    if !is_first {
        kernel.machine.close(lock).await?;
        return kernel.machine.unlink(git, "index.lock").await;
    }
    let data = vec![7; INDEX_BYTES];
    for (n, part) in data.chunks(128 << 10).enumerate() {
        kernel.machine.write(lock, (n * (128 << 10)) as u64, Bytes::copy_from_slice(part)).await?;
    }
    kernel.machine.close(lock).await?;
    kernel.forget(git, "index");
    kernel.machine.rename(git, "index.lock", "index").await
}

/// A thread of `git status` compares the attributes of its part of the index.
async fn compare(kernel: Kernel, thread: usize) -> Result<(), Errno> {
    let part = (DIRECTORIES * FILES).div_ceil(THREADS);
    for number in thread * part..((thread + 1) * part).min(DIRECTORIES * FILES) {
        let dir = kernel.stat(ROOT, &directory(number / FILES)).await?;
        kernel.stat(dir, &file(number % FILES)).await?;
    }
    Ok(())
}

async fn untar(kernel: &Kernel) -> Result<(), Errno> {
    let dir = kernel.lookup(ROOT, "unpacked").await?;
    for number in 0..ARCHIVED {
        let name = format!("f-{number}");
        kernel.lookup(dir, &name).await.expect_err("a new name");
        let op = Operation::Create { name: Bytes::from(name.into_bytes()), mode: 0o600, umask: 0, flags: 0o301 };
        let Reply::Created(entry, opened) = kernel.call(dir, op).await? else { panic!("CREATE has another answer") };
        let file = OpenFile { nodeid: entry.nodeid, fh: opened.fh };
        kernel.machine.write(file, 0, Bytes::from(vec![1; 225])).await?;
        let keep = TimeChange::Keep;
        let none = SetAttr {
            fh: Some(file.fh),
            size: None,
            mode: None,
            uid: None,
            gid: None,
            atime: keep,
            mtime: keep,
            kill_suidgid: false,
        };
        let mtime = TimeChange::To(Timestamp { secs: 1_700_000_000, nanos: 0 });
        let changes = [
            SetAttr { mtime, ..none.clone() },
            SetAttr { uid: Some(0), gid: Some(0), ..none.clone() },
            SetAttr { mode: Some(0o644), ..none },
        ];
        for change in changes {
            kernel.call(file.nodeid, Operation::SetAttr(change)).await?;
        }
        kernel.machine.close(file).await?;
    }
    Ok(())
}

type Thread = Pin<Box<dyn Future<Output = Result<(), Errno>>>>;

fn boxed(thread: impl Future<Output = Result<(), Errno>> + 'static) -> Thread {
    Box::pin(thread)
}

/// Runs threads until all have ended.
async fn all(threads: impl Iterator<Item = Thread>) -> Result<(), Errno> {
    let mut threads: Vec<Thread> = threads.collect();
    std::future::poll_fn(move |context: &mut Context<'_>| {
        let mut failed = Ok(());
        threads.retain_mut(|thread| match thread.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                failed = failed.and(result);
                false
            }
        });
        if threads.is_empty() || failed.is_err() { Poll::Ready(failed) } else { Poll::Pending }
    })
    .await
}
