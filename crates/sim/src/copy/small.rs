//! Small files during a bulk copy: the latency of saving a small file while a large one crosses the
//! same radio hop, from the same client or another on the same mobile.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};
use remora_client::{Answer, CallFailure, CallId, Client, Request};
use remora_vfs::MemFs;
use remora_wire::nfs3::{
    Call, CommitArgs, CreateArgs, CreateHow, DirOp, Fh, MadeOk, Reply, SetAttr, Stable, WriteArgs,
};

use super::config::{CopyConfig, CopyError, floor_seconds};
use super::copier::Copier;
use super::run::MobileCopy;
use super::run::{build, root_of};
use crate::events::Trace;
use crate::net::Medium;
use crate::world::World;
use crate::world::{ClientNode, User};

/// Maximum of files in progress; further ones wait, and their time counts.
const OPEN_MAX: usize = 64;
/// Maximum size of a small file.
const BYTES_MAX: usize = 1024;
/// Minimum of the mean time between two files.
const EVERY_MIN: Duration = Duration::from_millis(1);

/// Small files saved during a copy.
#[derive(Clone, Debug)]
pub struct SmallConfig {
    pub bulk: CopyConfig,
    /// Mean time between two files. A file is due at its time regardless of earlier ones, so one
    /// long wait counts for all files that it delays.
    pub every: Duration,
    /// Size of a file in bytes (range: 1 to 1024).
    pub bytes: usize,
    /// Whether a file is written UNSTABLE and committed, instead of FILE_SYNC.
    pub commit: bool,
    /// Whether a separate client on the first mobile saves them, unaware of the copy.
    pub own_client: bool,
}

impl SmallConfig {
    /// A file of 100 bytes about every 300 ms, from the client that copies.
    pub fn under(bulk: CopyConfig) -> SmallConfig {
        SmallConfig { bulk, every: Duration::from_millis(300), bytes: 100, commit: false, own_client: false }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct SmallResult {
    pub bulk: MobileCopy,
    /// Latency of each file from the submission of CREATE to the last reply, in order of their
    /// start; `None` if not done by the limit.
    pub latencies: Vec<Option<Duration>>,
    /// Hash of the run: the same for the same configuration and seed.
    pub trace: u64,
}

/// Saves small files during a copy, in virtual time.
pub fn run(config: &SmallConfig, seed: u64) -> Result<SmallResult, CopyError> {
    let mut world = build(&config.bulk, seed, Trace::quiet(), Application::copying)?;
    let limit = Time::ZERO + config.bulk.limit;
    let root = root_of(&world.server)?;
    let saver = Saver::new(config, root, seed);
    let at = if config.own_client {
        let node = ClientNode::new(config.bulk.client.clone(), seed.wrapping_add(1), Application::saving(saver));
        world.add_client(node, Medium::Radio { mobile: 0 });
        config.bulk.mobiles
    } else {
        world.tell(0, |desk| desk.saver = Some(saver));
        0
    };
    world.run(limit, |w| w.clients.iter().all(|c| c.user().copied()))?;
    world.tell(at, Application::stop);
    world.run(limit, |w| w.clients.iter().all(|c| c.user().saved()))?;
    result(config, seed, &world, at)
}

fn result(config: &SmallConfig, seed: u64, world: &World<Application>, saver: usize) -> Result<SmallResult, CopyError> {
    let (first, saver) = (&world.clients[0], world.clients[saver].user().saver.as_ref());
    let fs = world.server.fs();
    let (Some(copier), Some(saver)) = (&first.user().copier, saver) else {
        return Err(CopyError::Failed("a client neither copies nor saves".into()));
    };
    copier.check(fs)?;
    saver.check(fs)?;
    let bulk = MobileCopy::of(world, 0, copier, floor_seconds(&config.bulk, seed, 0)?);
    Ok(SmallResult { bulk, latencies: saver.latencies.clone(), trace: world.trace.hash() })
}

/// A user of a client that copies, saves small files, or both.
#[derive(Debug)]
struct Application {
    copier: Option<Copier>,
    saver: Option<Saver>,
}

impl Application {
    fn copying(copier: Copier) -> Application {
        Application { copier: Some(copier), saver: None }
    }

    fn saving(saver: Saver) -> Application {
        Application { copier: None, saver: Some(saver) }
    }

    fn copied(&self) -> bool {
        self.copier.as_ref().is_none_or(Copier::is_over)
    }

    fn stop(&mut self) {
        if let Some(saver) = &mut self.saver {
            saver.next_at = None;
        }
    }

    fn saved(&self) -> bool {
        self.saver.as_ref().is_none_or(|s| s.open.is_empty() && s.next.is_empty())
    }
}

impl User for Application {
    fn drive(&mut self, now: Time, client: &mut Client) {
        if let Some(saver) = &mut self.saver {
            saver.drive(now, client);
        }
        if let Some(copier) = &mut self.copier {
            copier.drive(now, client);
        }
    }

    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, CallFailure>) {
        let taken = self.copier.as_mut().is_some_and(|c| c.take(now, id, &result));
        if let Some(saver) = self.saver.as_mut().filter(|_| !taken) {
            saver.take(now, id, result);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.saver.as_ref()?.next_at
    }
}

/// A user that saves small files.
#[derive(Debug)]
struct Saver {
    root: Fh,
    data: Bytes,
    stable: Stable,
    every: Duration,
    rng: Rng,
    /// Time of the next file; `None` after the last.
    next_at: Option<Time>,
    /// The call that each file in progress waits for.
    open: BTreeMap<CallId, Saving>,
    /// Calls to submit next.
    next: Vec<(Saving, Call)>,
    /// Files that are due and not begun.
    due: VecDeque<usize>,
    /// Start of each file.
    begun: Vec<Time>,
    latencies: Vec<Option<Duration>>,
    failure: Option<String>,
}

/// A file in progress.
#[derive(Clone, Debug)]
struct Saving {
    number: usize,
    /// Known once it is created.
    fh: Option<Fh>,
}

impl Saver {
    fn new(config: &SmallConfig, root: Fh, seed: u64) -> Saver {
        let mut rng = Rng::stream(seed, "small files");
        let mut data = vec![0; config.bytes.clamp(1, BYTES_MAX)];
        rng.fill(&mut data);
        let mut saver = Saver {
            root,
            data: data.into(),
            stable: if config.commit { Stable::Unstable } else { Stable::FileSync },
            every: config.every.max(EVERY_MIN),
            rng,
            next_at: None,
            open: BTreeMap::new(),
            next: Vec::new(),
            due: VecDeque::new(),
            begun: Vec::new(),
            latencies: Vec::new(),
            failure: None,
        };
        saver.next_at = Some(Time::ZERO + saver.pause());
        saver
    }

    /// Uniform around the mean, so that files meet every phase of the link.
    fn pause(&mut self) -> Duration {
        self.every.mul_f64(0.75 + 0.5 * self.rng.unit())
    }

    fn name(number: usize) -> Bytes {
        format!("small{number}").into()
    }

    fn drive(&mut self, now: Time, client: &mut Client) {
        while let Some(at) = self.next_at.filter(|at| *at <= now) {
            self.next_at = Some(at + self.pause());
            self.due.push_back(self.begun.len());
            self.begun.push(at);
            self.latencies.push(None);
        }
        while self.open.len() + self.next.len() < OPEN_MAX
            && let Some(number) = self.due.pop_front()
        {
            let at = DirOp { dir: self.root.clone(), name: Self::name(number) };
            let how = CreateHow::Guarded(SetAttr::NONE);
            self.next.push((Saving { number, fh: None }, Call::Create(CreateArgs { at, how })));
        }
        for (saving, call) in self.next.drain(..) {
            match client.submit(now, Request::Nfs(call)) {
                Ok(id) => drop(self.open.insert(id, saving)),
                Err(busy) => self.failure = Some(busy.to_string()),
            }
        }
    }

    fn take(&mut self, now: Time, id: CallId, result: Result<Answer, CallFailure>) {
        let Some(mut saving) = self.open.remove(&id) else { return };
        match (result, &saving.fh) {
            (Ok(Answer::Nfs(Reply::Create(Ok(MadeOk { fh: Some(fh), .. })))), None) => {
                let (count, data) = (self.data.len() as u32, self.data.clone());
                saving.fh = Some(fh.clone());
                let write = WriteArgs { fh, offset: 0, count, stable: self.stable, data };
                self.next.push((saving, Call::Write(write)));
            }
            (Ok(Answer::Nfs(Reply::Write(Ok(ok)))), Some(fh)) if ok.committed == Stable::Unstable => {
                let commit = CommitArgs { fh: fh.clone(), offset: 0, count: 0 };
                self.next.push((saving, Call::Commit(commit)));
            }
            (Ok(Answer::Nfs(Reply::Write(Ok(_)) | Reply::Commit(Ok(_)))), Some(_)) => {
                let begun = self.begun[saving.number];
                self.latencies[saving.number] = Some(now.since(begun));
            }
            (other, _) => self.failure = Some(format!("file {}: {other:?}", saving.number)),
        }
    }

    /// Checks that every file reported saved is on the disk, byte for byte.
    fn check(&self, fs: &MemFs) -> Result<(), CopyError> {
        if let Some(why) = &self.failure {
            return Err(CopyError::Failed(why.clone()));
        }
        let tree = fs.tree();
        let saved = |number: usize| {
            let node = tree.get(&Self::name(number)[..])?;
            fs.read_durable(&node.id).ok()
        };
        let done = self.latencies.iter().enumerate().filter(|(_, latency)| latency.is_some());
        let exact = done.map(|(number, _)| saved(number)).all(|bytes| bytes.as_ref() == Some(&self.data));
        if exact { Ok(()) } else { Err(CopyError::Differs) }
    }
}
