//! What the cache knows and what is in flight, shared by the operations.
//!
//! An operation is a function of the state. It either has all it needs and returns its reply, or it starts the calls
//! for what is missing and returns [`Stop::Wait`]; it runs again from its beginning when one of them is answered.
//! Changes are [`step`](State::step)s, each sent once and remembered in the operation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::fuse::{Errno, Notification, Operation, Reply, StatFs, Timestamp};
use remora_wire::nfs3::{self, Fh, NfsTime};
use remora_wire::rpc::AuthUnix;

use crate::call::{CallId, CallQueue, Priority};
use crate::change_log::log::ChangeLog;
use crate::change_log::record::RecordId;
use crate::config::{Config, LinkState, OfflineMiss, Writes};
use crate::connectivity::ConnectionState;
use crate::credentials::{Caller, CredentialId, Credentials};
use crate::disk::queue::DiskQueue;
use crate::foresight::Foresight;
use crate::hoard::walk_state::Hoard;
use crate::node::{Location, Node, NodeId};
use crate::node_table::NodeTable;
use crate::store_queue::{StepId, StoreQueue};

/// Unsent files while disconnected, as a multiple of those that wait otherwise.
const OFFLINE_FILES: usize = 10;

/// Why an operation returns without a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It runs again when a call is answered.
    Wait,
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Failed(errno)
    }
}

/// A request of the kernel that is not answered yet.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) unique: u64,
    pub(crate) node: NodeId,
    pub(crate) pid: u32,
    /// Name of the program; empty if it is not known.
    pub(crate) program: Bytes,
    pub(crate) caller: Caller,
    pub(crate) arrived: Time,
    pub(crate) request: Operation,
    /// Results of the changes of this operation, in their order.
    pub(crate) steps: Vec<Step>,
    /// The error of a call that the operation waited for.
    pub(crate) failure: Option<Errno>,
    /// Whether the operation has not run yet.
    pub(crate) is_first: bool,
    /// The kernel has its answer already; the operation goes on to its end.
    pub(crate) is_answered: bool,
    /// A LOOKUP met an object that is gone, and looked its name up again.
    pub(crate) is_retried: bool,
    /// The effects of the steps on file data are done.
    pub(crate) is_applied: bool,
    /// An open file that loses its name by this operation.
    pub(crate) hidden: Option<Hidden>,
    /// The object of a rename, as it was at the first step.
    pub(crate) node_at_start: Option<NodeId>,
    /// Saves that the store had done when the operation began.
    pub(crate) saves: u64,
}

/// A file that is removed while open, and its hidden name.
#[derive(Clone, Debug)]
pub(crate) struct Hidden {
    pub(crate) node: NodeId,
    pub(crate) at: Location,
}

/// A change that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    InFlight,
    Done(Result<(), Errno>),
}

/// Something that at most one call at a time asks for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FetchKey {
    Attr(NodeId),
    Access(NodeId, CredentialId),
    Name(NodeId, nfs3::Name),
    LinkTarget(NodeId),
    Listing(NodeId),
    StatFs,
}

/// A listing that is being read.
#[derive(Clone, Debug)]
pub(crate) struct ListingProgress {
    pub(crate) dir: NodeId,
    pub(crate) began: Time,
    pub(crate) cookie: u64,
    pub(crate) verf: [u8; 8],
    pub(crate) found: Vec<(nfs3::Name, crate::node::Target)>,
    /// Times that the server made the listing start again.
    pub(crate) restarts: u32,
    /// READDIR, for a server without READDIRPLUS.
    pub(crate) is_plain: bool,
    pub(crate) credential: Caller,
    /// Whether all pages came with the same attributes of the directory, which are the first page's.
    pub(crate) is_uniform: bool,
    pub(crate) attr: Option<nfs3::Attr>,
}

impl ListingProgress {
    /// A listing from its first page.
    pub(crate) fn new(dir: NodeId, began: Time, credential: Caller) -> ListingProgress {
        let (cookie, verf, found) = (0, [0; 8], Vec::new());
        ListingProgress {
            dir,
            began,
            cookie,
            verf,
            found,
            restarts: 0,
            is_plain: false,
            credential,
            is_uniform: true,
            attr: None,
        }
    }
}

/// What a call in flight is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    GetAttr(NodeId),
    /// GETATTR after a LOOKUP whose reply had no attributes.
    Found {
        at: Location,
        fh: Fh,
    },
    Lookup {
        at: Location,
        credential: CredentialId,
    },
    Access {
        node: NodeId,
        credential: CredentialId,
    },
    ReadLink(NodeId),
    Read {
        node: NodeId,
        range: Range<u64>,
        reader: Caller,
    },
    List(Box<ListingProgress>),
    StatFs,
    Write {
        node: NodeId,
        range: Range<u64>,
    },
    Commit(NodeId),
    /// GETATTR of a file with data from an earlier run.
    Check(NodeId),
    /// READ of the server's bytes, to be compared with such data.
    CheckRead {
        node: NodeId,
        range: Range<u64>,
    },
    /// A call that executes a record of the change log.
    Reintegrate {
        record: RecordId,
        call: LogCall,
    },
    /// A change; `op` waits for it as its step `index`.
    Change {
        op: Option<StepId>,
        change: Change,
    },
}

/// What a call for a record of the change log is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LogCall {
    /// LOOKUP of the name, or of a rename's old name.
    From,
    /// LOOKUP of a rename's new name.
    To,
    /// GETATTR after a LOOKUP whose reply had no attributes.
    Attr { fh: Fh, is_from: bool },
    /// The change itself.
    Act(Change),
    /// LOOKUP of a name that exists where the change makes one.
    Existing,
    /// READLINK of that symbolic link.
    ExistingTarget { fh: Fh, attr: Box<nfs3::Attr> },
}

/// A change of names or attributes, for its effects on the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    SetAttr(NodeId),
    /// The SETATTR that completes an exclusive creation.
    Complete(NodeId),
    /// The SETATTR that follows a file's data.
    Deferred(NodeId),
    /// The SETATTR that cuts a file before its data is sent.
    Cut(NodeId),
    /// CREATE, MKDIR, SYMLINK or MKNOD.
    Make(Location),
    Remove(Location),
    Rename {
        from: Location,
        to: Location,
    },
    Link {
        node: NodeId,
        to: Location,
    },
}

impl Change {
    /// The directories whose names the change alters, or the object whose attributes it alters.
    pub(crate) fn subjects(&self) -> [Option<NodeId>; 2] {
        match self {
            Change::SetAttr(node) | Change::Complete(node) => [Some(*node), None],
            Change::Deferred(node) | Change::Cut(node) => [Some(*node), None],
            Change::Make(at) | Change::Remove(at) | Change::Link { to: at, .. } => [Some(at.dir), None],
            Change::Rename { from, to } if from.dir == to.dir => [Some(from.dir), None],
            Change::Rename { from, to } => [Some(from.dir), Some(to.dir)],
        }
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) purpose: Purpose,
    /// Operations that run again when it is answered.
    pub(crate) waiters: Vec<u64>,
    pub(crate) key: Option<FetchKey>,
    pub(crate) asked: Time,
}

/// An open file or directory.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) node: NodeId,
    pub(crate) opener: Caller,
    /// The entries of a directory, as they were at its opening or the last rewinddir(3).
    pub(crate) entries: Option<Arc<Vec<ListEntry>>>,
    /// A page of the entries was read.
    pub(crate) has_been_read: bool,
}

/// An entry of an open directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListEntry {
    pub(crate) name: nfs3::Name,
    pub(crate) fileid: u64,
    pub(crate) node: Option<NodeId>,
}

/// Counters of the cache. They never decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Requests that were answered without a wait, and with one.
    pub hits: u64,
    pub misses: u64,
    /// Bytes of files that were read ahead, and those of them that a program used.
    pub ahead_bytes: u64,
    pub ahead_used_bytes: u64,
    /// Bytes of files that came from the disk cache.
    pub disk_bytes: u64,
}

/// State of the cache.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) link: LinkState,
    pub(crate) nodes: NodeTable,
    pub(crate) credentials: Credentials,
    pub(crate) queue: CallQueue,
    pub(crate) pending: BTreeMap<CallId, Pending>,
    pub(crate) fetches: BTreeMap<FetchKey, CallId>,
    pub(crate) handles: BTreeMap<u64, Handle>,
    next_handle: u64,
    pub(crate) held: BTreeMap<u64, Op>,
    /// Operations to run again.
    pub(crate) ready: VecDeque<u64>,
    pub(crate) answers: VecDeque<(u64, Result<Reply, Errno>)>,
    pub(crate) notifications: VecDeque<Notification>,
    /// Files with uncommitted data, and its sum in bytes.
    pub(crate) dirty_files: BTreeSet<NodeId>,
    pub(crate) dirty_bytes: u64,
    /// Jobs for the store of unsent data.
    pub(crate) store: StoreQueue,
    /// Changes of names that the server does not have.
    pub(crate) log: ChangeLog,
    pub(crate) connection: ConnectionState,
    /// Jobs for the disk cache.
    pub(crate) disk: DiskQueue,
    pub(crate) hoard: Hoard,
    /// When files with uncommitted data are due, or were once: nothing removes what is not due any more.
    pub(crate) timers: BTreeSet<(Time, NodeId)>,
    /// Writes that wait until less data is uncommitted.
    pub(crate) space_waiters: BTreeSet<u64>,
    /// Files with data in memory, the least recently used first, and the sum in bytes.
    pub(crate) data_files: BTreeMap<u64, NodeId>,
    pub(crate) data_bytes: u64,
    pub(crate) next_place: u64,
    pub(crate) statfs: Option<StatFs>,
    /// The server's clock minus ours, in nanoseconds, as its latest changes showed.
    pub(crate) skew_nanos: i64,
    /// Calls in flight for which no program waits.
    pub(crate) ahead: BTreeSet<CallId>,
    /// Bytes of files read ahead that no program has used.
    pub(crate) ahead_bytes: u64,
    pub(crate) foresight: Foresight,
    pub(crate) figures: Figures,
    /// Number of the next name for a removed file that is open.
    pub(crate) next_silly: u64,
}

impl State {
    pub(crate) fn new(config: Config, root: Fh, now: Time) -> State {
        State {
            now,
            link: LinkState::default(),
            nodes: NodeTable::new(root, config.forgotten_max),
            credentials: Credentials::new(config.machine.clone()),
            queue: CallQueue::default(),
            pending: BTreeMap::new(),
            fetches: BTreeMap::new(),
            handles: BTreeMap::new(),
            next_handle: 1,
            held: BTreeMap::new(),
            ready: VecDeque::new(),
            answers: VecDeque::new(),
            notifications: VecDeque::new(),
            dirty_files: BTreeSet::new(),
            dirty_bytes: 0,
            store: StoreQueue::default(),
            log: ChangeLog::default(),
            connection: ConnectionState::new(config.offline, now),
            disk: DiskQueue::new(config.disk_file_max > 0),
            hoard: Hoard::default(),
            timers: BTreeSet::new(),
            space_waiters: BTreeSet::new(),
            data_files: BTreeMap::new(),
            data_bytes: 0,
            next_place: 0,
            statfs: None,
            skew_nanos: 0,
            ahead: BTreeSet::new(),
            ahead_bytes: 0,
            foresight: Foresight::default(),
            figures: Figures::default(),
            next_silly: 0,
            config,
        }
    }

    /// The object `id`, or ESTALE if it was evicted or the server lost it.
    pub(crate) fn node(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        match self.nodes.get_mut(id) {
            Some(node) if !node.is_stale => Ok(node),
            _ => Err(Errno::ESTALE),
        }
    }

    /// Whether a reply to a call made at `asked` is new enough for `op`: newer than the operation, or younger than
    /// `window`.
    pub(crate) fn is_fresh(&self, asked: Time, op: &Op, window: Duration) -> bool {
        asked >= op.arrived || self.now.since(asked) < window || self.is_disconnected()
    }

    pub(crate) fn is_disconnected(&self) -> bool {
        self.connection.is_disconnected()
    }

    /// Whether a call for which the cache has no answer fails.
    pub(crate) fn fails_misses(&self) -> bool {
        let misses_fail = self.config.offline.miss == OfflineMiss::Fail;
        self.is_disconnected() && (misses_fail || self.connection.is_asked())
    }

    /// Bytes that may be unsent, and files with them.
    pub(crate) fn dirty_max(&self) -> u64 {
        if self.is_disconnected() { self.config.offline_max.max(self.config.dirty_max) } else { self.config.dirty_max }
    }

    pub(crate) fn dirty_files_max(&self) -> usize {
        let factor = if self.is_disconnected() { OFFLINE_FILES } else { 1 };
        self.config.dirty_files_max * factor
    }

    /// Whether changes are acknowledged when the store on this machine has them.
    pub(crate) fn acknowledges_here(&self) -> bool {
        self.config.writes == Writes::Back || self.is_disconnected()
    }

    /// How long the kernel may keep an answer that is as of `asked`: not at all if it comes so late that the sum would
    /// exceed the policy's bound.
    pub(crate) fn kernel_validity(&self, asked: Time, window: Duration) -> Duration {
        if self.now.since(asked) < window { self.config.policy.kernel } else { Duration::ZERO }
    }

    pub(crate) fn submit(
        &mut self,
        priority: Priority,
        credential: &Arc<AuthUnix>,
        call: nfs3::Call,
        purpose: Purpose,
    ) -> CallId {
        let id = self.queue.push(priority, credential.clone(), call);
        self.pending.insert(id, Pending { purpose, waiters: Vec::new(), key: None, asked: self.now });
        id
    }

    /// Waits for the call that fetches `key`: one in flight that is new enough, or a new one.
    pub(crate) fn fetch(
        &mut self,
        op: &Op,
        key: FetchKey,
        window: Duration,
        call: nfs3::Call,
        purpose: Purpose,
    ) -> Stop {
        let in_flight = self.fetches.get(&key).copied();
        if self.fails_misses() {
            return Stop::Failed(Errno::EHOSTUNREACH);
        }
        let joined = in_flight.filter(|id| self.pending.get(id).is_some_and(|p| self.is_fresh(p.asked, op, window)));
        let id = joined.unwrap_or_else(|| {
            let id = self.submit(Priority::Foreground, &op.caller.auth, call, purpose);
            self.fetches.insert(key.clone(), id);
            if let Some(pending) = self.pending.get_mut(&id) {
                pending.key = Some(key);
            }
            id
        });
        self.wait_for(id, op.unique);
        Stop::Wait
    }

    /// The operation `unique` runs again when `id` is answered.
    pub(crate) fn wait_for(&mut self, id: CallId, unique: u64) {
        self.ahead.remove(&id);
        self.queue.raise(id, Priority::Foreground);
        if let Some(pending) = self.pending.get_mut(&id)
            && !pending.waiters.contains(&unique)
        {
            pending.waiters.push(unique);
        }
    }

    /// Step `index` of `op`: sends the change at the first time, then returns its result.
    pub(crate) fn step(&mut self, op: &mut Op, index: usize, change: Change, call: nfs3::Call) -> Result<(), Stop> {
        match op.steps.get(index) {
            Some(Step::InFlight) => Err(Stop::Wait),
            Some(Step::Done(result)) => Ok((*result)?),
            None => {
                self.begin_change(&change);
                let id = StepId { unique: op.unique, index };
                self.submit(Priority::Foreground, &op.caller.auth, call, Purpose::Change { op: Some(id), change });
                op.steps.push(Step::InFlight);
                Err(Stop::Wait)
            }
        }
    }

    /// Step `step` of an operation is done.
    pub(crate) fn finish_step(&mut self, step: StepId, result: Result<(), Errno>) {
        if let Some(slot) = self.held.get_mut(&step.unique).and_then(|op| op.steps.get_mut(step.index)) {
            *slot = Step::Done(result);
        }
        self.ready.push_back(step.unique);
    }

    /// A change is sent.
    pub(crate) fn begin_change(&mut self, change: &Change) {
        for id in change.subjects().into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(id) {
                node.begin_change();
            }
        }
    }

    /// Opens a handle on `node`.
    pub(crate) fn open(&mut self, node: NodeId, opener: &Caller) -> u64 {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, Handle { node, opener: opener.clone(), entries: None, has_been_read: false });
        if let Some(node) = self.nodes.get_mut(node) {
            node.opens += 1;
        }
        self.nodes.settle(node);
        handle
    }

    pub(crate) fn handle(&self, handle: u64) -> Result<&Handle, Errno> {
        self.handles.get(&handle).ok_or(Errno::EBADF)
    }

    /// Beginning of the names that files removed here have while they are open.
    pub(crate) fn hidden_prefix(&self) -> String {
        format!(".nfs{:016x}", self.config.client_id)
    }

    /// The same as [`server_time`](State::server_time), for the server.
    pub(crate) fn server_nfs_time(&self) -> NfsTime {
        let time = self.server_time();
        NfsTime { secs: u32::try_from(time.secs).unwrap_or(u32::MAX), nanos: time.nanos }
    }

    /// The present time of the server, as far as it is known.
    pub(crate) fn server_time(&self) -> Timestamp {
        let wall = self.config.wall_at_zero + self.now.since(Time::ZERO);
        let nanos = i128::try_from(wall.as_nanos()).unwrap_or(i128::MAX).saturating_add(i128::from(self.skew_nanos));
        let nanos = nanos.max(0);
        Timestamp {
            secs: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            nanos: (nanos % 1_000_000_000) as u32,
        }
    }

    /// A change that the server has just made got this time.
    pub(crate) fn learn_skew(&mut self, ctime: NfsTime) {
        let wall = self.config.wall_at_zero + self.now.since(Time::ZERO);
        let theirs = i128::from(ctime.secs) * 1_000_000_000 + i128::from(ctime.nanos);
        let ours = i128::try_from(wall.as_nanos()).unwrap_or(i128::MAX);
        self.skew_nanos = i64::try_from(theirs - ours).unwrap_or(0);
    }

    pub(crate) fn notify(&mut self, notification: Notification) {
        if self.notifications.back() != Some(&notification) {
            self.notifications.push_back(notification);
        }
    }
}
