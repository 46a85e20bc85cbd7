//! Conflicts: two changes that exclude each other. Both versions are kept, and each conflict is reported.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_wire::fuse::{Errno, Notification};
use remora_wire::nfs3::{Attr, FileType, Name, NfsTime, SetAttr, SetTime};

use crate::change_log::append::{self, finish};
use crate::change_log::local::{self, NewObject};
use crate::change_log::log::{Logged, Stage};
use crate::change_log::record::{Conflict, ConflictKind, LogObject, RecordId};
use crate::change_log::step::{self, Made};
use crate::conflict_name::conflict_name;
use crate::data;
use crate::dirty_store;
use crate::extents::Extents;
use crate::learn;
use crate::needs;
use crate::node::{Location, NodeId, Target};
use crate::path;
use crate::state::State;

/// Conflict names of one file that are tried.
const NAMES_MAX: u32 = 1000;

/// Reports a conflict at a name of the server, whose record has the path `before`.
fn report(state: &mut State, kind: ConflictKind, at: &Location, copy: Option<&Location>, before: &[u8]) {
    let id = state.log.next_conflict();
    let at_path = path::path_since(state, at, before);
    let copy = copy.map(|copy| path::path_since(state, copy, before));
    let conflict = Conflict { id, kind, path: at_path, copy, at: state.server_nfs_time() };
    state.store.log.batch.conflicts.push(conflict.clone());
    state.log.conflicts.insert(id, conflict);
}

/// A name for our version of `at` that is not known to exist.
fn copy_name(state: &State, at: &Location) -> Location {
    let now = state.server_time().secs;
    let taken =
        |name: &Name| matches!(needs::known(state, at.dir, name), Some((Target::Node(_) | Target::Unknown { .. }, _)));
    let names = (1..=NAMES_MAX).map(|number| conflict_name(&at.name, &state.config.machine, now, number));
    let name = names.into_iter().find(|name| !taken(name)).unwrap_or_else(|| at.name.clone());
    Location { dir: at.dir, name }
}

/// The server keeps the name that a record makes: our object gets another one.
pub(crate) fn rename_ours(state: &mut State, id: RecordId, kind: ConflictKind) {
    let Some(at) = state.log.get(id).and_then(|entry| entry.change.names().last().cloned()) else { return };
    let copy = copy_name(state, &at);
    let Some(mut entry) = append::take(state, id) else { return };
    let node = entry.change.node();
    match &mut entry.change {
        Logged::Make { at, .. } | Logged::Link { at, .. } => *at = copy.clone(),
        Logged::Rename { to, replaced, .. } => {
            *to = copy.clone();
            *replaced = None;
        }
        Logged::Remove { .. } | Logged::SetAttr { .. } => {}
    }
    entry.stage = Stage::Waiting;
    let before = entry.path.clone();
    append::insert(state, id, entry);
    append::store(state, id);
    move_later(state, node, &at, &copy);
    append::relocate(state, node);
    learn::forget_name(state, &at);
    report(state, kind, &at, Some(&copy), &before);
}

/// The next record of the object that takes it from its old name takes it from the new one.
fn move_later(state: &mut State, node: NodeId, old: &Location, new: &Location) {
    for id in state.log.of_object(node) {
        let is_from = |change: &Logged| match change {
            Logged::Rename { from, node: moved, .. } => *moved == node && from == old,
            Logged::Remove { at, .. } => at == old,
            _ => false,
        };
        if !state.log.get(id).is_some_and(|entry| is_from(&entry.change)) {
            continue;
        }
        let Some(mut entry) = append::take(state, id) else { return };
        match &mut entry.change {
            Logged::Rename { from: name, .. } | Logged::Remove { at: name, .. } => *name = new.clone(),
            _ => {}
        }
        append::insert(state, id, entry);
        append::store(state, id);
        return;
    }
}

/// The server's change wins: the record is dropped.
pub(crate) fn skip(state: &mut State, id: RecordId, kind: ConflictKind) {
    let Some(entry) = state.log.get(id).filter(|entry| entry.stage != Stage::Done) else { return };
    let names: Vec<Location> = entry.change.names().cloned().collect();
    let (node, before) = (entry.change.node(), entry.path.clone());
    let subject = names.last().cloned().or_else(|| state.nodes.get(node)?.location.clone());
    finish(state, id);
    names.iter().for_each(|at| learn::forget_name(state, at));
    if let Some(at) = subject {
        report(state, kind, &at, None, &before);
    }
}

/// The attributes have changed since they were seen. It is no conflict if they are what the record sets.
pub(crate) fn skip_attributes(state: &mut State, id: RecordId, node: NodeId) {
    let set = match state.log.get(id).map(|entry| &entry.change) {
        Some(Logged::SetAttr { set, .. }) => set.clone(),
        _ => return,
    };
    let attr = state.nodes.get(node).and_then(|node| node.attr.as_ref()).map(|cached| cached.attr.clone());
    if attr.is_some_and(|attr| has_attributes(&attr, &set)) {
        return finish(state, id);
    }
    skip(state, id, ConflictKind::Attributes);
}

/// Whether the attributes are those that the record sets.
fn has_attributes(attr: &Attr, set: &SetAttr) -> bool {
    let time = |set: &SetTime, is: NfsTime| match set {
        SetTime::To(time) => *time == is,
        SetTime::Keep | SetTime::Server => true,
    };
    set.mode.is_none_or(|mode| mode == attr.mode & 0o7777)
        && set.uid.is_none_or(|uid| uid == attr.uid)
        && set.gid.is_none_or(|gid| gid == attr.gid)
        && time(&set.atime, attr.atime)
        && time(&set.mtime, attr.mtime)
}

/// Another client removed a directory in which a record makes a name: it is made again. Other records in it are dropped.
/// Returns false: the record is not ready.
pub(crate) fn recreate(state: &mut State, dir: NodeId, id: RecordId) -> bool {
    let Some(entry) = state.log.get(id) else { return false };
    match &entry.change {
        Logged::Remove { .. } => finish(state, id),
        Logged::Rename { to, .. } if to.dir != dir => skip(state, id, ConflictKind::Renamed),
        _ => match place(state, dir, &entry.path) {
            Some(at) => make_directory_again(state, dir, &at),
            None => append::refuse(state, id, Errno::ESTALE),
        },
    }
    false
}

/// Where a directory is in which a record makes the name of this path. After a restart the record alone may tell.
fn place(state: &State, dir: NodeId, path: &[u8]) -> Option<Location> {
    let known = state.nodes.get(dir).and_then(|node| node.location.clone());
    known.or_else(|| {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(Name::copy_from_slice);
        let (_, name) = (names.next_back()?, names.next_back()?);
        let dir = names.try_fold(NodeId::ROOT, |dir, above| match needs::known(state, dir, &above)? {
            (Target::Node(id), _) => Some(id),
            _ => None,
        })?;
        Some(Location { dir, name })
    })
}

fn make_directory_again(state: &mut State, dir: NodeId, at: &Location) {
    for record in state.log.of_object(dir) {
        skip(state, record, ConflictKind::Renamed);
    }
    let mode =
        state.nodes.get(dir).and_then(|node| node.attr.as_ref()).map_or(0o755, |cached| cached.attr.mode & 0o7777);
    let set = SetAttr { mode: Some(mode), ..SetAttr::NONE };
    let auth = state.log.iter().find(|(_, entry)| entry.change.names().any(|name| name.dir == dir));
    let Some(auth) = auth.map(|(_, entry)| entry.auth.clone()) else { return };
    make_again(state, dir, at, Made { what: LogObject::Directory, set, auth });
    report(state, ConflictKind::DirectoryRemovedThere, at, None, b"");
}

/// An object that the server has lost becomes one that was made here.
fn make_again(state: &mut State, id: NodeId, at: &Location, made: Made) {
    let (fh, fileid) = local::identity(state);
    let new = NewObject { at, what: &made.what, set: &made.set, auth: &made.auth };
    let attr = local::attr(state, &new, fileid);
    let now = state.now;
    state.nodes.rebind(now, id, &fh);
    if let Some(node) = state.nodes.get_mut(id) {
        // The server may give the old number to another object.
        node.shown_fileid = None;
        node.fileid = fileid;
        node.location = Some(at.clone());
        node.is_local = true;
        node.is_stale = false;
        node.disk = None;
        node.grants.clear();
        node.attr = Some(local::known_attr(attr, now));
        if let Some(names) = &mut node.dir {
            names.names = BTreeMap::new();
            names.complete = Some(local::LISTED);
        }
    }
    step::add_made(state, id, at, made);
}

/// All bytes of a file as programs here see them; `None` if some are not in memory.
fn contents(state: &State, id: NodeId) -> Option<Bytes> {
    let node = state.nodes.get(id)?;
    let (file, size) = (node.file.as_deref()?, node.size());
    let is_whole = file.extents.missing(0..size).is_empty();
    is_whole.then(|| file.extents.read(0..size))
}

/// Another client changed a file that was written here, too: ours becomes a file of its own beside it. Returns false if our
/// version is not whole.
pub(crate) fn copy_file(state: &mut State, id: NodeId) -> bool {
    let Some(at) = state.nodes.get(id).and_then(|node| node.location.clone()) else { return false };
    let Some(data) = contents(state, id) else { return false };
    let Some(node) = state.nodes.get(id).filter(|node| node.kind == FileType::Regular) else { return false };
    let Some(auth) = node.file.as_ref().and_then(|file| file.writer.clone()) else { return false };
    let mode = node.attr.as_ref().map_or(0o600, |cached| cached.attr.mode & 0o777);
    let set = SetAttr { mode: Some(mode), ..SetAttr::NONE };
    let copy = copy_name(state, &at);
    let new = NewObject { at: &copy, what: &LogObject::File, set: &set, auth: &auth };
    let ours = local::make(state, &new);
    step::add_made(state, ours, &copy, Made { what: LogObject::File, set, auth });
    write_all(state, ours, data);
    revert(state, id);
    report(state, ConflictKind::Content, &at, Some(&copy), b"");
    true
}

fn write_all(state: &mut State, id: NodeId, data: Bytes) {
    let range = 0..data.len() as u64;
    data::update(state, id, |file| {
        file.extents.insert(0, data);
        file.dirty.insert(range.clone());
        file.size = Some(range.end);
    });
    dirty_store::changed(state, id, Some(range));
    dirty_store::save_now(state, id);
}

/// Drops our version of a file: programs see the server's from now on.
fn revert(state: &mut State, id: NodeId) {
    let waiters = data::update(state, id, |file| {
        file.extents = Extents::default();
        file.reading.clear();
        for set in [&mut file.dirty, &mut file.unstable, &mut file.committing, &mut file.refused] {
            set.clear();
        }
        file.kept.unsaved.clear();
        (file.cut, file.deferred, file.check, file.error) = (None, None, None, None);
        file.is_changed = true;
        std::mem::take(&mut file.flush_waiters)
    });
    state.ready.extend(waiters.unwrap_or_default());
    let now = state.now;
    if let Some(node) = state.nodes.get_mut(id) {
        node.shown_ctime = None;
        if let Some(cached) = &mut node.attr {
            cached.outdated = Some(now);
        }
    }
    state.notify(Notification::InvalInode { nodeid: id.0, offset: 0, len: 0 });
}

/// Another client removed a file that was written here: it is made again. Returns false if our version is not whole.
pub(crate) fn make_file_again(state: &mut State, id: NodeId) -> bool {
    if state.nodes.get(id).is_some_and(|node| {
        node.location.is_none() && node.opens == 0 && node.file.as_ref().is_none_or(|file| file.kept.path.is_empty())
    }) {
        // We removed its name, and the server has no other one.
        data::discard(state, id);
        return true;
    }
    let Some(node) = state.nodes.get(id) else { return false };
    let Some(at) = node.location.clone().filter(|_| node.kind == FileType::Regular && !node.is_local) else {
        return false;
    };
    let Some(data) = contents(state, id) else { return false };
    let Some(auth) = state.nodes.get(id).and_then(|node| node.file.as_ref()?.writer.clone()) else { return false };
    let mode = state.nodes.get(id).and_then(|node| node.attr.as_ref()).map_or(0o600, |cached| cached.attr.mode & 0o777);
    for record in state.log.of_object(id) {
        skip(state, record, ConflictKind::Renamed);
    }
    revert(state, id);
    let set = SetAttr { mode: Some(mode), ..SetAttr::NONE };
    make_again(state, id, &at, Made { what: LogObject::File, set, auth });
    write_all(state, id, data);
    report(state, ConflictKind::RemovedThere, &at, None, b"");
    true
}
