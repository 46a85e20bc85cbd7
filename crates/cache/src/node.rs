//! Objects that the cache knows, and what it knows of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::fuse::Errno;
use remora_wire::nfs3::{Attr, Fh, FileType, Name, NfsTime, SetAttr, WccAttr};
use remora_wire::rpc::AuthUnix;

use crate::call::CallId;
use crate::credentials::CredentialId;
use crate::disk::object::DiskState;
use crate::extents::Extents;
use crate::kept::{Check, DeferredSetAttr, KeptState, merged};
use crate::ranges::RangeSet;
use crate::store_job::Refusal;

/// Number of an object towards the kernel. Never used again for another object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// The mounted directory (FUSE_ROOT_ID).
    pub(crate) const ROOT: NodeId = NodeId(1);
    /// Not an object: before all others in an order.
    pub(crate) const MIN: NodeId = NodeId(0);
}

/// Attributes with the times between which the server sent them.
#[derive(Clone, Debug)]
pub(crate) struct CachedAttr {
    pub(crate) attr: Attr,
    /// When the call was made: the attributes are at least as new.
    pub(crate) asked: Time,
    /// When the reply came.
    pub(crate) received: Time,
    /// When the first reply with the same size and times came.
    pub(crate) since: Time,
    /// Since when they are known to be wrong: only a call made later shows the right ones.
    pub(crate) outdated: Option<Time>,
}

impl CachedAttr {
    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated.is_some()
    }
}

/// An answer to ACCESS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// `ACCESS_*` bits that the server was asked about.
    pub(crate) tested: u32,
    pub(crate) granted: u32,
    pub(crate) asked: Time,
}

/// A name and its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub(crate) dir: NodeId,
    pub(crate) name: Name,
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Node(NodeId),
    /// A listing showed the name without its file handle.
    Unknown {
        fileid: u64,
    },
    /// The name does not exist.
    Absent,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dentry {
    pub(crate) target: Target,
    /// When the call was made that showed it.
    pub(crate) asked: Time,
    /// Whether it belongs to the known attributes of the directory, so that they confirm it.
    pub(crate) is_confirmed: bool,
}

impl Dentry {
    /// The object that the name stands for, if it is known.
    pub(crate) fn node(&self) -> Option<NodeId> {
        if let Target::Node(id) = self.target { Some(id) } else { None }
    }
}

/// A listing of all names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) began: Time,
    /// As of [`Dentry::is_confirmed`].
    pub(crate) is_confirmed: bool,
}

/// Names of a directory. All are dropped when another client changes the directory.
#[derive(Debug, Default)]
pub(crate) struct DirState {
    pub(crate) names: BTreeMap<Name, Dentry>,
    /// Names that were dropped with them while older calls were in flight, and when the calls that showed them were made.
    pub(crate) dropped: BTreeMap<Name, Time>,
    /// Names that records of the change log decide, whatever the server shows.
    pub(crate) logged: BTreeMap<Name, Target>,
    /// The listing that showed all names; `None` where some may be missing.
    pub(crate) complete: Option<Listed>,
    /// When the outcome of a change became unknown: replies to earlier calls show nothing about the names.
    pub(crate) unknown_since: Option<Time>,
    /// LOOKUPs and GETATTRs that had to ask the server since the last listing.
    pub(crate) misses: u32,
    /// The file that was opened last, and how many were opened in the order of their names.
    pub(crate) last_opened: Option<Name>,
    pub(crate) streak: u32,
}

impl DirState {
    /// All known names, with those that do not exist, as the change log leaves them.
    pub(crate) fn current(&self) -> BTreeMap<Name, Target> {
        let shown = self.names.iter().map(|(name, dentry)| (name.clone(), dentry.target));
        let logged = self.logged.iter().map(|(name, target)| (name.clone(), *target));
        shown.chain(logged).collect()
    }
}

/// Contents of a file, and the state of its write-back.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub(crate) extents: Extents,
    /// READs in flight.
    pub(crate) reading: BTreeMap<CallId, Range<u64>>,
    /// Written here and not sent.
    pub(crate) dirty: RangeSet,
    /// WRITEs in flight.
    pub(crate) writing: BTreeMap<CallId, Range<u64>>,
    /// Acknowledged as UNSTABLE.
    pub(crate) unstable: RangeSet,
    /// Covered by the COMMIT in flight.
    pub(crate) committing: RangeSet,
    pub(crate) commit: Option<CallId>,
    /// Refused by the server; sent again at the next fsync or close.
    pub(crate) refused: RangeSet,
    /// Write verifier of `unstable` and `committing`.
    pub(crate) verf: Option<[u8; 8]>,
    /// SETATTRs in flight that complete an exclusive creation.
    pub(crate) completing: u32,
    /// A change of attributes that follows the data, and the one in flight.
    pub(crate) deferred: Option<DeferredSetAttr>,
    /// Size in bytes to which the server's file is cut before the data is sent, and the SETATTR in flight.
    pub(crate) cut: Option<u64>,
    pub(crate) cut_sent: Option<u64>,
    pub(crate) deferred_sent: Option<DeferredSetAttr>,
    /// Why `refused` is not sent.
    pub(crate) refusal: Option<Refusal>,
    /// The data is from an earlier run, and nothing is sent before the server's file is seen.
    pub(crate) check: Option<Box<Check>>,
    pub(crate) kept: KeptState,
    /// Error of a WRITE or COMMIT that no program has seen yet.
    pub(crate) error: Option<Errno>,
    /// Size in bytes while data is uncommitted.
    pub(crate) size: Option<u64>,
    /// Credential of the last writer.
    pub(crate) writer: Option<Arc<AuthUnix>>,
    /// A program waits for fsync or close.
    pub(crate) is_urgent: bool,
    /// Requests that wait until nothing is uncommitted.
    pub(crate) flush_waiters: BTreeSet<u64>,
    /// When the dirty data is sent at the latest.
    pub(crate) send_at: Option<Time>,
    /// When the unstable data is committed at the latest.
    pub(crate) commit_at: Option<Time>,
    /// Bytes counted in the total of uncommitted data.
    pub(crate) counted: u64,
    /// Position in the order of eviction, if there is data in memory.
    pub(crate) place: Option<u64>,
    /// Where the next sequential read starts, and how far the last one was followed by read-ahead.
    pub(crate) next_read: u64,
    pub(crate) ahead: u64,
    /// Bytes read ahead that no program has used.
    pub(crate) unused: u64,
    /// Another client changed the file since the kernel last opened it.
    pub(crate) is_changed: bool,
}

impl FileState {
    /// Ranges that the server may still lose.
    pub(crate) fn uncommitted(&self) -> RangeSet {
        let mut all = self.dirty.clone();
        let sets = [&self.unstable, &self.committing, &self.refused];
        let writing = self.writing.values().map(|range| self.before_cut(range));
        sets.into_iter().flat_map(RangeSet::iter).chain(writing).for_each(|r| all.insert(r));
        all
    }

    /// Whether the server cannot lose what it was sent in a crash.
    pub(crate) fn is_safe(&self) -> bool {
        self.writing.is_empty() && self.unstable.is_empty() && self.committing.is_empty()
    }

    /// The part of a range in flight that the next truncation leaves.
    pub(crate) fn before_cut(&self, range: &Range<u64>) -> Range<u64> {
        let cut = self.cut.unwrap_or(u64::MAX);
        range.start.min(cut)..range.end.min(cut)
    }

    /// Whether another client has changed the file: the mount keeps its own data and does not send it.
    pub(crate) fn is_changed_there(&self) -> bool {
        self.refusal == Some(Refusal::Changed) && self.check.is_none()
    }

    /// The sets of ranges that have a meaning only while the file has these bytes.
    pub(crate) fn unsent_sets(&mut self) -> [&mut RangeSet; 5] {
        [&mut self.dirty, &mut self.unstable, &mut self.committing, &mut self.refused, &mut self.kept.unsaved]
    }

    /// Whether the server has everything, and has committed it.
    pub(crate) fn is_clean(&self) -> bool {
        self.is_flushed() && self.refused.is_empty()
    }

    /// Whether nothing is left to be sent or committed but what the server refused.
    pub(crate) fn is_flushed(&self) -> bool {
        // Of a file that another client has changed nothing is sent.
        let is_cut = (self.cut.is_none() || self.is_changed_there()) && self.cut_sent.is_none();
        is_cut && self.is_committed() && self.completing == 0 && self.deferred.is_none() && self.deferred_sent.is_none()
    }

    /// Whether the server has committed all data but what it refused.
    pub(crate) fn is_committed(&self) -> bool {
        let is_sent = self.dirty.is_empty() && self.writing.is_empty();
        is_sent && self.unstable.is_empty() && self.committing.is_empty()
    }

    /// The change of attributes that the server lacks, and its credential.
    pub(crate) fn deferred_attr(&self) -> Option<(SetAttr, &Arc<AuthUnix>)> {
        let set = match (&self.deferred_sent, &self.deferred) {
            (Some(sent), Some(deferred)) => merged(&sent.set, &deferred.set),
            (Some(deferred), None) | (None, Some(deferred)) => deferred.set.clone(),
            (None, None) => return None,
        };
        self.deferred.as_ref().or(self.deferred_sent.as_ref()).map(|deferred| (set, &deferred.auth))
    }
}

/// Own changes in flight, to tell them from those of other clients by weak cache consistency data (RFC 1813,
/// section 4.11).
#[derive(Debug, Default)]
pub(crate) struct OwnChanges {
    pub(crate) in_flight: u32,
    /// State before the first of them.
    pub(crate) base: Option<WccAttr>,
    /// States before and after those that are done.
    pub(crate) steps: Vec<WccStep>,
    /// State before the changes, all made here, that records of the change log do not expect yet.
    pub(crate) unsettled: Option<WccAttr>,
    /// A change of a name, made here, may have changed the ctime and the link count.
    pub(crate) has_new_name: bool,
    /// A change made here was answered without attributes, so the next ones are accepted.
    pub(crate) is_unseen: bool,
    /// This run, or the one that made a restored record, has sent changes of the object: new attributes may be ours.
    pub(crate) has_sent: bool,
}

/// State of an object before and after a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WccStep {
    pub(crate) before: WccAttr,
    pub(crate) after: WccAttr,
}

impl OwnChanges {
    /// Whether the changes made here lead from the base to a state in which all of them are done.
    pub(crate) fn explain_all(&mut self) -> bool {
        let Some(mut state) = self.base.take() else { return true };
        let mut steps = std::mem::take(&mut self.steps);
        let has_new_name = self.has_new_name;
        let next = |state: &WccAttr, steps: &[WccStep]| {
            let exact = steps.iter().position(|step| step.before == *state);
            // A new name has changed the ctime in between.
            let is_next = |step: &WccStep| (step.before.size, step.before.mtime) == (state.size, state.mtime);
            exact.or_else(|| steps.iter().position(is_next).filter(|_| has_new_name))
        };
        while let Some(next) = next(&state, &steps) {
            state = steps.swap_remove(next).after;
        }
        steps.is_empty()
    }
}

/// Attributes of an object of the server that records of the change log have changed.
#[derive(Debug)]
pub(crate) struct LoggedAttr {
    pub(crate) set: SetAttr,
    /// Links that were made, minus those that were removed.
    pub(crate) links: i64,
    /// Time of the last change of names in it.
    pub(crate) mtime: Option<NfsTime>,
}

/// A file, directory or other object of the server, or one that was made here.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) fh: Fh,
    /// Replies to earlier calls are about another handle.
    pub(crate) fh_since: Time,
    pub(crate) kind: FileType,
    pub(crate) fileid: u64,
    pub(crate) attr: Option<CachedAttr>,
    /// Made here, and not by the server yet: its handle is provisional.
    pub(crate) is_local: bool,
    /// The server has made it, and the store does not know that yet.
    pub(crate) is_binding: bool,
    /// Number that programs see, where it is not the server's.
    pub(crate) shown_fileid: Option<u64>,
    /// ctime that programs see until another client changes the object.
    pub(crate) shown_ctime: Option<NfsTime>,
    /// Records of the change log that refer to it.
    pub(crate) log_references: u32,
    pub(crate) logged: Option<Box<LoggedAttr>>,
    /// Where it was last found.
    pub(crate) location: Option<Location>,
    /// References of the kernel.
    pub(crate) lookups: u64,
    /// Open handles of programs here.
    pub(crate) opens: u32,
    /// The server answered ESTALE.
    pub(crate) is_stale: bool,
    pub(crate) grants: BTreeMap<CredentialId, Grant>,
    /// Who made it, since the mount began.
    pub(crate) maker: Option<CredentialId>,
    pub(crate) own: OwnChanges,
    pub(crate) dir: Option<Box<DirState>>,
    pub(crate) file: Option<Box<FileState>>,
    pub(crate) link_target: Option<Bytes>,
    /// What the disk cache has of it; `None` if that is unknown.
    pub(crate) disk: Option<Box<DiskState>>,
    /// The name that is removed at the last close, for a file that was removed while open.
    pub(crate) remove_at_close: Option<Location>,
    /// Position in the order of eviction, if the kernel has forgotten it.
    pub(crate) forgotten: Option<u64>,
}

impl Node {
    pub(crate) fn new(fh: Fh, kind: FileType, fileid: u64) -> Node {
        Node {
            fh,
            fh_since: Time::ZERO,
            kind,
            fileid,
            attr: None,
            is_local: false,
            is_binding: false,
            shown_fileid: None,
            shown_ctime: None,
            log_references: 0,
            logged: None,
            location: None,
            lookups: 0,
            opens: 0,
            is_stale: false,
            grants: BTreeMap::new(),
            maker: None,
            own: OwnChanges::default(),
            dir: None,
            file: None,
            link_target: None,
            disk: None,
            remove_at_close: None,
            forgotten: None,
        }
    }

    /// A change of the object is sent.
    pub(crate) fn begin_change(&mut self) {
        if self.own.in_flight == 0 {
            self.own.base = self.attr.as_ref().map(|cached| cached.attr.wcc());
            self.own.steps.clear();
        }
        self.own.in_flight += 1;
        self.own.has_sent = true;
    }

    pub(crate) fn dir(&mut self) -> &mut DirState {
        self.dir.get_or_insert_default()
    }

    pub(crate) fn file(&mut self) -> &mut FileState {
        self.file.get_or_insert_default()
    }

    /// Number that programs see.
    pub(crate) fn shown_fileid(&self) -> u64 {
        self.shown_fileid.unwrap_or(self.fileid)
    }

    /// Bytes from the beginning of the file that the server may have; `None` if nothing limits them but its size.
    pub(crate) fn server_size(&self) -> Option<u64> {
        let file = self.file.as_ref()?;
        if self.is_local { Some(0) } else { file.cut.into_iter().chain(file.cut_sent).min() }
    }

    /// Size of a file in bytes, with local writes.
    pub(crate) fn size(&self) -> u64 {
        let local = self.file.as_ref().and_then(|file| file.size);
        local.or(self.attr.as_ref().map(|cached| cached.attr.size)).unwrap_or(0)
    }

    /// Whether the server may lack something that was written here.
    pub(crate) fn is_dirty(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.is_clean())
    }
}
