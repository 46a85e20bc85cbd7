//! The change log in memory: its records, and which of them wait for which.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use remora_base::Time;
use remora_wire::fuse::Errno;
use remora_wire::nfs3::{Attr, Fh, Name, NfsTime, SetAttr, WccAttr};
use remora_wire::rpc::AuthUnix;

use crate::change_log::record::{Binding, Conflict, ConflictId, LogObject, RecordId};
use crate::node::{Location, NodeId};

/// Paths that programs needed while disconnected, at most.
const MISSED_MAX: usize = 1000;

/// A change that the server does not have yet, as [`LogChange`](crate::LogChange) has it, with objects by number.
#[derive(Clone, Debug)]
pub(crate) enum Logged {
    Make { at: Location, node: NodeId, what: LogObject, attr: SetAttr, verifier: [u8; 8] },
    Link { node: NodeId, at: Location },
    Remove { at: Location, node: NodeId, seen: Option<WccAttr>, is_directory: bool },
    Rename { from: Location, to: Location, node: NodeId, seen: Option<WccAttr>, replaced: Option<ReplacedNode> },
    SetAttr { node: NodeId, set: SetAttr, seen: Option<WccAttr> },
}

/// An object that loses its name by a rename.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplacedNode {
    pub(crate) node: NodeId,
    pub(crate) seen: Option<WccAttr>,
}

impl Logged {
    /// Names that the change alters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Location> {
        let names = match self {
            Logged::Make { at, .. } | Logged::Link { at, .. } | Logged::Remove { at, .. } => [Some(at), None],
            Logged::Rename { from, to, .. } => [Some(from), Some(to)],
            Logged::SetAttr { .. } => [None, None],
        };
        names.into_iter().flatten()
    }

    /// The object that the change is about.
    pub(crate) fn node(&self) -> NodeId {
        match self {
            Logged::Make { node, .. } | Logged::Link { node, .. } | Logged::Remove { node, .. } => *node,
            Logged::Rename { node, .. } | Logged::SetAttr { node, .. } => *node,
        }
    }

    pub(crate) fn replaced(&self) -> Option<NodeId> {
        if let Logged::Rename { replaced, .. } = self { replaced.map(|replaced| replaced.node) } else { None }
    }

    /// Objects of the change that are not directories of its names.
    fn objects(&self) -> impl Iterator<Item = NodeId> {
        [Some(self.node()), self.replaced()].into_iter().flatten()
    }
}

/// What the server has at a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Absent,
    Object { fh: Fh, attr: Box<Attr> },
}

/// State of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Waiting,
    /// Looks at the server's names before the change, at `from` and at `to`.
    Looking {
        since: Time,
        from: Option<Found>,
        to: Option<Found>,
    },
    /// The change is in flight.
    Sent,
    /// The server has executed the change, and the store may not know that after a loss of power.
    Done,
    /// The server refused the change.
    Refused(Errno),
}

/// A record and its state.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) change: Logged,
    pub(crate) auth: Arc<AuthUnix>,
    pub(crate) at: NfsTime,
    pub(crate) path: Vec<u8>,
    pub(crate) stage: Stage,
    /// When the change was first sent. Attributes that came later may show it, whatever the stage.
    pub(crate) sent_at: Option<Time>,
}

/// The change log.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    next: u64,
    entries: BTreeMap<RecordId, Entry>,
    by_object: BTreeMap<NodeId, BTreeSet<RecordId>>,
    by_name: BTreeMap<NodeId, BTreeMap<Name, BTreeSet<RecordId>>>,
    /// Renames, of which those of directories are executed in their order.
    renames: BTreeSet<RecordId>,
    /// Records that are neither waiting nor refused.
    pub(crate) in_flight: BTreeSet<RecordId>,
    waiting: BTreeSet<RecordId>,
    /// Records that are done, by the number of the save with which the store knows that.
    pub(crate) done_and_saved: BTreeMap<u64, Vec<RecordId>>,
    /// Numbers of the saves of records that no barrier covers yet.
    unsynced: BTreeMap<RecordId, u64>,
    pub(crate) sent: u64,
    pub(crate) conflicts: BTreeMap<ConflictId, Conflict>,
    next_conflict: u64,
    /// Objects that the server has made, with the provisional handles that the store may still have.
    pub(crate) bound: BTreeMap<Fh, NodeId>,
    /// What the server made of objects of an earlier run.
    pub(crate) bindings: BTreeMap<Fh, Binding>,
    pub(crate) next_object: u64,
    missed: VecDeque<Vec<u8>>,
}

impl ChangeLog {
    /// A number for a record, larger than those before.
    pub(crate) fn next_id(&mut self) -> RecordId {
        self.next += 1;
        RecordId(self.next)
    }

    pub(crate) fn insert(&mut self, id: RecordId, entry: Entry) {
        self.next = self.next.max(id.0);
        for node in entry.change.objects() {
            self.by_object.entry(node).or_default().insert(id);
        }
        for Location { dir, name } in entry.change.names() {
            self.by_name.entry(*dir).or_default().entry(name.clone()).or_default().insert(id);
        }
        if matches!(entry.change, Logged::Rename { .. }) {
            self.renames.insert(id);
        }
        if entry.stage == Stage::Waiting {
            self.waiting.insert(id);
        }
        self.entries.insert(id, entry);
    }

    pub(crate) fn remove(&mut self, id: RecordId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        for node in entry.change.objects() {
            if let Some(records) = self.by_object.get_mut(&node) {
                records.remove(&id);
                if records.is_empty() {
                    self.by_object.remove(&node);
                }
            }
        }
        for Location { dir, name } in entry.change.names() {
            let Some(names) = self.by_name.get_mut(dir) else { continue };
            if let Some(records) = names.get_mut(name) {
                records.remove(&id);
                if records.is_empty() {
                    names.remove(name);
                }
            }
            if names.is_empty() {
                self.by_name.remove(dir);
            }
        }
        self.renames.remove(&id);
        self.waiting.remove(&id);
        self.in_flight.remove(&id);
        self.unsynced.remove(&id);
        Some(entry)
    }

    pub(crate) fn get(&self, id: RecordId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: RecordId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(crate) fn set_stage(&mut self, id: RecordId, stage: Stage) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let is_waiting = stage == Stage::Waiting;
        let is_in_flight = !is_waiting && !matches!(stage, Stage::Refused(_));
        entry.stage = stage;
        if is_waiting {
            self.waiting.insert(id)
        } else {
            self.waiting.remove(&id)
        };
        if is_in_flight {
            self.in_flight.insert(id)
        } else {
            self.in_flight.remove(&id)
        };
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecordId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// The record was put into the store's next job.
    pub(crate) fn is_changed(&mut self, id: RecordId) {
        self.unsynced.insert(id, u64::MAX);
    }

    /// The store has the record since its save of this number.
    pub(crate) fn is_saved(&mut self, id: RecordId, save: u64) {
        if let Some(saved) = self.unsynced.get_mut(&id) {
            *saved = save;
        }
    }

    /// Whether the record survives a loss of power after a barrier that covers `synced` saves.
    pub(crate) fn is_synced(&mut self, id: RecordId, synced: u64) -> bool {
        let is_synced = self.unsynced.get(&id).is_none_or(|save| *save <= synced);
        if is_synced {
            self.unsynced.remove(&id);
        }
        is_synced
    }

    /// Records that wait to be sent, the oldest first, at most `max`.
    pub(crate) fn waiting(&self, max: usize) -> Vec<RecordId> {
        self.waiting.iter().take(max).copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records about an object, in their order.
    pub(crate) fn of_object(&self, node: NodeId) -> Vec<RecordId> {
        self.by_object.get(&node).into_iter().flatten().copied().collect()
    }

    /// Whether a record alters a name in the directory.
    pub(crate) fn has_names_in(&self, dir: NodeId) -> bool {
        self.by_name.contains_key(&dir)
    }

    /// The latest record that alters the name.
    pub(crate) fn last_of_name(&self, at: &Location) -> Option<RecordId> {
        self.by_name.get(&at.dir)?.get(&at.name)?.last().copied()
    }

    /// Whether a later record alters the name.
    pub(crate) fn has_later_name(&self, at: &Location, id: RecordId) -> bool {
        self.last_of_name(at).is_some_and(|last| last > id)
    }

    /// Whether a record is about the object, or alters a name in it.
    pub(crate) fn touches(&self, node: NodeId) -> bool {
        self.by_object.contains_key(&node) || self.has_names_in(node)
    }

    /// Whether earlier records must be executed before this one.
    pub(crate) fn has_earlier(&self, id: RecordId) -> bool {
        let Some(entry) = self.entries.get(&id) else { return true };
        let is_first = |records: Option<&BTreeSet<RecordId>>| records.and_then(BTreeSet::first) == Some(&id);
        let names_first =
            entry.change.names().all(|at| is_first(self.by_name.get(&at.dir).and_then(|names| names.get(&at.name))));
        let objects_first = entry.change.objects().all(|node| is_first(self.by_object.get(&node)));
        !(names_first && objects_first)
    }

    /// Whether an earlier record alters a name in the directory.
    pub(crate) fn has_earlier_in(&self, dir: NodeId, id: RecordId) -> bool {
        let names = self.by_name.get(&dir).into_iter().flat_map(BTreeMap::values);
        names.flatten().any(|earlier| *earlier < id)
    }

    /// Earlier renames that are not done.
    pub(crate) fn earlier_renames(&self, id: RecordId) -> impl Iterator<Item = &Entry> {
        self.renames.range(..id).filter_map(|earlier| self.entries.get(earlier))
    }

    /// Reports a conflict under a new number.
    pub(crate) fn next_conflict(&mut self) -> ConflictId {
        self.next_conflict += 1;
        ConflictId(self.next_conflict)
    }

    pub(crate) fn restore_conflict(&mut self, conflict: Conflict) {
        self.next_conflict = self.next_conflict.max(conflict.id.0);
        self.conflicts.insert(conflict.id, conflict);
    }

    /// A program needed the object at `path`, and the cache did not have it.
    pub(crate) fn miss(&mut self, path: Vec<u8>) {
        if self.missed.contains(&path) {
            return;
        }
        if self.missed.len() >= MISSED_MAX {
            self.missed.pop_front();
        }
        self.missed.push_back(path);
    }

    pub(crate) fn missed(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.missed.iter()
    }
}
