//! Clients that compete: guarded creates and removes of a few common names.
//!
//! The reply to each depends on the others, but their sum does not: creations minus removals of a
//! name tells whether it exists in the end. An operation executed twice breaks that sum.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};
use remora_client::{Answer, CallFailure, CallId, Client, Request};
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Status};

/// The name of the common directory.
pub const SHARED: &str = "shared";
const NAMES: u64 = 3;

/// The replies for one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Creations minus removals.
    pub balance: i64,
    /// Operations whose outcome a crash or a disk error hides.
    pub unknown: u64,
}

/// Creates and removes common names, and sums the replies.
#[derive(Debug)]
pub struct Sharer {
    root: Fh,
    dir: Option<Fh>,
    rng: Rng,
    think: Duration,
    running: Option<Running>,
    next_at: Option<Time>,
    stopped: bool,
    tallies: BTreeMap<u64, Tally>,
    violations: Vec<String>,
    disk_errors: bool,
}

#[derive(Debug)]
struct Running {
    id: CallId,
    name: u64,
    crashed: bool,
}

impl Sharer {
    pub fn new(root: Fh, name: &str, think: Duration, disk_errors: bool, seed: u64) -> Sharer {
        Sharer {
            root,
            dir: None,
            rng: Rng::stream(seed, &format!("sharer {name}")),
            think,
            running: None,
            next_at: Some(Time::ZERO),
            stopped: false,
            tallies: BTreeMap::new(),
            violations: Vec::new(),
            disk_errors,
        }
    }

    /// The path of a tallied name.
    pub fn path(name: u64) -> String {
        format!("{SHARED}/s{name}")
    }

    pub fn tallies(&self) -> &BTreeMap<u64, Tally> {
        &self.tallies
    }

    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Starts no new operation.
    pub fn wind_down(&mut self) {
        self.stopped = true;
    }

    /// Whether no operation is in progress or due.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.stopped
    }

    pub fn on_server_crash(&mut self) {
        if let Some(running) = &mut self.running {
            running.crashed = true;
        }
    }

    /// When the next operation begins.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.running.is_none() && !self.stopped { self.next_at } else { None }
    }

    /// Begins the next operation if due.
    pub fn drive(&mut self, now: Time, client: &mut Client) {
        if self.running.is_some() || self.stopped || self.next_at.is_none_or(|t| t > now) {
            return;
        }
        let name = self.rng.below(NAMES);
        let call = self.call(name);
        // A busy client is tried again later.
        self.next_at = Some(now + self.think);
        if let Ok(id) = client.submit(now, Request::Nfs(call)) {
            self.running = Some(Running { id, name, crashed: false });
        }
    }

    fn call(&mut self, name: u64) -> Call {
        let Some(dir) = self.dir.clone() else {
            return Call::Lookup(DirOp { dir: self.root.clone(), name: Bytes::from_static(SHARED.as_bytes()) });
        };
        let at = DirOp { dir, name: format!("s{name}").into() };
        if self.rng.chance(0.5) {
            let attr = SetAttr { mode: Some(0o666), ..SetAttr::NONE };
            Call::Create(CreateArgs { at, how: CreateHow::Guarded(attr) })
        } else {
            Call::Remove(at)
        }
    }

    /// Handles a completion if it is its own; returns whether it was.
    pub fn on_done(&mut self, now: Time, id: CallId, result: &Result<Answer, CallFailure>) -> bool {
        let Some(Running { name, crashed, .. }) = self.running.take_if(|r| r.id == id) else { return false };
        self.next_at = Some(now + self.rng.exponential(self.think));
        let tally = self.tallies.entry(name).or_default();
        match result {
            Ok(Answer::Nfs(Reply::Lookup(Ok(ok)))) => self.dir = Some(ok.fh.clone()),
            Ok(Answer::Nfs(Reply::Lookup(Err(e)))) if e.status == Status::Io && self.disk_errors => {}
            Ok(Answer::Nfs(reply)) => {
                let step = if matches!(reply, Reply::Create(_)) { 1 } else { -1 };
                let refused = if step == 1 { Status::Exist } else { Status::NoEnt };
                match reply.status() {
                    _ if crashed => tally.unknown += 1,
                    None => tally.balance += step,
                    Some(status) if status == refused => {}
                    Some(Status::Io) if self.disk_errors => {}
                    Some(other) => self.violations.push(format!("{now}: {} answered {other:?}", Sharer::path(name))),
                }
            }
            other => self.violations.push(format!("{now}: {} got no NFS reply: {other:?}", Sharer::path(name))),
        }
        true
    }
}
