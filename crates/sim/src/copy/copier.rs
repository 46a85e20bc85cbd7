//! The user of a client that copies one file: MNT, then LOOKUP and READs, or CREATE, WRITEs and COMMIT.

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, CallId, Client, Failure, Request};
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::mount;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable};

use super::{CopyError, Direction};
use crate::client_node::User;
use crate::hosts::SlowHost;
use crate::transfer::Transfer;

/// A file to copy.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// Which way.
    pub(crate) direction: Direction,
    /// The directory it is in, if it is mounted already.
    pub(crate) root: Option<Fh>,
    /// Its name there.
    pub(crate) name: String,
    /// What it holds, or shall hold.
    pub(crate) original: Bytes,
    /// The most bytes the server takes in one call.
    pub(crate) io_max: u32,
    /// The slow host it is done on, if it is.
    pub(crate) host: Option<SlowHost>,
}

/// Makes one copy.
#[derive(Debug)]
pub(crate) struct Copier {
    task: Task,
    state: State,
    /// When it was over, if it is.
    ended: Option<Time>,
    /// How many bytes had been confirmed when.
    progress: Vec<(Time, u64)>,
}

/// At most one call is out but for [`State::Moving`].
#[derive(Debug)]
enum State {
    Start,
    /// MNT is out.
    Mounting(CallId),
    Mounted(Fh),
    /// CREATE or LOOKUP is out.
    Opening(CallId),
    /// A server that gives no attributes with the handle is asked for them.
    Opened(Fh),
    /// GETATTR is out.
    Sizing(CallId, Fh),
    Moving(Box<Transfer>),
    Done(Bytes),
    Failed(String),
}

impl Copier {
    pub(crate) fn new(task: Task) -> Copier {
        Copier { task, state: State::Start, ended: None, progress: Vec::new() }
    }

    /// Puts the original on the server's disk, if that is where it comes from.
    pub(crate) fn prepare(&self, fs: &MemFs) -> Result<(), CopyError> {
        if self.task.direction == Direction::Write {
            return Ok(());
        }
        let root = Cred { uid: 0, gid: 0, gids: Vec::new() };
        let name = self.task.name.as_bytes();
        fs.create(&root, &fs.root(), name, &CreateHow::Guarded(SetAttr::NONE))
            .and_then(|made| fs.write(&root, &made.id, 0, &self.task.original, Stable::FileSync))
            .map_err(|_| CopyError::Failed("the server has no room".into()))?;
        Ok(())
    }

    /// Whether nothing more will happen.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// When it was over, well or not.
    pub(crate) fn ended(&self) -> Option<Time> {
        self.ended
    }

    /// Which way the file goes.
    pub(crate) fn direction(&self) -> Direction {
        self.task.direction
    }

    /// How many bytes had been confirmed when, in order; those moved again count again.
    pub(crate) fn progress(&self) -> &[(Time, u64)] {
        &self.progress
    }

    /// Whether what it did so far is right: no failure, and a copy that is done is exact.
    pub(crate) fn check(&self, fs: &MemFs) -> Result<(), CopyError> {
        let copy = match (&self.state, self.task.direction) {
            (State::Failed(why), _) => return Err(CopyError::Failed(why.clone())),
            (State::Done(bytes), Direction::Read) => Some(bytes.clone()),
            // The COMMIT was answered, so the bytes must outlive a crash.
            (State::Done(_), Direction::Write) => {
                fs.tree().get(self.task.name.as_bytes()).and_then(|n| fs.read_durable(&n.id).ok())
            }
            _ => return Ok(()),
        };
        if copy.as_ref() == Some(&self.task.original) { Ok(()) } else { Err(CopyError::Differs) }
    }

    /// Takes a result if it is one of its own; says whether it was.
    pub(crate) fn take(&mut self, now: Time, id: CallId, result: &Result<Answer, Failure>) -> bool {
        let own = match &mut self.state {
            State::Mounting(call) | State::Opening(call) | State::Sizing(call, _) => *call == id,
            State::Moving(transfer) => transfer.on_done(id, result),
            State::Start | State::Mounted(_) | State::Opened(_) | State::Done(_) | State::Failed(_) => false,
        };
        if !own {
            return false;
        }
        match self.state {
            State::Moving(_) => self.move_on(now),
            _ => self.open_on(result),
        }
        if matches!(self.state, State::Done(_) | State::Failed(_)) {
            self.ended = Some(now);
        }
        true
    }

    /// MNT, LOOKUP, GETATTR or CREATE was answered.
    fn open_on(&mut self, result: &Result<Answer, Failure>) {
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
                Some(fh) => self.moving(Transfer::write(fh.clone(), self.task.original.clone(), self.task.io_max)),
                None => State::Failed("CREATE brought no handle".into()),
            },
            (_, Ok(Answer::Nfs(reply))) => State::Failed(format!("{:?} failed: {:?}", reply.proc(), reply.status())),
            (_, Ok(_)) => State::Failed("an answer to something else".into()),
            (_, Err(why)) => State::Failed(why.to_string()),
        };
    }

    fn read(&self, fh: Fh, size: u64) -> State {
        self.moving(Transfer::read(fh, size, self.task.io_max))
    }

    fn moving(&self, transfer: Transfer) -> State {
        State::Moving(Box::new(match self.task.host {
            Some(host) => transfer.on_host(host),
            None => transfer,
        }))
    }

    /// A piece was moved, or the COMMIT was answered.
    fn move_on(&mut self, now: Time) {
        self.state = match std::mem::replace(&mut self.state, State::Start) {
            State::Moving(transfer) => {
                let moved = transfer.moved();
                if self.progress.last().is_none_or(|(_, before)| *before < moved) {
                    self.progress.push((now, moved));
                }
                match transfer.failure() {
                    _ if !transfer.is_over() => State::Moving(transfer),
                    Some(why) => State::Failed(why.to_string()),
                    None => State::Done(transfer.into_bytes()),
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

    /// Submits a call that is not part of a transfer.
    fn submit(&mut self, now: Time, client: &mut Client, request: Request, then: impl FnOnce(CallId) -> State) {
        self.state = match client.submit(now, request) {
            Ok(id) => then(id),
            Err(busy) => {
                self.ended = Some(now);
                State::Failed(busy.to_string())
            }
        };
    }
}

impl User for Copier {
    fn drive(&mut self, now: Time, client: &mut Client) {
        if let (State::Start, Some(root)) = (&self.state, &self.task.root) {
            self.state = State::Mounted(root.clone());
        }
        match &mut self.state {
            State::Start => {
                let mnt = Request::Mount(mount::Call::Mnt(Bytes::from_static(b"/")));
                self.submit(now, client, mnt, State::Mounting);
            }
            State::Mounted(root) => {
                let root = root.clone();
                let open = Request::Nfs(self.open_call(root));
                self.submit(now, client, open, State::Opening);
            }
            State::Opened(fh) => {
                let fh = fh.clone();
                self.submit(now, client, Request::Nfs(Call::GetAttr(fh.clone())), |id| State::Sizing(id, fh));
            }
            State::Moving(transfer) => transfer.drive(now, client),
            State::Mounting(_) | State::Opening(_) | State::Sizing(..) | State::Done(_) | State::Failed(_) => {}
        }
    }

    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, Failure>) {
        self.take(now, id, &result);
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.state {
            State::Moving(transfer) => transfer.poll_timeout(),
            _ => None,
        }
    }
}
