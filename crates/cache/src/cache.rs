//! The cache manager: requests of the kernel in, calls to the server out.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::fuse::{Errno, Notification, Operation, Reply, Request};
use remora_wire::nfs3;

use crate::call::{BulkRoom, Call, CallFailure, CallId, QueueLengths};
use crate::cancel;
use crate::change_log::append;
use crate::change_log::log::Stage;
use crate::change_log::record::{Conflict, ConflictId, LogRecord, LogStatus, SavedLog};
use crate::change_log::restore;
use crate::config::{Config, LinkState};
use crate::connectivity::Connectivity;
use crate::data;
use crate::dirty_store;
use crate::disconnection;
use crate::disk::job::{DiskDone, DiskJob, DiskJobId};
use crate::disk::{completion, fetch, save};
use crate::hoard::profile::HoardPlan;
use crate::hoard::status::HoardStatus;
use crate::hoard::usage::DirectoryUse;
use crate::hoard::{observation, walk};
use crate::learn;
use crate::needs;
use crate::node::{FileState, Location, NodeId};
use crate::ops::directories::Page;
use crate::ops::files::WriteRequest;
use crate::ops::{changes, directories, files, lookup};
use crate::path;
use crate::predict::PredictorStateError;
use crate::recovery;
use crate::reintegration::send;
use crate::replies;
use crate::state::{Figures, Op, State, Stop};
use crate::store_job::{ObjectId, Refusal, SavedObject, StoreJob, StoreJobId};
use crate::timers;
use crate::writeback;

/// A request of the kernel that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub unique: u64,
    /// Thread that waits; 0 if the kernel does not say.
    pub pid: u32,
    pub operation: &'static str,
    /// Path from the mounted directory.
    pub path: Vec<u8>,
    pub since: Time,
}

/// A file that the server lacks something of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsent {
    /// Path from the mounted directory.
    pub path: Vec<u8>,
    pub bytes: u64,
    /// Its number in the store.
    pub object: Option<ObjectId>,
    pub refusal: Option<Refusal>,
}

/// Figures of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Bytes written here that the server has not committed.
    pub dirty_bytes: u64,
    /// Files with such bytes, or with attributes that the server lacks.
    pub dirty_files: usize,
    /// Bytes of file data in memory.
    pub cached_bytes: u64,
    /// Objects that the cache knows.
    pub nodes: usize,
    /// Requests of the kernel without an answer.
    pub held: usize,
    /// Calls that wait for the client core.
    pub calls_queued: usize,
    /// Calls without a reply, with those that are queued.
    pub calls_in_flight: usize,
    pub figures: Figures,
}

/// The cache manager, a pure state machine: after any call that takes `&mut self` and is not a `poll_` call, drain
/// [`poll_answer`](Cache::poll_answer), [`poll_notification`](Cache::poll_notification) and
/// [`poll_call`](Cache::poll_call), then call [`handle_timeout`](Cache::handle_timeout) at
/// [`poll_timeout`](Cache::poll_timeout).
#[derive(Debug)]
pub struct Cache {
    state: State,
}

impl Cache {
    /// A cache of the directory with handle `root`. Asks for its attributes and figures at once.
    pub fn new(config: Config, root: nfs3::Fh, now: Time) -> Cache {
        let mut state = State::new(config, root, now);
        needs::refresh_statfs(&mut state, None);
        fetch::start_load(&mut state, NodeId::ROOT);
        Cache { state }
    }

    /// Records the attributes of the root, which answer `stat` of the mount point when the server does not.
    pub fn set_root(&mut self, now: Time, attr: &nfs3::Attr) {
        self.tick(now);
        learn::learn_attr(&mut self.state, NodeId::ROOT, attr, now);
    }

    /// Takes what the client core advises for the path.
    pub fn set_link(&mut self, link: LinkState) {
        self.state.link = link;
        self.state.queue.set_background_max(link.prefetch_max);
    }

    /// Takes a request of a caller with these supplementary groups. INIT, DESTROY and INTERRUPT are the driver's.
    pub fn handle_request(&mut self, now: Time, request: Request, groups: &[u32]) {
        self.handle_request_of(now, request, groups, &[]);
    }

    /// The same of a program with this name, whose files are predicted.
    pub fn handle_request_of(&mut self, now: Time, request: Request, groups: &[u32], program: &[u8]) {
        self.tick(now);
        let Request { header, op } = request;
        match op {
            Operation::Forget { lookups } => return self.state.nodes.forget(NodeId(header.nodeid), lookups),
            Operation::BatchForget(list) => {
                for forget in list {
                    self.state.nodes.forget(NodeId(forget.nodeid), forget.lookups);
                }
                return;
            }
            Operation::Init(_) | Operation::Destroy | Operation::Interrupt { .. } | Operation::NotifyReply => return,
            _ => {}
        }
        let caller = self.state.credentials.of(header.uid, header.gid, groups);
        let op = Op {
            unique: header.unique,
            node: NodeId(header.nodeid),
            pid: header.pid,
            program: Bytes::copy_from_slice(program),
            caller,
            arrived: now,
            request: op,
            steps: Vec::new(),
            failure: None,
            is_first: true,
            is_answered: false,
            is_applied: false,
            is_retried: false,
            hidden: None,
            node_at_start: None,
            saves: self.state.store.saves,
        };
        self.run(op);
        self.settle();
    }

    /// The model of the files that programs open, for [`Cache::import_predictor`] of a later mount.
    pub fn export_predictor(&self) -> Bytes {
        self.state.foresight.export()
    }

    /// Goes on with the model of an earlier mount; if it is damaged, the model stays as it is.
    pub fn import_predictor(&mut self, model: Bytes) -> Result<(), PredictorStateError> {
        self.state.foresight.import(model)
    }

    /// Takes the reply to a call, with any status, or the reason why there is none.
    pub fn handle_reply(&mut self, now: Time, id: CallId, result: Result<nfs3::Reply, CallFailure>) {
        self.tick(now);
        replies::handle(&mut self.state, id, result);
        self.settle();
    }

    /// The caller must end: its request is answered with EINTR, and changes that were sent go on.
    pub fn handle_interrupt(&mut self, now: Time, unique: u64) {
        self.tick(now);
        self.release(unique, Errno::EINTR);
        self.settle();
    }

    /// Answers every request that waits with EINTR.
    pub fn release_all(&mut self, now: Time) {
        self.tick(now);
        let all: Vec<u64> = self.state.held.keys().copied().collect();
        for unique in all {
            self.release(unique, Errno::EINTR);
        }
        self.settle();
    }

    /// Sends all that was written, for an unmount.
    pub fn flush_all(&mut self, now: Time) {
        self.tick(now);
        let files: Vec<NodeId> = self.state.dirty_files.iter().copied().collect();
        for id in files {
            writeback::hurry(&mut self.state, id);
        }
        self.settle();
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.tick(now);
        timers::handle_timeout(&mut self.state);
        self.settle();
    }

    /// When [`handle_timeout`](Cache::handle_timeout) is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        timers::poll_timeout(&self.state)
    }

    /// The most urgent call. READs and WRITEs of much data leave while the client's window has room for them.
    pub fn poll_call(&mut self, room: BulkRoom) -> Option<Call> {
        if self.state.connection.is_asked() { None } else { self.state.queue.pop(room) }
    }

    /// The next answer for the kernel, with the number of its request.
    pub fn poll_answer(&mut self) -> Option<(u64, Result<Reply, Errno>)> {
        self.state.answers.pop_front()
    }

    /// The next notification for the kernel.
    pub fn poll_notification(&mut self) -> Option<Notification> {
        self.state.notifications.pop_front()
    }

    /// Requests that wait, the oldest first.
    pub fn held(&self) -> Vec<Held> {
        let held = self.state.held.values().filter(|op| !op.is_answered).map(|op| Held {
            unique: op.unique,
            pid: op.pid,
            operation: name(&op.request),
            path: path::path(&self.state, op.node, child(&op.request)),
            since: op.arrived,
        });
        let mut held: Vec<Held> = held.collect();
        held.sort_by_key(|held| held.since);
        held
    }

    /// Calls that wait for the client core.
    pub fn queue_lengths(&self) -> QueueLengths {
        self.state.queue.lengths()
    }

    /// Figures of the cache.
    pub fn status(&self) -> Status {
        let state = &self.state;
        Status {
            dirty_bytes: state.dirty_bytes,
            dirty_files: state.dirty_files.len(),
            cached_bytes: state.data_bytes,
            nodes: state.nodes.len(),
            held: state.held.values().filter(|op| !op.is_answered).count(),
            calls_queued: state.queue.len(),
            calls_in_flight: state.pending.len(),
            figures: state.figures,
        }
    }

    /// Files with data that the server refused. Looks at all that have unsent data.
    pub fn refused_files(&self) -> usize {
        self.files().filter(|(_, file)| file.refusal.is_some()).count()
    }

    /// Takes the change log of an earlier run, before [`restore`](Cache::restore) and the first request.
    pub fn restore_log(&mut self, now: Time, log: SavedLog) {
        self.tick(now);
        restore::restore(&mut self.state, log);
    }

    /// The server has owed a reply for this long; zero if it owes none. To be called at least once a second while it
    /// owes one, and when that ends.
    pub fn set_silence(&mut self, now: Time, silence: Duration) {
        self.tick(now);
        disconnection::set_silence(&mut self.state, silence);
        self.settle();
    }

    /// Works without the server until [`go_online`](Cache::go_online).
    pub fn go_offline(&mut self, now: Time) {
        self.tick(now);
        disconnection::go_offline(&mut self.state);
        self.settle();
    }

    /// Uses the server again, once it answers.
    pub fn go_online(&mut self, now: Time) {
        self.tick(now);
        disconnection::go_online(&mut self.state);
        timers::handle_timeout(&mut self.state);
        self.settle();
    }

    /// State of the connection to the server.
    pub fn connectivity(&self) -> Connectivity {
        self.state.connection.connectivity(self.state.link.sync_max > 0)
    }

    /// Figures of the change log.
    pub fn log_status(&self) -> LogStatus {
        let log = &self.state.log;
        LogStatus {
            records: log.len(),
            refused: log.iter().filter(|(_, entry)| matches!(entry.stage, Stage::Refused(_))).count(),
            in_flight: log.in_flight.len(),
            sent: log.sent,
            conflicts: log.conflicts.len(),
        }
    }

    /// Changes that the server does not have, with those that it refused, the oldest first, at most `max`.
    pub fn log_records(&self, max: usize) -> Vec<LogRecord> {
        let ids = self.state.log.iter().map(|(id, _)| id).take(max);
        ids.filter_map(|id| append::record(&self.state, id)).collect()
    }

    /// Conflicts that nobody has dismissed, the oldest first.
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.state.log.conflicts.values().cloned().collect()
    }

    /// Forgets a conflict. Returns whether there was one.
    pub fn dismiss_conflict(&mut self, now: Time, id: ConflictId) -> bool {
        self.tick(now);
        let is_known = self.state.log.conflicts.remove(&id).is_some();
        if is_known {
            self.state.store.log.batch.dismissed.push(id);
        }
        is_known
    }

    /// Paths that programs needed and the cache did not have while disconnected, the latest last.
    pub fn missed(&self) -> Vec<Vec<u8>> {
        self.state.log.missed().cloned().collect()
    }

    /// Hoards by this plan from now on. If it is another one than before, a walk over it begins within 1 s.
    pub fn set_hoard(&mut self, now: Time, plan: HoardPlan) {
        self.tick(now);
        walk::set_plan(&mut self.state, plan);
        self.settle();
    }

    /// Begins a walk over the plan now, unless one is going on; else that comes every 10 minutes.
    pub fn start_hoard_walk(&mut self, now: Time) {
        self.tick(now);
        walk::ask(&mut self.state);
        self.settle();
    }

    /// State of hoarding.
    pub fn hoard_status(&self) -> HoardStatus {
        walk::status(&self.state)
    }

    /// A program of this name opens an object, for [`usage`](Cache::usage).
    pub fn note_open(&mut self, nodeid: u64, program: &str) {
        observation::opened(&mut self.state, NodeId(nodeid), program);
    }

    /// Directories whose files programs opened since the mount, those with the most opens first, at most `max`.
    pub fn usage(&self, max: usize) -> Vec<DirectoryUse> {
        observation::usage(&self.state, max)
    }

    /// Takes what the store kept of an earlier run, before the first request.
    pub fn restore(&mut self, now: Time, objects: Vec<SavedObject>) {
        self.tick(now);
        objects.into_iter().for_each(|saved| recovery::restore(&mut self.state, saved));
        self.settle();
    }

    /// Saves all that the server does not have, for an unmount that keeps it.
    pub fn keep_all(&mut self, now: Time) {
        self.tick(now);
        dirty_store::save_all(&mut self.state);
        self.settle();
    }

    /// Whether the store has all that the server does not have, safe from a loss of power.
    pub fn is_kept(&self) -> bool {
        dirty_store::is_all_kept(&self.state)
    }

    /// The store's disk has room for so many bytes: with [`Writes::Back`](crate::Writes::Back) writes beyond it fail
    /// with ENOSPC.
    pub fn set_store_room(&mut self, bytes: u64) {
        self.state.store.room = Some(bytes);
    }

    /// The next job for the store.
    pub fn poll_store_job(&mut self) -> Option<StoreJob> {
        dirty_store::poll_job(&mut self.state)
    }

    /// The store has done a job.
    pub fn handle_store_done(&mut self, now: Time, id: StoreJobId, result: Result<(), Errno>) {
        self.tick(now);
        dirty_store::done(&mut self.state, id, result);
        writeback::send_stored(&mut self.state);
        self.settle();
    }

    /// Saves all that the disk cache lacks, for the end of the mount.
    pub fn save_all(&mut self, now: Time) {
        self.tick(now);
        save::save_all(&mut self.state);
    }

    /// Whether the disk cache has all that it can have.
    pub fn is_saved(&self) -> bool {
        save::is_saved(&self.state)
    }

    /// The next job for the disk cache.
    pub fn poll_disk_job(&mut self) -> Option<DiskJob> {
        save::poll_job(&mut self.state)
    }

    /// The disk cache has done a job.
    pub fn handle_disk_done(&mut self, now: Time, id: DiskJobId, result: DiskDone) {
        self.tick(now);
        completion::done(&mut self.state, id, result);
        self.settle();
    }

    /// Files that the server lacks something of, at most `max`.
    pub fn unsent(&self, max: usize) -> Vec<Unsent> {
        let unsent = |(id, file): (NodeId, &FileState)| Unsent {
            path: path::path(&self.state, id, None),
            bytes: file.uncommitted().bytes(),
            object: file.kept.object,
            refusal: file.refusal,
        };
        self.files().take(max).map(unsent).collect()
    }

    /// Files with uncommitted data.
    fn files(&self) -> impl Iterator<Item = (NodeId, &FileState)> {
        let state = &self.state;
        state.dirty_files.iter().filter_map(|id| Some((*id, state.nodes.get(*id)?.file.as_deref()?)))
    }

    /// Whether the server has committed all that was written here.
    pub fn is_clean(&self) -> bool {
        self.state.dirty_files.is_empty() && self.state.log.is_empty()
    }

    fn tick(&mut self, now: Time) {
        self.state.now = self.state.now.max(now);
    }

    /// Runs the operations whose calls were answered, and bounds the memory.
    fn settle(&mut self) {
        completion::confirm_all(&mut self.state);
        send::run(&mut self.state);
        while let Some(unique) = self.state.ready.pop_front() {
            if let Some(op) = self.state.held.remove(&unique) {
                self.run(op);
            }
        }
        let connectivity = self.connectivity();
        walk::advance(&mut self.state, connectivity);
        data::evict(&mut self.state);
    }

    /// Runs an operation from its beginning, and keeps it while it waits.
    fn run(&mut self, mut op: Op) {
        let is_lookup = matches!(op.request, Operation::Lookup { .. });
        let result = match op.failure.take() {
            // The name may stand for another object now: it is looked up once more.
            Some(Errno::ESTALE) if is_lookup && !std::mem::replace(&mut op.is_retried, true) => {
                perform(&mut self.state, &mut op)
            }
            Some(errno) => Err(Stop::Failed(errno)),
            None => perform(&mut self.state, &mut op),
        };
        if std::mem::replace(&mut op.is_first, false) {
            let waits = result == Err(Stop::Wait);
            self.state.figures.misses += u64::from(waits);
            self.state.figures.hits += u64::from(!waits);
        }
        let result = match result {
            Ok(reply) => Ok(reply),
            Err(Stop::Failed(errno)) => Err(errno),
            Err(Stop::Wait) => {
                self.state.held.insert(op.unique, op);
                return;
            }
        };
        if op.is_answered {
            undo(&mut self.state, result);
        } else {
            self.state.answers.push_back((op.unique, result));
        }
    }

    fn release(&mut self, unique: u64, errno: Errno) {
        let Some(op) = self.state.held.get_mut(&unique) else { return };
        if op.is_answered {
            return;
        }
        self.state.answers.push_back((unique, Err(errno)));
        if op.steps.is_empty() {
            self.state.held.remove(&unique);
            cancel::withdraw(&mut self.state, unique);
        } else {
            op.is_answered = true;
        }
    }
}

/// The kernel did not see the reply: takes back the reference and the handle that it would have got.
fn undo(state: &mut State, result: Result<Reply, Errno>) {
    match result {
        Ok(Reply::Entry(entry)) => state.nodes.forget(NodeId(entry.nodeid), 1),
        Ok(Reply::Created(entry, opened)) => {
            files::close(state, opened.fh);
            state.nodes.forget(NodeId(entry.nodeid), 1);
        }
        Ok(Reply::Opened(opened)) => files::close(state, opened.fh),
        _ => {}
    }
}

/// Whether the operation changes the file system.
fn is_change(request: &Operation) -> bool {
    use Operation::*;
    matches!(
        request,
        SetAttr(_) | SymLink { .. } | MkNod { .. } | MkDir { .. } | Unlink { .. } | RmDir { .. } | Rename { .. }
    ) || matches!(request, Link { .. } | Create { .. } | Write { .. })
}

fn perform(state: &mut State, op: &mut Op) -> Result<Reply, Stop> {
    use Operation::*;
    let request = op.request.clone();
    if state.config.read_only && is_change(&request) {
        return Err(Errno::EROFS.into());
    }
    match request {
        Lookup { name } => lookup::lookup(state, op, &name),
        GetAttr { .. } => lookup::getattr(state, op),
        SetAttr(set) => changes::setattr(state, op, &set),
        ReadLink => lookup::readlink(state, op),
        SymLink { name, target } => changes::symlink(state, op, name, target),
        MkNod { name, mode, rdev, .. } => changes::mknod(state, op, name, mode, rdev),
        MkDir { name, mode, .. } => changes::mkdir(state, op, name, mode),
        Unlink { name } => changes::unlink(state, op, name),
        RmDir { name } => changes::rmdir(state, op, name),
        Rename { name, new_dir, new_name, flags } => {
            changes::rename(state, op, Location { dir: NodeId(new_dir), name: new_name }, name, flags)
        }
        Link { nodeid, name } => changes::link(state, op, NodeId(nodeid), name),
        Open { flags } => files::open(state, op, flags),
        Create { name, mode, flags, .. } => changes::create(state, op, name, mode, flags),
        Read { fh, offset, size, .. } => files::read(state, op, fh, offset, size),
        Write { fh, offset, data, flags, .. } => files::write(state, op, WriteRequest { fh, offset, data, flags }),
        Flush { fh, .. } => files::flush(state, op, fh, false),
        Fsync { fh, .. } => files::flush(state, op, fh, true),
        Release { fh, .. } | ReleaseDir { fh } => files::release(state, fh),
        OpenDir { .. } => directories::opendir(state, op),
        ReadDir { fh, offset, size } => {
            directories::readdir(state, op, Page { handle: fh, offset, size, has_attributes: false })
        }
        ReadDirPlus { fh, offset, size } => {
            directories::readdir(state, op, Page { handle: fh, offset, size, has_attributes: true })
        }
        StatFs => lookup::statfs(state, op),
        Access { mask } => lookup::access(state, op, mask),
        FsyncDir { .. } | SyncFs => {
            // The server has executed each change of names that was not logged before it was answered.
            dirty_store::all_synced(state, op)?;
            Ok(Reply::Empty)
        }
        Fallocate | TmpFile => Err(Errno::EOPNOTSUPP.into()),
        Ioctl => Err(Errno::ENOTTY.into()),
        // The kernel falls back to its own ways, or keeps locks to itself.
        Xattr | GetLk(_) | SetLk(_) | SetLkW(_) | Lseek { .. } | CopyFileRange | Poll | Statx | Unsupported => {
            Err(Errno::ENOSYS.into())
        }
        Init(_) | Destroy | Interrupt { .. } | Forget { .. } | BatchForget(_) | NotifyReply => Ok(Reply::Empty),
    }
}

/// The name in its directory that a request is about.
fn child(request: &Operation) -> Option<&nfs3::Name> {
    use Operation::*;
    match request {
        Lookup { name } | SymLink { name, .. } | MkNod { name, .. } | MkDir { name, .. } => Some(name),
        Unlink { name } | RmDir { name } | Rename { name, .. } | Link { name, .. } | Create { name, .. } => Some(name),
        _ => None,
    }
}

/// Name of an operation, for people.
fn name(request: &Operation) -> &'static str {
    use Operation::*;
    match request {
        Lookup { .. } => "lookup",
        GetAttr { .. } | Statx => "stat",
        SetAttr(_) => "change attributes",
        ReadLink => "readlink",
        SymLink { .. } => "symlink",
        MkNod { .. } => "mknod",
        MkDir { .. } => "mkdir",
        Unlink { .. } => "unlink",
        RmDir { .. } => "rmdir",
        Rename { .. } => "rename",
        Link { .. } => "link",
        Open { .. } => "open",
        Create { .. } => "create",
        Read { .. } => "read",
        Write { .. } => "write",
        Flush { .. } => "close",
        Fsync { .. } => "fsync",
        OpenDir { .. } | ReadDir { .. } | ReadDirPlus { .. } => "list",
        Access { .. } => "access",
        StatFs => "statfs",
        _ => "other",
    }
}
