//! The user of a client that copies one file: LOOKUP and READs, or CREATE, WRITEs and COMMIT, and
//! the calls of its [`Manner`](super::config::Manner).

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, Busy, CallFailure, CallId, Client, Request};
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::mount;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable};

use super::command::{FirstCalls, LastCalls};
use super::config::{CopyError, Direction};
use crate::world::User;
use crate::world::slow_host::SlowHost;
use crate::world::transfer::Transfer;

/// A file to copy.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) direction: Direction,
    pub(crate) start: Start,
    /// Its name on the server.
    pub(crate) name: String,
    pub(crate) original: Bytes,
    /// Maximum bytes that the server accepts in one call.
    pub(crate) io_max: u32,
    pub(crate) host: Option<SlowHost>,
    /// When it begins.
    pub(crate) begin: Time,
}

/// The first calls of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    Mounting,
    /// None: the directory is known.
    Mounted(Fh),
    /// Those of `remora cp`, which remembers the directory.
    Command(Fh),
}

/// Copies one file.
#[derive(Debug)]
pub(crate) struct Copier {
    task: Task,
    state: State,
    /// End of the copy.
    ended: Option<Time>,
    /// Bytes confirmed over time.
    progress: Vec<(Time, u64)>,
}

/// At most one call is outstanding, except in [`State::Beginning`], [`State::Moving`] and
/// [`State::Closing`].
#[derive(Debug)]
enum State {
    Start,
    /// MNT is outstanding.
    Mounting(CallId),
    Mounted(Fh),
    /// CREATE or LOOKUP is outstanding.
    Opening(CallId),
    /// The server returned no attributes with the handle: GETATTR follows.
    Opened(Fh),
    /// GETATTR is outstanding.
    Sizing(CallId, Fh),
    /// The first calls of `remora cp` are outstanding.
    Beginning(FirstCalls),
    /// With the calls that come after the data, if the manner has any.
    Moving(Box<Transfer>, Option<LastCalls>),
    /// All data was moved and committed.
    Closing(LastCalls),
    Done(Bytes),
    Failed(String),
}

impl Copier {
    pub(crate) fn new(task: Task) -> Copier {
        Copier { task, state: State::Start, ended: None, progress: Vec::new() }
    }

    /// Stores the original on the server's disk if the copy reads it.
    pub(crate) fn prepare(&self, fs: &MemFs) -> Result<(), CopyError> {
        if self.task.direction == Direction::Write {
            return Ok(());
        }
        let root = Cred { uid: 0, gid: 0, gids: Vec::new() };
        let name = self.task.name.as_bytes();
        fs.create(&root, &fs.root(), name, &CreateHow::Guarded(SetAttr::NONE))
            .and_then(|made| fs.write(&root, &made.id, 0, &self.task.original, Stable::FileSync))
            .map_err(|_| CopyError::Failed("the server has no space".into()))?;
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Duration of the copy, successful or not.
    pub(crate) fn took(&self) -> Option<Duration> {
        self.ended.map(|ended| ended.since(self.task.begin))
    }

    pub(crate) fn direction(&self) -> Direction {
        self.task.direction
    }

    /// Bytes confirmed over time; repeated transfers count again.
    pub(crate) fn progress(&self) -> &[(Time, u64)] {
        &self.progress
    }

    /// Checks the copy: no failure and, once done, an exact copy.
    pub(crate) fn check(&self, fs: &MemFs) -> Result<(), CopyError> {
        let copy = match (&self.state, self.task.direction) {
            (State::Failed(why), _) => return Err(CopyError::Failed(why.clone())),
            (State::Done(bytes), Direction::Read) => Some(bytes.clone()),
            // The COMMIT was answered, so the bytes must survive a crash.
            (State::Done(_), Direction::Write) => {
                fs.tree().get(self.task.name.as_bytes()).and_then(|n| fs.read_durable(&n.id).ok())
            }
            _ => return Ok(()),
        };
        if copy.as_ref() == Some(&self.task.original) { Ok(()) } else { Err(CopyError::Differs) }
    }

    /// Handles a completion if it is its own; returns whether it was.
    pub(crate) fn take(&mut self, now: Time, id: CallId, result: &Result<Answer, CallFailure>) -> bool {
        let own = match &mut self.state {
            State::Mounting(call) | State::Opening(call) | State::Sizing(call, _) => *call == id,
            State::Beginning(beginning) => beginning.has(id),
            State::Moving(transfer, _) => transfer.on_done(id, result),
            State::Closing(closing) => closing.has(id),
            State::Start | State::Mounted(_) | State::Opened(_) | State::Done(_) | State::Failed(_) => false,
        };
        if !own {
            return false;
        }
        let taken = match &mut self.state {
            State::Beginning(beginning) => beginning.take(id, result),
            State::Closing(closing) => closing.take(id, result),
            State::Moving(..) => {
                self.move_on(now);
                Ok(())
            }
            _ => {
                self.open_on(result);
                Ok(())
            }
        };
        if let Err(why) = taken {
            self.state = State::Failed(why);
        }
        if matches!(self.state, State::Done(_) | State::Failed(_)) {
            self.ended = Some(now);
        }
        true
    }

    /// MNT, LOOKUP, GETATTR or CREATE was answered.
    fn open_on(&mut self, result: &Result<Answer, CallFailure>) {
        let state = std::mem::replace(&mut self.state, State::Start);
        self.state = match (state, result) {
            (State::Mounting(_), Ok(Answer::Mount(mount::Reply::Mnt(Ok(mounted))))) => {
                State::Mounted(mounted.fh.clone())
            }
            (State::Opening(_), Ok(Answer::Nfs(Reply::Lookup(Ok(ok))))) => match &ok.attr {
                Some(attr) => self.read(ok.fh.clone(), attr.size),
                None => State::Opened(ok.fh.clone()),
            },
            (State::Sizing(_, fh), Ok(Answer::Nfs(Reply::GetAttr(Ok(attr))))) => self.read(fh, attr.size),
            (State::Opening(_), Ok(Answer::Nfs(Reply::Create(Ok(ok))))) => match &ok.fh {
                Some(fh) => self.write(fh.clone(), None),
                None => State::Failed("CREATE returned no handle".into()),
            },
            (_, Ok(Answer::Nfs(reply))) => State::Failed(format!("{:?} failed: {:?}", reply.proc(), reply.status())),
            (_, Ok(_)) => State::Failed("a reply to another call".into()),
            (_, Err(why)) => State::Failed(why.to_string()),
        };
    }

    fn read(&self, fh: Fh, size: u64) -> State {
        self.moving(Transfer::read(fh, size, self.task.io_max), None)
    }

    fn write(&self, fh: Fh, closing: Option<LastCalls>) -> State {
        self.moving(Transfer::write(fh, self.task.original.clone(), self.task.io_max), closing)
    }

    fn moving(&self, transfer: Transfer, closing: Option<LastCalls>) -> State {
        let transfer = match self.task.host {
            Some(host) => transfer.on_host(host),
            None => transfer,
        };
        State::Moving(Box::new(transfer), closing)
    }

    /// A piece was moved, or the COMMIT was answered.
    fn move_on(&mut self, now: Time) {
        self.state = match std::mem::replace(&mut self.state, State::Start) {
            State::Moving(transfer, closing) => {
                let moved = transfer.moved();
                if self.progress.last().is_none_or(|(_, before)| *before < moved) {
                    self.progress.push((now, moved));
                }
                match (transfer.failure(), closing) {
                    (_, closing) if !transfer.is_over() => State::Moving(transfer, closing),
                    (Some(why), _) => State::Failed(why.to_string()),
                    (None, Some(closing)) => State::Closing(closing),
                    (None, None) => State::Done(transfer.into_bytes()),
                }
            }
            other => other,
        };
    }

    fn open_call(&self, dir: Fh) -> Call {
        let at = DirOp { dir, name: Bytes::from(self.task.name.clone()) };
        match self.task.direction {
            Direction::Read => Call::Lookup(at),
            Direction::Write => Call::Create(CreateArgs { at, how: CreateHow::Guarded(SetAttr::NONE) }),
        }
    }

    /// The temporary name of a file during an upload.
    fn temporary(&self) -> String {
        format!(".{}.remora-part-00000000", self.task.name)
    }

    fn begin(&self, now: Time, client: &mut Client) -> Result<State, Busy> {
        match &self.task.start {
            Start::Mounting => {
                let mnt = Request::Mount(mount::Call::Mnt(Bytes::from_static(b"/")));
                client.submit(now, mnt).map(State::Mounting)
            }
            Start::Mounted(root) => self.open(now, client, root),
            Start::Command(root) => {
                let Task { name, direction, .. } = &self.task;
                FirstCalls::ask(now, client, *direction, root, name, &self.temporary()).map(State::Beginning)
            }
        }
    }

    fn open(&self, now: Time, client: &mut Client, dir: &Fh) -> Result<State, Busy> {
        client.submit(now, Request::Nfs(self.open_call(dir.clone()))).map(State::Opening)
    }

    fn size(now: Time, client: &mut Client, fh: Fh) -> Result<State, Busy> {
        client.submit(now, Request::Nfs(Call::GetAttr(fh.clone()))).map(|id| State::Sizing(id, fh))
    }

    /// The first calls of `remora cp` may all be answered.
    fn begun(&self, now: Time, client: &mut Client, beginning: FirstCalls) -> Result<State, Busy> {
        match (beginning.found(), self.task.direction) {
            (None, _) => Ok(State::Beginning(beginning)),
            (Some((fh, None)), Direction::Read) => Self::size(now, client, fh),
            (Some((fh, Some(size))), Direction::Read) => Ok(self.read(fh, size)),
            (Some((fh, _)), Direction::Write) => {
                let closing = LastCalls::new(beginning.dir(), &self.task.name, &self.temporary(), fh.clone());
                Ok(self.write(fh, Some(closing)))
            }
        }
    }

    /// Submits all requests that are possible now.
    fn step(&mut self, now: Time, client: &mut Client) -> Result<(), Busy> {
        self.state = match std::mem::replace(&mut self.state, State::Start) {
            State::Start if now < self.task.begin => State::Start,
            State::Start => self.begin(now, client)?,
            State::Mounted(root) => self.open(now, client, &root)?,
            State::Opened(fh) => Self::size(now, client, fh)?,
            State::Beginning(beginning) => self.begun(now, client, beginning)?,
            other => other,
        };
        match &mut self.state {
            State::Moving(transfer, _) => transfer.drive(now, client),
            State::Closing(closing) => {
                let is_over = closing.go_on(now, client)?;
                if is_over {
                    self.ended = Some(now);
                    self.state = State::Done(self.task.original.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl User for Copier {
    fn drive(&mut self, now: Time, client: &mut Client) {
        if let Err(busy) = self.step(now, client) {
            self.ended = Some(now);
            self.state = State::Failed(busy.to_string());
        }
    }

    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, CallFailure>) {
        self.take(now, id, &result);
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.state {
            State::Start => Some(self.task.begin),
            State::Moving(transfer, _) => transfer.poll_timeout(),
            _ => None,
        }
    }
}
