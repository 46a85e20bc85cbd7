//! Chooses the records that can be sent, and sends their calls.

use remora_wire::fuse::Errno;
use remora_wire::nfs3::{self, CreateHow, DirOp, FileType, SetAttr};

use crate::call::Priority;
use crate::change_log::append;
use crate::change_log::log::{Logged, Stage};
use crate::change_log::record::{LogObject, RecordId};
use crate::data;
use crate::dirty_store;
use crate::kept::Check;
use crate::node::{CachedAttr, Location, Node, NodeId};
use crate::reintegration::conflict;
use crate::state::{Change, LogCall, Purpose, State};
use crate::writeback::{self, Amount};

/// Records in flight.
const IN_FLIGHT_MAX: usize = 64;
/// Records that are looked at to find some that can be sent. The oldest one always can.
const LOOKED_AT_MAX: usize = 512;

/// Sends what can be sent.
pub(crate) fn run(state: &mut State) {
    let synced = state.store.synced;
    let later = state.log.done_and_saved.split_off(&(synced + 1));
    for record in std::mem::replace(&mut state.log.done_and_saved, later).into_values().flatten() {
        if matches!(state.log.get(record).map(|entry| &entry.change), Some(Logged::Make { .. })) {
            made(state, record);
        } else {
            append::forget(state, record);
        }
    }
    if !state.log.done_and_saved.is_empty() {
        hurry_barrier(state);
    }
    append::unbind(state);
    if state.log.is_empty() || state.is_disconnected() || state.log.in_flight.len() >= IN_FLIGHT_MAX {
        return;
    }
    for record in state.log.waiting(LOOKED_AT_MAX) {
        if state.log.in_flight.len() >= IN_FLIGHT_MAX {
            break;
        }
        // After a loss of power the store must not know less than the server.
        if !state.log.is_synced(record, synced) {
            hurry_barrier(state);
        } else if is_ready(state, record) {
            start(state, record);
        }
    }
}

/// What the store has done is to survive a loss of power now.
fn hurry_barrier(state: &mut State) {
    if state.store.saves > state.store.synced {
        state.store.barrier_at = Some(state.now);
    }
}

/// The store knows that the server has made the object of a record: the record is done, and the data is sent.
fn made(state: &mut State, record: RecordId) {
    let Some(entry) = append::take(state, record) else { return };
    let id = entry.change.node();
    state.log.sent += 1;
    if let Some(node) = state.nodes.get_mut(id) {
        node.is_binding = false;
    }
    append::count_links(state, id);
    if state.nodes.get(id).is_some_and(|node| node.file.is_some()) {
        writeback::send(state, id, Amount::All);
    }
}

fn is_clean(node: &Node) -> bool {
    node.file.as_ref().is_none_or(|file| file.is_clean() && file.check.is_none())
}

/// Whether all that a record depends on is done.
fn is_ready(state: &mut State, id: RecordId) -> bool {
    if state.log.has_earlier(id) {
        return false;
    }
    let Some(entry) = state.log.get(id) else { return false };
    let change = entry.change.clone();
    let dirs: Vec<NodeId> = change.names().map(|at| at.dir).collect();
    for dir in dirs {
        match state.nodes.get(dir) {
            Some(node) if node.is_local => return false,
            Some(node) if node.is_stale => return conflict::recreate(state, dir, id),
            Some(_) => {}
            None => return false,
        }
    }
    let is_directory = |id: NodeId| state.nodes.get(id).is_some_and(|node| node.kind == FileType::Directory);
    match change {
        Logged::Make { .. } => true,
        Logged::Remove { node, is_directory: true, .. } => !state.log.has_earlier_in(node, id),
        Logged::Remove { node, .. } => is_quiet(state, node),
        Logged::Rename { node, replaced, .. } => {
            // Other clients see the new contents under the new name.
            let has_data = state.nodes.get(node).is_none_or(|node| !is_clean(node) && !node.is_stale);
            let is_emptied = replaced.is_none_or(|replaced| !state.log.has_earlier_in(replaced.node, id));
            let mut earlier = state.log.earlier_renames(id);
            let waits = is_directory(node) && earlier.any(|entry| is_directory(entry.change.node()));
            let is_quiet = replaced.is_none_or(|replaced| is_quiet(state, replaced.node));
            !has_data && is_emptied && !waits && is_quiet
        }
        Logged::Link { node, .. } | Logged::SetAttr { node, .. } => {
            state.nodes.get(node).is_some_and(|node| !node.is_local)
        }
    }
}

/// Whether no change of the object is in flight or was lost in a crash of the server, so that a look at it shows whether
/// others have changed it.
pub(crate) fn is_quiet(state: &State, id: NodeId) -> bool {
    let is_checked = |node: &Node| node.file.as_ref().is_none_or(|file| file.check.is_none());
    state.nodes.get(id).is_none_or(|node| node.own.in_flight == 0 && is_checked(node))
}

/// Begins with a record: looks at names that are to be removed, or sends the change at once.
fn start(state: &mut State, id: RecordId) {
    let Some(entry) = state.log.get(id) else { return };
    let stage = Stage::Looking { since: state.now, from: None, to: None };
    match entry.change.clone() {
        Logged::Remove { at, .. } => {
            state.log.set_stage(id, stage);
            look(state, id, &at, LogCall::From);
        }
        Logged::Rename { from, to, .. } => {
            state.log.set_stage(id, stage);
            look(state, id, &from, LogCall::From);
            look(state, id, &to, LogCall::To);
        }
        _ => act(state, id),
    }
}

/// Sends a LOOKUP of a name.
pub(crate) fn look(state: &mut State, id: RecordId, at: &Location, call: LogCall) {
    let Some(dir) = state.nodes.get(at.dir).map(|node| node.fh.clone()) else { return };
    let lookup = nfs3::Call::Lookup(DirOp { dir, name: at.name.clone() });
    submit(state, id, lookup, call);
}

/// Sends a call for a record.
pub(crate) fn submit(state: &mut State, id: RecordId, call: nfs3::Call, purpose: LogCall) {
    let Some(entry) = state.log.get(id) else { return };
    let auth = entry.auth.clone();
    state.submit(Priority::WriteBack, &auth, call, Purpose::Reintegrate { record: id, call: purpose });
}

/// Sends the change itself.
pub(crate) fn act(state: &mut State, id: RecordId) {
    let now = state.now;
    let Some(entry) = state.log.get_mut(id) else { return };
    entry.sent_at.get_or_insert(now);
    let change = entry.change.clone();
    let Some((change, call)) = call(state, &change) else {
        return append::refuse(state, id, Errno::ESTALE);
    };
    state.log.set_stage(id, Stage::Sent);
    state.begin_change(&change);
    submit(state, id, call, LogCall::Act(change));
}

/// The call that executes a change, and the change for its effects on the cache.
fn call(state: &State, change: &Logged) -> Option<(Change, nfs3::Call)> {
    let fh = |id: NodeId| state.nodes.get(id).map(|node| node.fh.clone());
    let dir_op = |at: &Location| Some(DirOp { dir: fh(at.dir)?, name: at.name.clone() });
    Some(match change {
        Logged::Make { at, what, attr, verifier, .. } => {
            (Change::Make(at.clone()), make_call(dir_op(at)?, what, attr, *verifier))
        }
        Logged::Link { node, at } => {
            let args = nfs3::LinkArgs { fh: fh(*node)?, at: dir_op(at)? };
            (Change::Link { node: *node, to: at.clone() }, nfs3::Call::Link(args))
        }
        Logged::Remove { at, is_directory, .. } => {
            let op = dir_op(at)?;
            let call = if *is_directory { nfs3::Call::RmDir(op) } else { nfs3::Call::Remove(op) };
            (Change::Remove(at.clone()), call)
        }
        Logged::Rename { from, to, .. } => {
            let args = nfs3::RenameArgs { from: dir_op(from)?, to: dir_op(to)? };
            (Change::Rename { from: from.clone(), to: to.clone() }, nfs3::Call::Rename(args))
        }
        Logged::SetAttr { node, set, seen } => {
            // The guard is of use where nothing that was made here has changed the object since.
            let known = state.nodes.get(*node)?.attr.as_ref().map(|cached| cached.attr.wcc());
            let guard = seen.filter(|seen| known.as_ref() == Some(seen)).map(|seen| seen.ctime);
            let args = nfs3::SetAttrArgs { fh: fh(*node)?, attr: set.clone(), guard };
            (Change::SetAttr(*node), nfs3::Call::SetAttr(args))
        }
    })
}

fn make_call(at: DirOp, what: &LogObject, attr: &SetAttr, verifier: [u8; 8]) -> nfs3::Call {
    match what {
        LogObject::File => nfs3::Call::Create(nfs3::CreateArgs { at, how: CreateHow::Exclusive(verifier) }),
        LogObject::Directory => nfs3::Call::MkDir(nfs3::MkDirArgs { at, attr: attr.clone() }),
        LogObject::SymLink(target) => {
            nfs3::Call::SymLink(nfs3::SymLinkArgs { at, attr: attr.clone(), target: target.clone() })
        }
        LogObject::Special(what) => nfs3::Call::MkNod(nfs3::MkNodArgs { at, what: what.clone() }),
    }
}

/// Looks again at files that were written while disconnected, before their data is sent.
pub(crate) fn check_files(state: &mut State) {
    for id in state.dirty_files.clone() {
        let Some(node) = state.nodes.get(id) else { continue };
        let before = node.attr.as_ref().map(|cached| cached.attr.wcc());
        let is_checked = node.file.as_ref().is_some_and(|file| {
            file.kept.object.is_some() && file.check.is_none() && file.refused.is_empty() && file.writing.is_empty()
        });
        if node.is_local {
            continue;
        }
        if node.file.as_ref().is_some_and(|file| file.check.is_some()) {
            // It waited for the server.
            crate::recovery::start(state, id);
            continue;
        }
        // The outcome of a change in flight is not known yet.
        if is_checked && !node.is_stale && is_quiet(state, id) {
            // Times may be coarse, and a name made here may not show yet.
            let is_unsure = node.own.is_unseen || node.attr.as_ref().is_none_or(CachedAttr::is_outdated);
            data::update(state, id, |file| {
                // A crash of the server may have lost what is not committed.
                let may_be_ours = is_unsure || !file.is_safe();
                file.check = Some(Box::new(Check::of(before, may_be_ours)));
            });
            crate::recovery::start(state, id);
        } else {
            writeback::send(state, id, Amount::All);
        }
        dirty_store::changed(state, id, None);
    }
}
