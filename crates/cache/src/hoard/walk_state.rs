//! State of hoarding: the plan, the walk, and what is in flight for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use remora_base::Time;
use remora_wire::nfs3::{Name, WccAttr};

use crate::call::CallId;
use crate::credentials::Caller;
use crate::disk::job::{DiskDone, DiskJobId};
use crate::hoard::profile::{HoardEntry, HoardPlan, NameGlob};
use crate::hoard::status::HoardProgress;
use crate::hoard::usage::Usage;
use crate::node::NodeId;

/// An entry of the profile, ready to be walked.
#[derive(Debug)]
pub(crate) struct WalkEntry {
    /// Components of the path.
    pub(crate) names: Vec<Name>,
    pub(crate) priority: u8,
    pub(crate) recursive: bool,
    pub(crate) glob: Option<NameGlob>,
}

impl WalkEntry {
    pub(crate) fn new(entry: &HoardEntry) -> WalkEntry {
        let names = entry.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let names = names.map(Name::copy_from_slice).collect();
        WalkEntry { names, priority: entry.priority, recursive: entry.recursive, glob: entry.glob.clone() }
    }
}

/// An object that a walk comes to.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) node: NodeId,
    pub(crate) entry: Arc<WalkEntry>,
    /// Components of the entry's path up to the object; more than the path has for what is below it.
    pub(crate) depth: usize,
    /// Bytes with which it is counted as wanted; `None` for a directory.
    pub(crate) counted: Option<u64>,
}

impl Visit {
    /// Whether only its place on the way to the entry is wanted.
    pub(crate) fn is_ancestor(&self) -> bool {
        self.depth < self.entry.names.len()
    }

    /// Whether the objects in it are wanted, if it is a directory.
    pub(crate) fn is_entered(&self) -> bool {
        self.depth == self.entry.names.len() || self.entry.recursive
    }
}

/// The pin of an object in the disk cache.
#[derive(Debug, Default)]
pub(crate) enum Pin {
    #[default]
    None,
    InFlight,
    /// What the disk cache has; `None` if it has no record.
    Done(Option<PinnedObject>),
}

/// What the disk cache has of a pinned object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PinnedObject {
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) bytes: u64,
}

/// An object that a walk works on.
#[derive(Debug)]
pub(crate) struct ActiveObject {
    pub(crate) visit: Visit,
    pub(crate) is_directory: bool,
    /// Calls but READs that were made for it.
    pub(crate) attempts: u32,
    /// Bytes that were asked for.
    pub(crate) asked_bytes: u64,
    /// Bytes in memory or in flight that are not on disk, and all bytes that need not be asked for.
    pub(crate) moving_bytes: u64,
    pub(crate) known_bytes: u64,
    /// Size and times of the file, and how often they changed.
    pub(crate) version: Option<WccAttr>,
    pub(crate) changes: u32,
    /// Bytes that are set aside for it in the disk cache.
    pub(crate) planned_bytes: Option<u64>,
    /// Names that were looked up.
    pub(crate) lookups: BTreeSet<Name>,
    /// A listing was asked for.
    pub(crate) is_listed: bool,
    /// The objects in it are in the walk.
    pub(crate) is_expanded: bool,
    pub(crate) pin: Pin,
    pub(crate) pins: u32,
    /// When it last got on.
    pub(crate) since: Time,
}

impl ActiveObject {
    pub(crate) fn new(visit: Visit, is_directory: bool, now: Time) -> ActiveObject {
        ActiveObject {
            visit,
            is_directory,
            attempts: 0,
            asked_bytes: 0,
            moving_bytes: 0,
            known_bytes: 0,
            version: None,
            changes: 0,
            planned_bytes: None,
            lookups: BTreeSet::new(),
            is_listed: false,
            is_expanded: false,
            pin: Pin::None,
            pins: 0,
            since: now,
        }
    }
}

/// A walk over the profile.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) began: Time,
    /// Identifies the pins of this walk.
    pub(crate) stamp: u64,
    /// It goes on over a weak link.
    pub(crate) is_asked: bool,
    pub(crate) caller: Caller,
    pub(crate) bytes_max: u64,
    /// Entries to come, the highest priority first.
    pub(crate) entries: VecDeque<Arc<WalkEntry>>,
    /// Priority of the entry that came last.
    pub(crate) priority: u8,
    /// Objects to come, the next one last.
    pub(crate) stack: Vec<Visit>,
    pub(crate) active: BTreeMap<NodeId, ActiveObject>,
    /// Active objects that wait until fewer calls or jobs are in flight.
    pub(crate) starved: BTreeSet<NodeId>,
    /// Active directories whose objects are not in the walk yet.
    pub(crate) unexpanded: usize,
    /// Directories of the present entry, and files of the walk.
    pub(crate) entered: BTreeSet<NodeId>,
    pub(crate) seen: BTreeSet<NodeId>,
    /// Sum of [`ActiveObject::moving_bytes`].
    pub(crate) moving_bytes: u64,
    /// Bytes that the visited objects take in the disk cache.
    pub(crate) planned_bytes: u64,
    /// When all active objects are looked at.
    pub(crate) next_look: Time,
    pub(crate) progress: HoardProgress,
}

/// State of hoarding.
#[derive(Debug, Default)]
pub(crate) struct Hoard {
    pub(crate) plan: Option<HoardPlan>,
    pub(crate) walk: Option<Box<Walk>>,
    /// The last walk that came to its end.
    pub(crate) last: Option<HoardProgress>,
    pub(crate) finished: Option<Time>,
    /// When the next walk begins, if none is going on.
    pub(crate) next_walk: Option<Time>,
    /// The next walk was asked for.
    pub(crate) is_asked: bool,
    /// When there is something to do.
    pub(crate) due: Option<Time>,
    pub(crate) is_paused: bool,
    pub(crate) last_stamp: u64,
    /// Calls in flight.
    pub(crate) calls: BTreeSet<CallId>,
    /// Pins in flight, and those that are done.
    pub(crate) pins: BTreeMap<DiskJobId, NodeId>,
    pub(crate) pinned: Vec<(NodeId, Option<PinnedObject>)>,
    /// Objects of which something has become known.
    pub(crate) ready: BTreeSet<NodeId>,
    pub(crate) usage: Usage,
}

impl Hoard {
    /// Something about an object has changed: a call or a disk job for it has ended.
    pub(crate) fn wake(&mut self, id: Option<NodeId>) {
        if self.walk.is_some() {
            self.ready.extend(id);
        }
    }

    /// The disk cache has done a job, on this object if it was a load, a read or a save.
    pub(crate) fn disk_done(&mut self, job: DiskJobId, id: Option<NodeId>, result: &DiskDone) {
        self.wake(id);
        let Some(id) = self.pins.remove(&job) else { return };
        let pinned = match result {
            DiskDone::Pinned(Some(pin)) => Some(PinnedObject { ranges: pin.ranges.clone(), bytes: pin.bytes }),
            _ => None,
        };
        self.pinned.push((id, pinned));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }
}
