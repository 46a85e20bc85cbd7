//! An actor: one operation after the other in its own directory, each checked by the oracle.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};
use remora_client::{Answer, CallFailure, CallId, Client, Request};
use remora_vfs::MemFs;
use remora_wire::nfs3::{Fh, Reply, Status};

use super::random_ops::Mix;
use crate::swarm::oracle::Op;
use crate::swarm::oracle::{Kind, Model, Tree, differences, mixture};
use crate::world::transfer::{Transfer, TransferFailure};

/// Configuration of an actor.
#[derive(Clone)]
pub struct ActorConfig {
    /// The name of its directory, which is in the root and empty.
    pub home: String,
    pub root: Fh,
    /// The server's files, for the oracle.
    pub fs: Arc<MemFs>,
    /// Mean pause between operations.
    pub think: Duration,
    /// Maximum bytes of a READ or WRITE.
    pub io_max: u32,
    /// Whether the disk fails, so that EIO is a valid status.
    pub disk_errors: bool,
    /// Whether writes share flushes: a failed one may have taken effect, since the failed flush may
    /// be another's.
    pub group_commit: bool,
}

/// Performs operations in its own directory, each checked by the oracle.
pub struct Actor {
    config: ActorConfig,
    source: Source,
    rng: Rng,
    model: Model,
    running: Option<CurrentOp>,
    next_at: Option<Time>,
    violations: Vec<String>,
    done: u64,
    excused: u64,
}

/// The source of operations.
enum Source {
    Random(Mix),
    Script(VecDeque<Op>),
    /// Reads everything back, once no operation is in progress.
    ReadBack,
}

/// The operation in progress.
struct CurrentOp {
    op: Op,
    work: Work,
    expected: Result<(), Status>,
    /// Status of a second execution.
    replayed: Result<(), Status>,
    after: Model,
    /// Paths that may change.
    touched: BTreeSet<String>,
    /// The server crashed while it was outstanding.
    crashed: bool,
}

enum Work {
    Call(CallId),
    /// To be resent: it was too long for the path.
    Again,
    Move(Box<Transfer>),
}

impl Actor {
    /// An actor with random operations.
    pub fn random(config: ActorConfig, mix: Mix, seed: u64) -> Actor {
        let rng = Rng::stream(seed, &format!("actor {}", config.home));
        Actor::new(config, Source::Random(mix), rng)
    }

    /// An actor with given operations, without pauses.
    pub fn scripted(config: ActorConfig, script: Vec<Op>) -> Actor {
        Actor::new(config, Source::Script(script.into()), Rng::stream(0, "script"))
    }

    fn new(config: ActorConfig, source: Source, rng: Rng) -> Actor {
        Actor {
            config,
            source,
            rng,
            model: Model::new(),
            running: None,
            next_at: Some(Time::ZERO),
            violations: Vec::new(),
            done: 0,
            excused: 0,
        }
    }

    /// Starts no new operation except reading every file back.
    pub fn wind_down(&mut self) {
        self.source = Source::ReadBack;
        self.next_at = Some(Time::ZERO);
    }

    /// Whether no operation is in progress or due.
    pub fn is_idle(&self) -> bool {
        let ended = matches!(&self.source, Source::Script(ops) if ops.is_empty());
        self.running.is_none() && (ended || self.is_halted())
    }

    /// What it waits for, as text.
    pub fn waiting_for(&self) -> Option<String> {
        self.running.as_ref().map(|r| format!("{}: {:?}", self.config.home, OpSummary(&r.op)))
    }

    /// Operations done, and those of them that were excused.
    pub fn counts(&self) -> (u64, u64) {
        (self.done, self.excused)
    }

    /// Violations of the oracle.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Compares its files with the model, except those that the current operation changes.
    pub fn check(&mut self, now: Time, tree: &Tree, when: &str) {
        if self.is_halted() {
            return;
        }
        let nothing = BTreeSet::new();
        let except = self.running.as_ref().map_or(&nothing, |r| &r.touched);
        let found = differences(&self.model, tree, &self.config.home, except);
        self.violations.extend(found.into_iter().map(|what| format!("{now}: {when}: {what}")));
    }

    pub fn on_server_crash(&mut self, now: Time, tree: &Tree) {
        if let Some(running) = &mut self.running {
            running.crashed = true;
        }
        self.check(now, tree, "after a crash");
    }

    /// Continues the current operation, or begins the next.
    pub fn drive(&mut self, now: Time, client: &mut Client) {
        if self.running.is_none() && !self.is_halted() && self.next_at.is_some_and(|t| t <= now) {
            self.next_at = None;
            if let Some(op) = self.next_op() {
                self.begin(now, client, op);
            }
        }
        let again = self.running.as_ref().filter(|r| matches!(r.work, Work::Again)).map(|r| r.op.clone());
        if let Some(op) = again {
            match (self.work(now, client, &op), &mut self.running) {
                (Ok(work), Some(running)) => running.work = work,
                _ => self.violations.push(format!("{now}: {:?} cannot begin again", OpSummary(&op))),
            }
        }
        if let Some(CurrentOp { work: Work::Move(transfer), .. }) = &mut self.running {
            transfer.drive(now, client);
        }
    }

    /// When the next operation begins.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.running.is_none() && !self.is_halted() { self.next_at } else { None }
    }

    /// Handles a completion if it is its own; returns whether it was.
    pub fn on_done(&mut self, now: Time, id: CallId, result: &Result<Answer, CallFailure>) -> bool {
        let Some(running) = &mut self.running else { return false };
        let (mine, over) = match &mut running.work {
            Work::Call(call) if *call == id && *result == Err(CallFailure::Fragments) => {
                running.work = Work::Again;
                return true;
            }
            Work::Again => (false, false),
            Work::Call(call) => (*call == id, *call == id),
            Work::Move(transfer) => (transfer.on_done(id, result), transfer.is_over()),
        };
        if let Some(running) = self.running.take_if(|_| mine && over) {
            self.end(now, running, result);
        }
        mine
    }

    fn is_halted(&self) -> bool {
        !self.violations.is_empty()
    }

    fn next_op(&mut self) -> Option<Op> {
        // Operations need handles, so these come first.
        if let Some(path) = self.model.without_handle().filter(|p| self.model.kind(p).is_some()) {
            return Some(Op::Lookup(path.to_string()));
        }
        match &mut self.source {
            Source::Random(mix) => Some(mix.next(&self.model, &mut self.rng)),
            Source::Script(ops) => ops.pop_front(),
            Source::ReadBack => {
                let files = self.model.entries().filter(|(_, k)| matches!(k, Kind::File(_)));
                let mut script: VecDeque<Op> = files.map(|(p, _)| Op::Download(p.into())).collect();
                let first = script.pop_front();
                self.source = Source::Script(script);
                first
            }
        }
    }

    fn begin(&mut self, now: Time, client: &mut Client, op: Op) {
        let work = match self.work(now, client, &op) {
            Ok(work) => work,
            Err(why) => return self.violations.push(format!("{now}: {:?} cannot begin: {why}", OpSummary(&op))),
        };
        let mut after = self.model.clone();
        let expected = after.apply(&op);
        let replayed = after.clone().apply(&op);
        let touched = touched(&op, &self.model, &after);
        self.running = Some(CurrentOp { op, work, expected, replayed, after, touched, crashed: false });
    }

    fn work(&self, now: Time, client: &mut Client, op: &Op) -> Result<Work, &'static str> {
        let handle = |path: &str| self.model.handle(path).cloned().ok_or("no handle");
        let io_max = self.config.io_max;
        Ok(match op {
            Op::Upload { path, data } => Work::Move(Box::new(Transfer::write(handle(path)?, data.clone(), io_max))),
            Op::Download(path) => {
                // One byte more than expected, to detect an excess.
                let len = self.model.bytes(path).map_or(0, |b| b.len() as u64) + 1;
                Work::Move(Box::new(Transfer::read(handle(path)?, len, io_max)))
            }
            _ => {
                let call = op.call(&self.model, &self.config.root, &self.config.home).ok_or("no handle")?;
                Work::Call(client.submit(now, Request::Nfs(call)).map_err(|_| "the client is busy")?)
            }
        })
    }

    fn end(&mut self, now: Time, running: CurrentOp, result: &Result<Answer, CallFailure>) {
        self.done += 1;
        self.next_at = Some(match self.source {
            Source::Random(_) => now + self.rng.exponential(self.config.think),
            Source::Script(_) | Source::ReadBack => now,
        });
        let outcome = match running.work {
            Work::Move(transfer) => return self.end_transfer(now, &running.op, running.after, *transfer),
            Work::Call(_) | Work::Again => match result {
                Ok(Answer::Nfs(reply)) => reply,
                other => return self.violate(now, &running.op, &format!("got no NFS reply: {other:?}")),
            },
        };
        let status = outcome.status().map_or(Ok(()), Err);
        if status == running.expected {
            if status.is_ok() {
                self.model = running.after;
                self.learn(&running.op, outcome);
            }
        } else if status == Err(Status::Io) && self.config.disk_errors {
            let shared = self.config.group_commit && matches!(running.op, Op::Write { .. });
            let after = (running.crashed || shared).then_some(running.after);
            self.resolve(now, &running.op, after);
        } else if running.crashed && status == running.replayed {
            self.resolve(now, &running.op, Some(running.after));
        } else {
            let want = running.expected;
            self.violate(now, &running.op, &format!("was answered {status:?}, not {want:?}"));
        }
    }

    fn end_transfer(&mut self, now: Time, op: &Op, after: Model, transfer: Transfer) {
        let failure = transfer.failure().cloned();
        match (failure, op) {
            (None, Op::Download(path)) => {
                let unsure = self.model.is_unsure(path);
                let want = self.model.bytes(path).cloned().unwrap_or_default();
                let got = transfer.into_bytes();
                if got != want && !unsure {
                    let how = crate::swarm::oracle::first_difference(&want, &got).unwrap_or_default();
                    self.violate(now, op, &format!("read what was not written: {how}"));
                }
            }
            (None, _) => self.model = after,
            (Some(TransferFailure::Status(Status::Io)), _) if self.config.disk_errors => match op {
                Op::Upload { path, data } => self.resolve_upload(now, op, path, data),
                _ => self.excused += 1,
            },
            (Some(why), _) => self.violate(now, op, &why.to_string()),
        }
    }

    /// Determines the effect of an excused operation: none or, if it may have been executed, the
    /// expected one.
    fn resolve(&mut self, now: Time, op: &Op, after: Option<Model>) {
        self.excused += 1;
        let tree = self.config.fs.tree();
        let differ = |model: &Model| differences(model, &tree, &self.config.home, &BTreeSet::new());
        let found = differ(&self.model);
        if found.is_empty() {
            return;
        }
        match after.filter(|after| differ(after).is_empty()) {
            Some(after) => self.model = after,
            None => {
                self.violate(now, op, &format!("took partial effect, or contradicts its reply: {}", found.join(", ")))
            }
        }
    }

    fn resolve_upload(&mut self, now: Time, op: &Op, path: &str, data: &Bytes) {
        self.excused += 1;
        let full = format!("{}/{path}", self.config.home);
        let got = self.config.fs.tree().get(full.as_bytes()).map(|n| n.content.clone());
        match (self.model.bytes(path), got) {
            (Some(old), Some(got)) if mixture(old, data, &got) => self.model.set_unsure(path, got),
            _ => self.violate(now, op, "left neither old nor new bytes"),
        }
    }

    /// Records a handle from a reply.
    fn learn(&mut self, op: &Op, reply: &Reply) {
        let (path, fh) = match (op, reply) {
            (Op::Lookup(path), Reply::Lookup(Ok(ok))) => (path, Some(ok.fh.clone())),
            (Op::Create { path, .. }, Reply::Create(Ok(ok)))
            | (Op::MkDir(path), Reply::MkDir(Ok(ok)))
            | (Op::SymLink { path, .. }, Reply::SymLink(Ok(ok))) => (path, ok.fh.clone()),
            _ => return,
        };
        if let Some(fh) = fh {
            self.model.set_handle(path, fh);
        }
    }

    fn violate(&mut self, now: Time, op: &Op, what: &str) {
        self.violations.push(format!("{now}: {} {:?} {what}", self.config.home, OpSummary(op)));
    }
}

/// All paths whose objects `op` may change: other names of its files, and the content of its
/// directories.
fn touched(op: &Op, before: &Model, after: &Model) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for path in op.touches() {
        all.insert(path.to_string());
        let prefix = format!("{path}/");
        for model in [before, after] {
            all.extend(model.names_of(path).into_iter().map(String::from));
            all.extend(model.entries().map(|(p, _)| p).filter(|p| p.starts_with(&prefix)).map(String::from));
        }
    }
    all
}

/// An operation without its data.
struct OpSummary<'a>(&'a Op);

impl std::fmt::Debug for OpSummary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Op::Write { path, offset, data } => write!(f, "Write {path} {offset}+{}", data.len()),
            Op::Upload { path, data } => write!(f, "Upload {path} {} bytes", data.len()),
            op => write!(f, "{op:?}"),
        }
    }
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actor").field("home", &self.config.home).finish_non_exhaustive()
    }
}
